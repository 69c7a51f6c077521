from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer._core import worker_threads
from aioproducer._core.worker_threads import YIELD_EVERY_S, NoThread, WorkerThreads

TIMEOUT_S = 10.0


@pytest.fixture
def threads() -> Iterator[WorkerThreads]:
    opened = WorkerThreads(2, "aioproducer tests")
    yield opened
    opened.shutdown()


def ours() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("aioproducer tests")]


def refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")


class Gate:
    """A call that blocks until it is released."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self) -> str:
        self.begun.release()
        assert self.open.wait(TIMEOUT_S)
        return threading.current_thread().name


async def test_call_runs_in_a_daemon_thread_with_the_callers_context(threads: WorkerThreads) -> None:
    user = contextvars.ContextVar("user", default="none")
    user.set("ada")
    thread, name = await threads.run(lambda: (threading.current_thread(), user.get()))
    assert thread is not threading.main_thread()
    assert (thread.daemon, name) == (True, "ada")
    assert await threads.run(divmod, 7, 2) == (3, 1)


async def test_number_of_threads_is_limited(threads: WorkerThreads) -> None:
    gate = Gate()
    calls = [asyncio.create_task(threads.run(gate)) for _ in range(6)]
    await asyncio.sleep(0)
    assert gate.begun.acquire(timeout=TIMEOUT_S)
    assert gate.begun.acquire(timeout=TIMEOUT_S)
    assert not gate.begun.acquire(timeout=0.02)
    gate.open.set()
    assert len(set(await asyncio.gather(*calls))) == 2


async def test_idle_thread_takes_the_next_call(threads: WorkerThreads) -> None:
    names = {await threads.run(lambda: threading.current_thread().name) for _ in range(20)}
    assert len(names) <= 2


async def test_idle_threads_end(threads: WorkerThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_threads, "IDLE_S", 0.01)
    for _ in range(3):
        thread = await threads.run(threading.current_thread)
        await asyncio.to_thread(thread.join, TIMEOUT_S)
        assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_idle_thread_keeps_no_outcome_alive(threads: WorkerThreads) -> None:
    class Outcome:
        pass

    gone = weakref.ref(await threads.run(Outcome))
    await threads.run(int)
    gc.collect()
    assert gone() is None


async def test_cancelled_call_is_not_waited_for(threads: WorkerThreads) -> None:
    gate = Gate()
    calls = [asyncio.create_task(threads.run(gate)) for _ in range(3)]
    await asyncio.sleep(0)
    for each in calls:
        each.cancel()
    done, _ = await asyncio.wait(calls, timeout=TIMEOUT_S)
    assert len(done) == 3
    gate.open.set()
    await threads.run(int)
    assert gate.begun.acquire(timeout=TIMEOUT_S)
    assert gate.begun.acquire(timeout=TIMEOUT_S)
    assert not gate.begun.acquire(blocking=False)  # the third had not begun


async def test_shutdown_cancels_calls_that_have_not_begun(threads: WorkerThreads) -> None:
    gate = Gate()
    calls = [asyncio.create_task(threads.run(gate)) for _ in range(3)]
    await asyncio.sleep(0)
    assert gate.begun.acquire(timeout=TIMEOUT_S)
    assert gate.begun.acquire(timeout=TIMEOUT_S)
    threads.shutdown()
    gate.open.set()
    *begun, waiting = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, str) for each in begun)
    assert isinstance(waiting, asyncio.CancelledError)
    with pytest.raises(NoThread, match="closed"):
        await threads.run(int)
    for each in ours():
        await asyncio.to_thread(each.join, TIMEOUT_S)
    assert ours() == []


class TestYieldGil:
    @pytest.fixture
    def slept(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """Durations of sleeps, on a clock that stands still otherwise."""
        slept = [1.0]
        fake = SimpleNamespace(sleep=slept.append, perf_counter=lambda: sum(slept))
        monkeypatch.setattr(worker_threads, "time", fake)
        return slept

    async def test_event_loop_sleeps_only_while_a_call_has_no_outcome(
        self, threads: WorkerThreads, slept: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(worker_threads, "IDLE_S", 0.01)
        gate = Gate()
        threads.yield_gil()
        assert len(slept) == 1
        calls = [asyncio.create_task(threads.run(gate)) for _ in range(3)]
        await asyncio.sleep(0)
        assert gate.begun.acquire(timeout=TIMEOUT_S)
        assert gate.begun.acquire(timeout=TIMEOUT_S)
        threads.yield_gil()
        assert len(slept) == 2
        running = ours()
        gate.open.set()
        await asyncio.gather(*calls)
        for each in running:
            await asyncio.to_thread(each.join, TIMEOUT_S)
        slept.append(1.0)
        threads.yield_gil()
        assert len(slept) == 3

    async def test_call_that_has_not_begun_counts(
        self, slept: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads = WorkerThreads(1, "aioproducer tests")
        monkeypatch.setattr(threads, "_start", lambda _name: None)
        call = threads.submit(int)
        threads.yield_gil()
        assert len(slept) == 2
        threads.shutdown()
        assert call.cancelled()

    async def test_sleeps_have_a_distance(self, threads: WorkerThreads, slept: list[float]) -> None:
        gate = Gate()
        call = asyncio.create_task(threads.run(gate))
        await asyncio.sleep(0)
        threads.yield_gil()
        threads.yield_gil()
        assert len(slept) == 2
        slept.append(YIELD_EVERY_S * 1.01)
        threads.yield_gil()
        assert len(slept) == 4
        gate.open.set()
        await call

    async def test_yield_gil_does_not_sleep_without_a_gil(
        self, slept: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        threads, gate = WorkerThreads(1, "aioproducer tests"), Gate()
        call = asyncio.create_task(threads.run(gate))
        await asyncio.sleep(0)
        threads.yield_gil()
        assert len(slept) == 1
        gate.open.set()
        await call
        threads.shutdown()


class TestNoThread:
    @pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
    async def test_call_fails_and_the_next_may_succeed(
        self, threads: WorkerThreads, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            for _ in range(3):
                with pytest.raises(NoThread, match="no thread that tests") as failed:
                    await threads.run(int)
                assert failed.value.__cause__ is error
        assert await threads.run(int) == 0

    async def test_call_runs_on_event_loop_when_no_thread_starts(
        self, threads: WorkerThreads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert await threads.run_anyway(threading.current_thread) is not threading.main_thread()
        threads.shutdown()
        other = WorkerThreads(2, "aioproducer tests")
        monkeypatch.setattr(threading.Thread, "start", refuse)
        assert await other.run_anyway(threading.current_thread) is threading.main_thread()
        with pytest.raises(ZeroDivisionError):
            await other.run_anyway(divmod, 1, 0)

    async def test_threads_that_run_take_the_call(
        self, threads: WorkerThreads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate = Gate()
        first = asyncio.create_task(threads.run(gate))
        await asyncio.sleep(0)
        assert gate.begun.acquire(timeout=TIMEOUT_S)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        second = asyncio.create_task(threads.run(gate))
        await asyncio.sleep(0.01)
        assert not second.done()
        gate.open.set()
        assert await first == await second

    async def test_calls_of_other_event_loops_do_not_wait(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A call that waits for a thread which cannot be started fails, whichever call was to start the thread."""
        threads, starting, goes_on = (
            WorkerThreads(1, "aioproducer tests"),
            threading.Event(),
            threading.Event(),
        )
        start = threading.Thread.start

        def late(thread: threading.Thread) -> None:
            if not thread.name.startswith("aioproducer tests"):
                start(thread)
                return
            starting.set()
            assert goes_on.wait(TIMEOUT_S)
            refuse()

        monkeypatch.setattr(threading.Thread, "start", late)
        elsewhere = asyncio.create_task(asyncio.to_thread(threads.submit, int))
        await asyncio.to_thread(starting.wait, TIMEOUT_S)
        here = threads.submit(int)
        assert not here.done()
        goes_on.set()
        for each in (here, await elsewhere):
            with pytest.raises(NoThread):
                each.result(TIMEOUT_S)

    async def test_thread_that_cannot_start_is_logged_once(
        self, threads: WorkerThreads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for _ in range(5):
            await threads.run_anyway(int)
        [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
        assert warning.message.startswith('threads.unavailable name="aioproducer tests" error="RuntimeError(')


class TestErrors:
    async def test_exceptions_are_the_callers(self, threads: WorkerThreads) -> None:
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)

    @pytest.mark.parametrize(
        "error",
        [
            StopIteration(),
            KeyboardInterrupt(),
            SystemExit(1),
            GeneratorExit(),
            asyncio.CancelledError(),
            concurrent.futures.CancelledError(),
        ],
    )
    async def test_errors_that_would_end_the_caller_are_replaced(
        self, threads: WorkerThreads, error: BaseException
    ) -> None:
        def fail() -> None:
            raise error

        with pytest.raises(RuntimeError, match=type(error).__name__) as raised:
            await asyncio.wait_for(threads.run(fail), TIMEOUT_S)
        assert raised.value.__cause__ is error


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_starts_threads_of_its_own(threads: WorkerThreads) -> None:
    gate = Gate()
    for _ in range(2):
        threads.submit(gate)
    with threads._changed:  # as if another thread held the lock
        child = os.fork()
        if not child:
            os._exit(threads.submit(lambda: 7).result(TIMEOUT_S))
    gate.open.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def blocked(call: str) -> list[str]:
    return ["import threading, time", "from aioproducer._core.worker_threads import WorkerThreads", call]


@pytest.mark.parametrize(
    "call",
    [
        "WorkerThreads(1, 'blocked').submit(time.sleep, 60)",
        "[WorkerThreads(1, 'idle').submit(int).result() for _ in range(3)]",
    ],
)
def test_interpreter_exit_waits_for_no_thread(call: str) -> None:
    began_at = time.monotonic()
    program = "\n".join(blocked(call))
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    assert time.monotonic() - began_at < 20


@pytest.mark.parametrize("register", ["atexit.register", "threading._register_atexit"])
def test_calls_have_outcomes_while_the_interpreter_exits(register: str) -> None:
    program = f"""
import asyncio, atexit, threading
import concurrent.futures.thread
from aioproducer._core.worker_threads import WorkerThreads

async def work():
    threads = WorkerThreads(2, "late")
    print(sum(await asyncio.gather(*(threads.run_anyway(abs, -1) for _ in range(5)))))

{register}(lambda: asyncio.run(work()))
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=30)
    assert ended.stdout.split() == [b"5"]


def test_shared_threads_are_few() -> None:
    shared = (worker_threads.LOOKUP_THREADS, worker_threads.CALL_THREADS, worker_threads.WORK_THREADS)
    assert sum(each._limit for each in shared) <= 18


@pytest.mark.parametrize("times", [1, 500])
async def test_concurrent_calls_all_return(threads: WorkerThreads, times: int) -> None:
    calls: list[Callable[[], Any]] = [int] * times
    assert await asyncio.gather(*map(threads.run, calls)) == [0] * times
