"""An event loop whose clock jumps: a two-minute timeout takes a millisecond.

When nothing is ready to run and the next thing to happen is a timer, this loop moves its clock to that
timer instead of waiting. So a test of timeouts, backoffs and lingers runs at full speed, takes no chances
with a busy machine, and sees exact times:

    @in_virtual_time
    async def test_a_frozen_broker_is_given_up_after_the_delivery_timeout() -> None:
        async with Cluster(transport="memory") as cluster: ...

Three things it has to be careful about:

- Bytes in the kernel are invisible to it, so real sockets are refused; the cluster's memory transport
  moves its bytes within the loop.
- Work in a thread (`asyncio.to_thread`, `run_in_executor`, `anyio.to_thread.run_sync`) takes real time:
  while a thread is out the clock stands still and the loop waits for it.
- When nothing is ready, no timer is set and no thread is out, nothing can ever happen again: `Deadlock` is
  raised and says which task waits where, instead of a hanging test.

`time.time()` and `wall_ms()` are not touched: record timestamps stay those of the wall.
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

THREAD_PATIENCE_S = 30.0
"""How long, in real seconds, a worker thread may stay out with nothing else to do."""


_NO_SOCKETS = "virtual time cannot wait for a socket; use Cluster(transport='memory')"
_LINKS = (CoroutineType, AsyncGeneratorType)


class Deadlock(RuntimeError):
    """Every task waits for something that can never happen."""


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Run *main* on a loop of its own with virtual time, as `asyncio.run` does with real time.

    Raises: Deadlock, and whatever *main* raises.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop, debug=debug) as runner:
        return runner.run(main)


def in_virtual_time(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Turn a coroutine function into a plain function: calling it runs it in virtual time."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(function(*args, **kwargs))

    return wrapper


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at time 0 and never waits for a timer."""

    def __init__(self) -> None:
        self._now = 0.0
        self._threads_out = 0
        super().__init__(_JumpingSelector(self))
        self._jumped()

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def pass_time(self, timeout_s: float | None) -> None:
        """Jump to the next timer, *timeout_s* away; None means that there is none."""
        if timeout_s is None:
            raise Deadlock(_describe(asyncio.all_tasks(self)))
        self._now += timeout_s
        self._jumped()

    def _jumped(self) -> None:
        # asyncio calls a timer that is less than this ahead. It is the clock's resolution, a nanosecond; but this clock stands
        # still: whoever was called too early, and sets another timer for the rest, would be called early for ever.
        self._clock_resolution = math.ulp(self._now)

    def a_thread_is_out(self) -> bool:
        """Whether a worker thread may still call back."""
        if self._threads_out:
            return True
        if threading.active_count() == 1:
            return False
        # anyio's threads take no part in run_in_executor; but who waits for one stands in its function.
        waits = anyio.to_thread.run_sync.__code__
        return any(
            isinstance(frame, CoroutineType) and frame.cr_code is waits
            for task in asyncio.all_tasks(self)
            for frame in _await_chain(task)
        )

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run *func* in a thread; the clock stands still until it is back."""
        future = super().run_in_executor(executor, func, *args)
        self._threads_out += 1
        future.add_done_callback(self._thread_is_back)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        """Wait for the threads of the default executor, by means of one more thread."""
        self._threads_out += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._threads_out -= 1

    async def create_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse, before a socket is opened."""
        raise RuntimeError(_NO_SOCKETS)

    async def create_server(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse, before a socket is opened."""
        raise RuntimeError(_NO_SOCKETS)

    def _thread_is_back(self, _: asyncio.Future[Any]) -> None:
        self._threads_out -= 1


class _JumpingSelector(selectors.DefaultSelector):
    """Polls where the loop asks it to wait, and lets the virtual time pass."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.get_map():  # the first is the pipe through which threads wake the loop
            raise RuntimeError(_NO_SOCKETS)
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if not self._loop.a_thread_is_out():
            self._loop.pass_time(timeout)
            return ready
        ready = super().select(THREAD_PATIENCE_S)
        if not ready:
            raise Deadlock(f"a worker thread has been running for {THREAD_PATIENCE_S:.0f} real seconds")
        return ready


def _await_chain(task: asyncio.Task[Any]) -> Iterator[Any]:
    """Yield the coroutines and async generators of *task*, from the outermost to where it waits."""
    link: Any = task.get_coro()
    while link is not None:
        if isinstance(link, CoroutineType):
            yield link
            link = link.cr_await
        elif isinstance(link, AsyncGeneratorType):
            yield link
            link = link.ag_await
        else:  # `async for` waits for a step of a generator: what it is a step of, only the collector knows
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
