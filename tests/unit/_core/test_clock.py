from __future__ import annotations

import asyncio
import time
from collections import deque
from types import SimpleNamespace

import pytest

from aioproducer._core import clock as module
from aioproducer._core.clock import (
    ITERATIONS,
    TURN_AFTER_BYTES,
    TURN_AFTER_RECORDS,
    TURN_AFTER_S,
    LoopClock,
    YieldPolicy,
    ready_handles,
    wall_ms,
)
from aioproducer.testing import in_virtual_time


def test_clock_returns_milliseconds_since_the_epoch() -> None:
    before = time.time_ns()
    now_ms = wall_ms()
    after = time.time_ns()
    assert before // 1_000_000 <= now_ms <= after // 1_000_000


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Times in ms that the wall clock shows, the next one last."""
    times: list[int] = []
    monkeypatch.setattr(module, "wall_ms", times.pop)
    return times


@in_virtual_time
async def test_clock_keeps_the_second_reading_in_a_millisecond(readings: list[int]) -> None:
    readings[:] = [1_002, 1_001, 1_000, 1_000]
    clock = LoopClock(asyncio.get_running_loop())
    assert [clock.now_ms() for _ in range(4)] == [1_000] * 4
    assert readings == [1_002, 1_001]
    await asyncio.sleep(0)
    assert [clock.now_ms(), clock.now_ms()] == [1_001, 1_002]


@in_virtual_time
async def test_clock_keeps_no_reading_of_another_millisecond(readings: list[int]) -> None:
    readings[:] = [1_001, 1_000]
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    assert [clock.now_ms(), clock.now_ms()] == [1_000, 1_001]
    assert clock.known_ms == 0


@in_virtual_time
async def test_clock_reads_again_after_forget(readings: list[int]) -> None:
    readings[:] = [1_001, 1_000, 1_000]
    clock = LoopClock(asyncio.get_running_loop())
    assert [clock.now_ms(), clock.now_ms()] == [1_000, 1_000]
    clock.forget()
    assert clock.now_ms() == 1_001


@in_virtual_time
async def test_fresh_reading_replaces_the_kept_one(readings: list[int]) -> None:
    readings[:] = [1_002, 1_000, 1_000]
    clock = LoopClock(asyncio.get_running_loop())
    assert [clock.fresh_ms(), clock.known_ms] == [1_000, 0]
    assert [clock.now_ms(), clock.fresh_ms(), clock.now_ms()] == [1_000, 1_002, 1_002]
    await asyncio.sleep(0)
    assert clock.known_ms == 0


def test_ready_handles_are_those_of_an_asyncio_loop() -> None:
    loop, other = asyncio.BaseEventLoop(), SimpleNamespace(_ready=deque())
    assert ready_handles(other) is None  # type: ignore[arg-type]
    assert ready_handles(loop) is loop._ready  # type: ignore[attr-defined]
    loop.close()
    loop._ready = []  # type: ignore[attr-defined]
    assert ready_handles(loop) is None
    del loop._ready  # type: ignore[attr-defined]
    assert ready_handles(loop) is None


def test_yield_is_due_after_a_time_without_the_sender() -> None:
    yields = YieldPolicy()
    for passed, due in ((0, False), (TURN_AFTER_S / 2, False), (TURN_AFTER_S * 1.01, True)):
        yields.check(7.0 + passed, free=100, rate=1.0, size=100)
        assert yields.should_yield is due
    yields.reset()
    assert yields.should_yield is False, "the sender has had it"


def test_yield_is_due_exactly_at_the_limit() -> None:
    yields = YieldPolicy()
    yields.check(0.0, free=100, rate=1.0, size=100)
    yields.check(TURN_AFTER_S, free=100, rate=1.0, size=100)
    assert yields.should_yield


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_yield_is_due_after_the_byte_limit(rate: float) -> None:
    much, free = int(TURN_AFTER_BYTES / rate), 50 * TURN_AFTER_BYTES
    yields = YieldPolicy()
    for _ in range(2):
        for appended, due in ((0, False), (much - 1, False), (much, True)):
            yields.check(7.0, free - appended, rate, size=TURN_AFTER_BYTES)
            assert yields.should_yield is due
        yields.reset()
        free -= much


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_yield_is_due_after_the_record_limit(rate: float) -> None:
    size, free, many = 100, 50 * TURN_AFTER_BYTES, int(TURN_AFTER_RECORDS / rate)
    yields = YieldPolicy()
    for records, due in ((0, False), (many - 1, False), (many, True)):
        yields.check(7.0, free - records * size, rate, size)
        assert yields.should_yield is due


def test_yield_ignores_memory_that_was_released() -> None:
    yields = YieldPolicy()
    for free in (0, TURN_AFTER_BYTES, 2 * TURN_AFTER_BYTES):
        yields.check(7.0, free, rate=1.0, size=100)
        assert not yields.should_yield


def test_yield_is_not_due_after_a_pause_of_the_caller() -> None:
    yields = YieldPolicy()
    for at in (0.0, 60.0, 120.0):
        yields.check(at, free=100, rate=1.0, size=100)
        assert not yields.should_yield
        yields.reset()


@in_virtual_time
async def test_yield_lasts_until_the_sender_has_seen_the_responses() -> None:
    loop = asyncio.get_running_loop()
    yields = YieldPolicy()
    yields.should_yield = True
    began_at = loop.time()
    order: list[str] = []

    def sender(left: int) -> None:
        order.append("sender")
        if left:
            loop.call_soon(sender, left - 1)

    loop.call_soon(sender, ITERATIONS - 1)
    taking = asyncio.create_task(yields.yield_to_loop())
    await asyncio.sleep(0)
    assert yields.should_yield is False, "other tasks append meanwhile"
    await taking
    assert order == ["sender"] * ITERATIONS
    assert loop.time() == began_at, "a yield to an idle loop takes no time"
