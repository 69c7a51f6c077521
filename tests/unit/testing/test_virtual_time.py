from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
import pytest

from aioproducer.testing import virtual_time
from aioproducer.testing.virtual_time import Deadlock, in_virtual_time, run

THREAD_WORK_S = 0.02


def work_in_a_thread() -> int:
    time.sleep(THREAD_WORK_S)
    return threading.get_ident()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_two_hours_pass_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(7200)
        return now()

    began = time.monotonic()
    assert run(main()) == 7200
    assert time.monotonic() - began < 1


@in_virtual_time
async def test_timers_come_in_order_each_at_its_time() -> None:
    seen: list[tuple[str, float]] = []

    async def count_request(name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        seen.append((name, now()))

    await asyncio.gather(count_request("late", 3), count_request("early", 0.1), count_request("middle", 2))
    assert seen == [("early", 0.1), ("middle", 2), ("late", 3)]


@in_virtual_time
async def test_timeout_strikes_at_its_deadline() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout_at(120):
            await asyncio.Event().wait()
    assert now() == 120


@in_virtual_time
async def test_time_stands_still_while_something_is_ready() -> None:
    for _ in range(100):
        await asyncio.sleep(0)
    assert now() == 0


@in_virtual_time
async def test_wait_of_more_than_a_day_takes_several_jumps() -> None:
    await asyncio.sleep(3 * 24 * 3600)
    assert now() == 3 * 24 * 3600


@in_virtual_time
async def test_time_stands_still_while_the_executor_works() -> None:
    async with asyncio.timeout(0.001):
        ident = await asyncio.to_thread(work_in_a_thread)
    assert ident != threading.get_ident()
    assert now() == 0


@in_virtual_time
async def test_time_stands_still_while_a_thread_of_anyio_works() -> None:
    async with asyncio.timeout(0.001):
        ident = await anyio.to_thread.run_sync(work_in_a_thread)
    assert ident != threading.get_ident()
    assert now() == 0


@in_virtual_time
async def test_thread_is_seen_through_every_kind_of_await() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield await anyio.to_thread.run_sync(work_in_a_thread)

    @asynccontextmanager
    async def entered() -> AsyncIterator[None]:
        await anyio.to_thread.run_sync(work_in_a_thread)
        yield

    class Awaitable:
        def __await__(self):  # type: ignore[no-untyped-def] # noqa: ANN204 - a generator of nobody's business
            return anyio.to_thread.run_sync(work_in_a_thread).__await__()

    async with asyncio.timeout(0.001):
        async for _ in numbers():
            pass
        async with entered():
            pass
        await Awaitable()
    assert now() == 0


@in_virtual_time
async def test_time_goes_on_when_the_threads_are_back() -> None:
    await asyncio.gather(*(anyio.to_thread.run_sync(work_in_a_thread) for _ in range(3)))
    await asyncio.to_thread(work_in_a_thread)
    await asyncio.sleep(60)  # anyio's threads are idle now, and alive
    assert now() == 60


def test_thread_that_stays_out_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "THREAD_TIMEOUT_S", 0.01)
    release = threading.Event()

    async def main() -> None:
        try:
            await asyncio.to_thread(release.wait, 10)
        finally:
            release.set()

    with pytest.raises(Deadlock, match="worker thread has been running"):
        run(main())


def test_deadlock_names_tasks_and_lines() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def generates() -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    async def main() -> None:
        async def iterate() -> None:
            async for _ in generates():
                pass

        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_ever(), name="the culprit")
            group.create_task(iterate(), name="the iterator")

    with pytest.raises(Deadlock) as deadlock:
        run(main())
    message = str(deadlock.value)
    assert "the culprit in Event.wait at " in message
    assert "the iterator in Event.wait at " in message
    assert "locks.py:" in message


def test_tasks_are_cancelled_after_a_deadlock() -> None:
    cancelled = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(Deadlock):
        run(main())
    assert cancelled == [True]


def test_server_is_refused_at_once() -> None:
    async def main() -> None:
        await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)

    with pytest.raises(RuntimeError, match="transport='memory'"):
        run(main())


def test_connection_is_refused_at_once() -> None:
    async def main() -> None:
        await asyncio.open_connection("127.0.0.1", 1)

    with pytest.raises(RuntimeError, match="virtual time"):
        run(main())


def test_socket_is_refused_however_it_is_opened() -> None:
    async def main() -> None:
        with socket.socket() as sock:
            asyncio.get_running_loop().add_reader(sock, print)

    with pytest.raises(RuntimeError, match="virtual time"):
        run(main())


@in_virtual_time
async def test_timer_is_never_early() -> None:
    loop = asyncio.get_running_loop()
    for began_at in (0.0, 14.804970278546456):
        await asyncio.sleep(began_at)
        at = now()
        for _ in range(2):
            at = math.nextafter(at, math.inf)
        called_at = loop.create_future()
        loop.call_at(at, lambda future: future.set_result(now()), called_at)
        await asyncio.sleep(0)  # an iteration in which no time passes
        assert await called_at == at


def test_run_returns_and_raises_as_main() -> None:
    async def fail() -> None:
        raise LookupError("as it was")

    async def give() -> str:
        return "value"

    assert run(give()) == "value"
    with pytest.raises(LookupError, match="as it was"):
        run(fail())


@in_virtual_time
async def test_fixtures_and_parameters_reach_a_test_in_virtual_time(tmp_path: object) -> None:
    assert tmp_path
    assert type(asyncio.get_running_loop()).__name__ == "VirtualTimeLoop"


def test_debug_mode_works() -> None:
    async def main() -> bool:
        await asyncio.sleep(10)
        await asyncio.to_thread(work_in_a_thread)
        return asyncio.get_running_loop().get_debug()

    assert run(main(), debug=True)
