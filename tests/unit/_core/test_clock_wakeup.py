from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context
from math import inf
from typing import Any
from unittest import mock

import pytest
import uvloop

from aioproducer._core.clock import Wakeup
from aioproducer.testing import Deadlock, in_virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_wait_ends_with_a_ring() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    loop.call_later(3, wakeup.ring)
    await wakeup.wait(inf)
    assert now() == 3


@in_virtual_time
async def test_wait_ends_at_its_time() -> None:
    wakeup = Wakeup(asyncio.get_running_loop())
    await wakeup.wait(5)
    assert now() == 5


@in_virtual_time
async def test_timer_calls_its_function() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    called: list[float] = []

    def in_its_place() -> None:
        called.append(loop.time())
        assert wakeup.consume()
        wakeup.ring_at(7)
        if len(called) == 2:
            wakeup.ring()

    wakeup.on_time = in_its_place
    await wakeup.wait(5)
    assert called == [5, 7]
    assert now() == 7


@in_virtual_time
async def test_timer_rings_behind_work_of_the_same_moment() -> None:
    loop = asyncio.get_running_loop()
    wakeup, done = Wakeup(loop), list[str]()
    wakeup.on_time = lambda: done.append("timer")

    async def handle() -> None:
        done.append("request")

    async def serve() -> None:
        await asyncio.sleep(5)
        await loop.create_task(handle())

    wakeup.ring_at(5)  # before the timer of `serve` in the loop's heap
    await serve()
    await asyncio.sleep(1)
    assert done == ["request", "timer"]


@in_virtual_time
async def test_timer_without_other_work_rings_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    wakeup, scheduled = Wakeup(loop), list[int]()
    call_soon = mock.Mock(wraps=loop.call_soon)
    monkeypatch.setattr(loop, "call_soon", call_soon)
    wakeup.on_time = lambda: scheduled.append(call_soon.call_count)
    wakeup.ring_at(5)
    await asyncio.sleep(6)
    assert scheduled == [0]


@in_virtual_time
async def test_on_time_callback_runs_in_an_empty_context() -> None:
    request: ContextVar[str] = ContextVar("request")
    wakeup = Wakeup(asyncio.get_running_loop())
    seen: list[str] = []

    def in_its_place() -> None:
        seen.append(request.get("nobody's"))
        wakeup.ring()

    wakeup.on_time = in_its_place
    somebody = copy_context()
    somebody.run(request.set, "somebody's")
    somebody.run(wakeup.ring_at, 5)
    await wakeup.wait(inf)
    assert seen == ["nobody's"]


@in_virtual_time
async def test_ring_before_the_wait_ends_it_at_once() -> None:
    wakeup = Wakeup(asyncio.get_running_loop())
    wakeup.ring()
    await wakeup.wait(5)
    assert now() == 0


@in_virtual_time
async def test_ring_between_two_waits_ends_the_next() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    loop.call_later(1, wakeup.ring)
    await wakeup.wait(inf)
    wakeup.ring()
    await wakeup.wait(5)
    assert now() == 1


@in_virtual_time
async def test_ringing_twice_is_ringing_once() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    wakeup.ring()
    wakeup.ring()
    await wakeup.wait(5)
    loop.call_later(1, wakeup.ring)
    loop.call_at(loop.time() + 1, wakeup.ring)
    await wakeup.wait(5)
    assert now() == 1
    await wakeup.wait(5)
    assert now() == 5


@in_virtual_time
async def test_earlier_timer_ends_a_later_wait() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    loop.call_later(1, wakeup.ring)
    await wakeup.wait(2)
    await wakeup.wait(9)
    assert now() == 2
    await wakeup.wait(9)
    assert now() == 9


@in_virtual_time
async def test_timer_is_set_once_for_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    loop.call_later(1, wakeup.ring)
    await wakeup.wait(5)
    monkeypatch.setattr(loop, "call_at", None)
    await wakeup.wait(5)
    assert now() == 5


@in_virtual_time
async def test_wait_with_an_earlier_time_ends_earlier() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    loop.call_later(1, wakeup.ring)
    await wakeup.wait(9)
    await wakeup.wait(2)
    assert now() == 2


@in_virtual_time
async def test_later_timer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled timers would stay in asyncio until their time, and lingers end every few milliseconds."""
    loop = asyncio.get_running_loop()
    wakeup, set_for, call_at = Wakeup(loop), list[float](), loop.call_at

    def counted(when: float, *args: Any, context: Context) -> asyncio.TimerHandle:
        set_for.append(when)
        return call_at(when, *args, context=context)

    monkeypatch.setattr(loop, "call_at", counted)
    wakeup.ring_at(9)
    for linger in (2, 4, 6):
        await wakeup.wait(linger)
        assert now() == linger
        wakeup.ring_at(9)
    await wakeup.wait(inf)
    assert now() == 9
    assert set_for == [9, 2, 4, 6]


@in_virtual_time
async def test_forgotten_timer_ends_no_wait() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    loop.call_later(1, wakeup.ring)
    await wakeup.wait(2)
    wakeup.forget()
    await wakeup.wait(9)
    assert now() == 9


@in_virtual_time
async def test_forget_cancels_all_timers() -> None:
    wakeup = Wakeup(asyncio.get_running_loop())
    wakeup.ring_at(9)
    wakeup.ring_at(2)
    wakeup.forget()
    await wakeup.wait(11)
    assert now() == 11


@in_virtual_time
async def test_cancelled_wait_leaves_the_wakeup_usable() -> None:
    wakeup = Wakeup(asyncio.get_running_loop())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await wakeup.wait(2)
    assert now() == 1
    await wakeup.wait(1.5)
    assert now() == 1.5


def test_wait_without_ring_or_time_never_ends() -> None:
    @in_virtual_time
    async def wait() -> None:
        await Wakeup(asyncio.get_running_loop()).wait(inf)

    with pytest.raises(Deadlock):
        wait()


@in_virtual_time
async def test_ring_during_a_hold_takes_effect_at_the_release() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    waiting = loop.create_task(wakeup.wait(inf))
    await asyncio.sleep(0)
    wakeup.pause()
    wakeup.ring()
    await asyncio.sleep(1)
    assert not waiting.done()
    wakeup.resume()
    await waiting
    assert now() == 1


@in_virtual_time
async def test_release_without_ring_ends_no_wait() -> None:
    wakeup = Wakeup(asyncio.get_running_loop())
    wakeup.pause()
    wakeup.resume()
    await wakeup.wait(5)
    assert now() == 5


@in_virtual_time
async def test_consume_clears_a_ring_for_the_waiting_task() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    waiting = loop.create_task(wakeup.wait(5))
    await asyncio.sleep(1)
    wakeup.pause()
    wakeup.ring()
    assert wakeup.consume()
    wakeup.resume()
    await waiting
    assert now() == 5


@in_virtual_time
async def test_ring_after_consume_ends_the_wait() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    waiting = loop.create_task(wakeup.wait(inf))
    await asyncio.sleep(1)
    wakeup.pause()
    assert wakeup.consume()
    wakeup.ring()
    wakeup.resume()
    await waiting
    assert now() == 1


@in_virtual_time
async def test_consume_returns_false_without_a_waiting_task() -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    wakeup.ring()
    assert not wakeup.consume()
    await wakeup.wait(5)
    assert now() == 0
    waiting = loop.create_task(wakeup.wait(inf))
    await asyncio.sleep(0)
    wakeup.ring()
    assert not wakeup.consume()  # the waiting task was woken already
    await waiting


@pytest.mark.parametrize(("until", "rings_at"), [(2, 2), (7, 5), (inf, 5)])
@in_virtual_time
async def test_ring_at_during_a_wait_may_shorten_it(until: float, rings_at: float) -> None:
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    waiting = loop.create_task(wakeup.wait(5))
    await asyncio.sleep(0)
    wakeup.ring_at(until)
    await waiting
    assert now() == rings_at


def test_ring_at_in_the_past_is_rung_on_uvloop() -> None:
    """A handle of uvloop for an immediate callback has no time."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        wakeup = Wakeup(loop)
        waiting = asyncio.create_task(wakeup.wait(inf))
        await asyncio.sleep(0)
        assert wakeup.consume()
        wakeup.ring_at(loop.time())
        wakeup.ring_at(loop.time() - 1)
        await waiting
        for _ in range(3):
            await asyncio.sleep(0)  # both have rung
        async with asyncio.timeout(10):
            await wakeup.wait(loop.time() + 0.01)
            await wakeup.wait(loop.time() + 0.01)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
