"""An event loop whose clock jumps: a two-minute timeout takes a millisecond.

When no callback is ready and the next event is a timer, this loop moves its clock to that timer instead of
waiting. Tests of timeouts, backoffs and lingers run at full speed, are independent of the machine's load, and
see exact times:

    @in_virtual_time
    async def test_send_fails_at_its_deadline_when_a_broker_freezes() -> None:
        async with Cluster(transport="memory") as cluster: ...

Limits:

- The loop cannot see bytes in the kernel, so it refuses sockets; the cluster's memory transport moves bytes
  within the loop.
- Worker threads (`asyncio.to_thread`, `run_in_executor`, `anyio.to_thread.run_sync`) need real time: the clock stands
  still while a thread runs, and the loop waits for the thread.
- Without ready callbacks, timers and worker threads no task can continue: the loop raises `Deadlock`, which
  names each task and its line.

`time.time()` and `wall_ms()` are unchanged: record timestamps are wall-clock times.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from types import AsyncGeneratorType, CoroutineType
from typing import Any, NoReturn, ParamSpec, TypeVar, TypeVarTuple

import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

THREAD_TIMEOUT_S = 30.0
"""Longest time that the loop waits for a worker thread, in real seconds."""


_NO_SOCKETS = "virtual time cannot wait for a socket; use Cluster(transport='memory')"
_LINKS = (CoroutineType, AsyncGeneratorType)


class Deadlock(RuntimeError):
    """Raised when every task waits for an event that cannot happen."""


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Run *main* on a new loop with virtual time, as `asyncio.run` does with real time.

    Raises: Deadlock, and the exceptions of *main*.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop, debug=debug) as runner:
        return runner.run(main)


def in_virtual_time(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a plain function that runs the coroutine function in virtual time."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(function(*args, **kwargs))

    return wrapper


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time, which starts at 0."""

    def __init__(self) -> None:
        self._now = 0.0
        self._running_threads = 0
        super().__init__(_VirtualSelector(self))
        self._update_resolution()

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def advance(self, timeout_s: float | None) -> None:
        """Move the clock by *timeout_s* to the next timer. Raises: Deadlock if *timeout_s* is None."""
        if timeout_s is None:
            raise Deadlock(_describe(asyncio.all_tasks(self)))
        self._now += timeout_s
        self._update_resolution()

    def _update_resolution(self) -> None:
        # asyncio runs timers early, by up to the clock's resolution of 1 ns. The virtual clock stands still during
        # callbacks, so a callback that sets another timer for the rest would run early for ever.
        self._clock_resolution = math.ulp(self._now)

    def has_running_thread(self) -> bool:
        """Return True if a worker thread may still call back."""
        if self._running_threads:
            return True
        if threading.active_count() == 1:
            return False
        # anyio's threads bypass run_in_executor; the waiting task is inside of anyio's function.
        waits = anyio.to_thread.run_sync.__code__
        return any(
            isinstance(frame, CoroutineType) and frame.cr_code is waits
            for task in asyncio.all_tasks(self)
            for frame in _await_chain(task)
        )

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run *func* in a thread; the clock stands still until *func* returns."""
        future = super().run_in_executor(executor, func, *args)
        self._running_threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        """Wait for the threads of the default executor, in another thread."""
        self._running_threads += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._running_threads -= 1

    async def create_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise RuntimeError before a socket is opened."""
        raise RuntimeError(_NO_SOCKETS)

    async def create_server(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise RuntimeError before a socket is opened."""
        raise RuntimeError(_NO_SOCKETS)

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._running_threads -= 1


class _VirtualSelector(selectors.DefaultSelector):
    """Selector that polls instead of waiting, and moves the virtual clock."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.get_map():  # the first file is the pipe by which threads wake the loop
            raise RuntimeError(_NO_SOCKETS)
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if not self._loop.has_running_thread():
            self._loop.advance(timeout)
            return ready
        ready = super().select(THREAD_TIMEOUT_S)
        if not ready:
            raise Deadlock(f"a worker thread has been running for {THREAD_TIMEOUT_S:.0f} real seconds")
        return ready


def _await_chain(task: asyncio.Task[Any]) -> Iterator[Any]:
    """Yield the coroutines and async generators of *task*, from the outermost to the innermost."""
    link: Any = task.get_coro()
    while link is not None:
        if isinstance(link, CoroutineType):
            yield link
            link = link.cr_await
        elif isinstance(link, AsyncGeneratorType):
            yield link
            link = link.ag_await
        else:  # `async for` awaits a step of a generator; only the garbage collector links it to the generator
            links = (each for each in gc.get_referents(link) if isinstance(each, _LINKS))
            link = next(links, None)


def _describe(tasks: set[asyncio.Task[Any]]) -> str:
    lines = []
    for task in tasks:
        *_, innermost = _await_chain(task)
        is_coroutine = isinstance(innermost, CoroutineType)
        frame = innermost.cr_frame if is_coroutine else innermost.ag_frame
        where = "" if frame is None else f" at {frame.f_code.co_filename}:{frame.f_lineno}"
        lines.append(f"  {task.get_name()} in {innermost.__qualname__}{where}")
    return "\n".join(["nothing is ready, no timer is set, and these tasks wait for ever:", *sorted(lines)])
