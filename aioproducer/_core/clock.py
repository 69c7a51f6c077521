"""Clocks and event-loop helpers: wall-clock time in ms, the running event loop, yielding, and a timed wake-up.

Durations use the event loop's clock.
"""

from __future__ import annotations

import os
import sys
import time
from asyncio import AbstractEventLoop, BaseEventLoop, Future, Handle, TimerHandle, get_running_loop, sleep
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from math import inf
from operator import setitem
from threading import get_ident
from typing import Any, Final

from aioproducer._core.acceleration import ClockFields, fastest

TURN_AFTER_S: Final = 0.01
"""Longest time that `enqueue` calls may hold the event loop, in seconds."""
TURN_AFTER_BYTES: Final = 2 * 1024 * 1024
"""Bytes (after compression) that `enqueue` calls may append before they yield; an idle broker waits for these bytes."""
TURN_AFTER_RECORDS: Final = 5_000
"""Records that `enqueue` calls may append before they yield: 600 KB of values of 100 bytes, which take 2 ms.

The count of compressed records is multiplied by their ratio: earlier yields cost worker threads more waits for the GIL."""
ITERATIONS: Final = 3
"""Event-loop iterations per yield: the sender writes, responses release memory, and the sender uses the memory."""

TIMER_ITERATIONS: Final = 3
"""Most iterations of the event loop between a timer and the turn of the sender. A timer of the program that is due at the
same moment resumes a task, the task starts a second task, and the second task appends a record."""


def ready_handles(loop: AbstractEventLoop) -> deque[Handle] | None:
    """Return the queue of the handles that *loop* runs next; None if the loop has another queue."""
    ready = getattr(loop, "_ready", None) if isinstance(loop, BaseEventLoop) else None
    return ready if type(ready) is deque else None


def wall_ms() -> int:
    """Return the milliseconds since the epoch, as Kafka's CreateTime counts them."""
    return time.time_ns() // 1_000_000


class LoopClock(ClockFields):
    """Wall clock, read at most twice per millisecond in an iteration of an event loop.

    Reading the clock for every record would cost a tenth of an append. The handle that calls `forget` costs as much as
    a hundred readings. In a long iteration, where a task appends many records without an await, the accumulator calls
    `forget`.
    """

    __slots__ = ("_loop", "_read_ms")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._read_ms = 0
        self.known_ms: int = 0

    def now_ms(self) -> int:
        """Return the time in milliseconds; the second reading in a millisecond holds for the rest of the iteration."""
        if self.known_ms:
            return self.known_ms
        now = wall_ms()
        if now == self._read_ms:
            # `call_soon` is first: an interrupted call would otherwise keep the time forever.
            self._loop.call_soon(self.forget)
            self.known_ms = now
        self._read_ms = now
        return now

    def fresh_ms(self) -> int:
        """Read the clock now, for the first record of a batch: the first record is usually alone in its iteration."""
        now = self._read_ms = wall_ms()
        if self.known_ms:
            self.known_ms = now  # later calls in this iteration return no earlier time
        return now

    def forget(self) -> None:
        """Read the clock again at the next call."""
        self.known_ms = 0


class YieldPolicy:
    """Decides when `enqueue` yields to the event loop: after 10 ms, 2 MiB or 5,000 records without a turn of the sender.

    `check` runs once per opened or full batch. Scheduling a callback instead would cost a lone record one more iteration.
    With a long linger a call may yield without effect.
    """

    __slots__ = ("_began_at", "_began_with", "should_yield")

    _began_with: int
    """Free memory at `_began_at`, in bytes; unset before the first `check`."""

    def __init__(self) -> None:
        self.should_yield: bool = False
        """True if the next call that may wait has to yield by `yield_to_loop`."""
        self._began_at: float | None = None
        """Time of the first batch opened since the sender's last turn (loop clock), or None."""

    def check(self, now: float, free: int, rate: float, size: float) -> None:
        """Update `should_yield` from the time *now*, the *free* memory and the *size* of a record, both in bytes.

        *rate* is the compression ratio of the topic. The result is an estimate: all topics share the memory, and memory
        returned meanwhile is not counted.
        """
        if self._began_at is None:
            self._began_with, self._began_at = free, now
            return
        appended = self._began_with - free
        most = min(TURN_AFTER_BYTES, TURN_AFTER_RECORDS * size)
        if now - self._began_at >= TURN_AFTER_S or appended * rate >= most:
            self.should_yield = True

    async def yield_to_loop(self) -> None:
        """Yield to the event loop. One call at a time yields; other calls append meanwhile."""
        self.should_yield = False
        for _ in range(ITERATIONS):
            await sleep(0)

    def reset(self) -> None:
        """Note that the sender has its turn."""
        self._began_at, self.should_yield = None, False


class Wakeup:
    """A cheap asyncio.Event with a deadline, for one waiting task. Repeated `ring` calls coalesce.

    An `asyncio.Event` under `asyncio.timeout_at` costs three times as much, for every request. Timers stay from one wait to
    the next, because later deadlines are usually later than the set timers, so the wake-up may ring too early. A timer for
    an earlier deadline is set beside the later timers: cancelled timers stay in asyncio's heap and slow down every timer.
    """

    __slots__ = (
        "_context",
        "_is_paused",
        "_loop",
        "_ready",
        "_rings_at",
        "_timers",
        "_waiter",
        "has_rung",
        "on_time",
    )

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._ready = ready_handles(loop)
        self._context = copy_context()  # the context of the creator, because other tasks set the timers
        self._is_paused = False
        self.has_rung: bool = False
        """True from a ring until the waiting task, or `consume`, receives the ring."""
        self._timers: list[tuple[float, TimerHandle]] = []
        """Timers with their times, the earliest last. A uvloop handle that is due immediately has no time."""
        self._rings_at = inf
        self._waiter: Future[None] | None = None
        self.on_time: Callable[[], None] | None = None
        """Callable in place of `ring` at the time of `ring_at`; None for `ring`."""

    def ring(self) -> None:
        """End the present wait; without a present wait, the next wait ends immediately."""
        self.has_rung = True
        if not self._is_paused and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pause(self) -> None:
        """Defer rings until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Deliver a ring that was deferred since `pause`, if any."""
        self._is_paused = False
        if self.has_rung:
            self.ring()

    def consume(self) -> bool:
        """Clear a pending ring on behalf of the waiting task, which keeps waiting. Return False if no task waits."""
        if self._waiter is None or self._waiter.done():
            return False
        self.has_rung = False
        return True

    def ring_at(self, until: float) -> None:
        """Ring, or call `on_time`, at *until* (loop clock) or sometimes earlier; never at infinity."""
        if until < self._rings_at:
            timer = self._loop.call_at(until, self._time_is_up, until, context=self._context)
            self._timers.append((until, timer))
            # `_rings_at` is set last, so an exception leaves an extra timer and never loses a timer.
            self._rings_at = until

    async def wait(self, until: float) -> None:
        """Wait for a ring, at most until *until* (loop clock); a timer may ring earlier."""
        if not self.has_rung:
            self.ring_at(until)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self.has_rung = False

    def forget(self) -> None:
        """Cancel the timers; the next wait with a deadline sets a new timer."""
        for _, timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._rings_at = inf

    def _time_is_up(self, until: float) -> None:
        # If several timers are due, uvloop may run them in any order.
        while self._timers and self._timers[-1][0] <= until:
            self._timers.pop()
        self._rings_at = self._timers[-1][0] if self._timers else inf
        self._ring_after(TIMER_ITERATIONS)

    def _ring_after(self, iterations: int) -> None:
        """Ring, or call `on_time`, after *iterations* of the event loop, or once no other handle is ready."""
        if iterations and (self._ready is None or self._ready):
            self._loop.call_soon(self._ring_after, iterations - 1)
        else:
            (self.on_time or self.ring)()


def running_loop_of(loop: AbstractEventLoop) -> Callable[[], AbstractEventLoop]:
    """Return `get_running_loop`, or a faster function for *loop*, which runs in this thread.

    Before Python 3.12 every call of `get_running_loop` calls getpid to detect a forked child. The faster function
    detects a forked child by a fork hook.
    """
    if sys.version_info >= (3, 12):
        return get_running_loop
    return running_loop_without_getpid(loop, PROCESS, get_running_loop)


def python_running_loop_without_getpid(
    loop: Any, process: list[object], ask: Callable[[], AbstractEventLoop]
) -> Callable[[], AbstractEventLoop]:
    """Return a function that returns *loop* if *loop* runs in this thread, and otherwise calls *ask*.

    A fork replaces the one item of *process*. The twin in C compares *loop* with the running loop
    that asyncio keeps for the thread, and therefore supports every kind of event loop.
    """
    present = process[0]
    if not hasattr(loop, "_thread_id"):  # *loop* is no BaseEventLoop
        return ask

    def running_loop() -> AbstractEventLoop:
        # `BaseEventLoop.run_forever` sets `_thread_id`. GUI event loops override `run_forever` and leave None, and
        # greenlets have their own thread ids: `ask` decides for GUI event loops and greenlets.
        if loop._thread_id == get_ident() and process[0] is present:  # noqa: SLF001
            return loop  # type: ignore[no-any-return]
        return ask()

    return running_loop


running_loop_without_getpid: Final = fastest(
    "running_loop_without_getpid", python_running_loop_without_getpid
)


PROCESS: Final[list[object]] = [object()]
"""List with a token of this process; a fork replaces the token in the child."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: setitem(PROCESS, 0, object()))
