"""Worker threads for calls that would block the event loop.

The default executor belongs to the application, so these threads are separate: see docs/decisions/0030-worker-threads.md.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from aioproducer._core.log_limits import LogLimits
from aioproducer._core.steps import Log

log: Final = Log(__name__)

IDLE_S: Final = 10.0
"""Time after which an idle thread ends, in seconds."""

YIELD_S: Final = 0.0 if sys.platform == "win32" else 1e-6
"""Sleep of `yield_gil`, in seconds. On Linux the sleep takes 60 µs, in which a thread wakes up; on Windows 1e-6 takes 500 µs."""
YIELD_EVERY_S: Final = 0.0003
"""Shortest time between two sleeps of `yield_gil`, in seconds."""

P = ParamSpec("P")
T = TypeVar("T")
Future = concurrent.futures.Future
_Call: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class NoThread(OSError):
    """Raised if no thread can be started: the process is at its limit of threads, short of memory, or exiting."""


class WorkerThreads(concurrent.futures.Executor):
    """Pool of at most *limit* daemon threads, started on demand and ended when idle.

    A `ThreadPoolExecutor` refuses calls while the interpreter exits, and the exit waits for the threads of the executor.
    """

    def __init__(self, limit: int, name: str) -> None:
        """*name* is the first part of the threads' names."""
        self._limit = limit
        self._name = name
        self._limits = LogLimits(timed=False)
        self._yields_at = 0.0 if getattr(sys, "_is_gil_enabled", lambda: True)() else math.inf
        """Time of the next `yield_gil` that sleeps (`time.perf_counter`)."""
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition(threading.Lock())
        self._calls: deque[_Call] = deque()
        self._threads = 0
        self._idle = 0
        self._started = 0
        self._closed = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return the Future of *function*, called in a thread. The Future fails with NoThread if no thread can be started."""
        if self._pid != os.getpid():  # a forked child has no threads, and may have a locked lock
            self._begin()
        future: Future[T] = Future()
        with self._changed:
            self._calls.append((future, partial(function, *args, **kwargs)))
            start = not self._closed and self._idle < len(self._calls) and self._threads < self._limit
            self._threads += start
            name = f"{self._name}_{self._started}"
            self._started += start
            self._changed.notify()
        if start:
            self._start(name)
        elif self._closed:
            self._fail("they are closed")
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:  # noqa: FBT001, FBT002 - as in Executor
        """Cancel the calls that have not begun, and end each thread after its present call. Return without waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for future, _ in self._withdrawn():
            future.cancel()

    async def run(self, function: Callable[..., T], /, *args: Any) -> T:
        """Return the result of *function*, called in a thread, in a copy of the caller's context.

        A cancelled `run` returns without waiting for the thread, which completes its current call.

        Raises: NoThread; the errors of *function*.
        """
        call = partial(copy_context().run, function, *args)
        return await asyncio.get_running_loop().run_in_executor(self, call)

    async def run_anyway(self, function: Callable[..., T], /, *args: Any) -> T:
        """Return the result of *function*, called as in `run`, or on the event loop if no thread can be started."""
        with suppress(NoThread):
            return await self.run(function, *args)
        return function(*args)

    def yield_gil(self) -> None:
        """Sleep for a moment, if a call has no outcome yet: a thread that waits for the GIL takes the GIL.

        A waiting thread requests the GIL after 5 ms in which no thread has released it. An event loop that polls its sockets
        more often releases the GIL, and takes the GIL back before the waiting thread has woken up.
        """
        if (self._calls or self._idle < self._threads) and time.perf_counter() >= self._yields_at:
            time.sleep(YIELD_S)
            self._yields_at = time.perf_counter() + YIELD_EVERY_S

    def _start(self, name: str) -> None:
        # A start is made without the lock: under gevent a start may switch to another greenlet of the same thread.
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except Exception as error:  # noqa: BLE001 - RuntimeError or MemoryError; callers fall back
            is_exiting = not threading.main_thread().is_alive()  # Python 3.12 starts no thread at exit
            level = logging.DEBUG if is_exiting else logging.WARNING
            self._limits.log(log, level, "", "threads.unavailable name=%s error=%r", self._name, error)
            with self._changed:
                self._threads -= 1
                if self._threads:  # the running threads take the call
                    return
            self._fail(f"it could not be started: {error}", error)
        else:
            self._limits.over("threads.unavailable", "", "threads.available name=%s", self._name)

    def _fail(self, why: str, cause: Exception | None = None) -> None:
        """Fail the calls that wait for a thread, including calls of other event loops."""
        for future, _ in self._withdrawn():
            if future.set_running_or_notify_cancel():
                error = NoThread(f"no thread that {self._name.removeprefix('aioproducer ')}: {why}")
                error.__cause__ = cause
                future.set_exception(error)

    def _withdrawn(self) -> tuple[_Call, ...]:
        with self._changed:
            calls = tuple(self._calls)
            self._calls.clear()
        return calls

    def _work(self) -> None:
        while (call := self._next()) is not None:
            _run(*call)
            del call  # an idle thread keeps nothing alive

    def _next(self) -> _Call | None:
        """Return the next call, or None to end the thread."""
        with self._changed:
            while not self._calls:
                self._idle += 1
                stays = not self._closed and self._changed.wait(IDLE_S)
                self._idle -= 1
                if not stays and not self._calls:
                    self._threads -= 1
                    return None
            return self._calls.popleft()


def _run(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - raised in the caller
        future.set_exception(_awaitable(error))
    else:
        future.set_result(result)
    finally:
        del future, function  # the error's traceback has this frame


def _awaitable(error: BaseException) -> Exception:
    """Return *error*, or a RuntimeError if *error* would cancel the caller or end the event loop."""
    if isinstance(error, Exception) and not isinstance(
        error, StopIteration | concurrent.futures.CancelledError
    ):
        return error
    replaced = RuntimeError(f"a call in a worker thread raised {type(error).__name__}")
    replaced.__cause__ = error
    return replaced


LOOKUP_THREADS: Final = WorkerThreads(8, "aioproducer looks up names")
"""Name lookups of all producers, at most one per name. A silent name server blocks only the thread of its name."""
CALL_THREADS: Final = WorkerThreads(8, "aioproducer calls")
"""Calls of all producers without a time limit: callables of the application, token endpoints, Kerberos."""
WORK_THREADS: Final = WorkerThreads(2, "aioproducer works")
"""Short work of all producers: TLS contexts, SCRAM, large metadata. Blocked calls cannot delay this work."""
