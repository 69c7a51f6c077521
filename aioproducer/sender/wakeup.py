"""What the sender sleeps on: an event with a deadline, at the price of one Future."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Many may ring it, one task waits for it; ringing it twice is ringing it once.

    An `asyncio.Event` under `asyncio.timeout_at` does the same and costs three times as much, on a
    path that every request takes. The timer stays from one wait to the next, since deadlines are most
    often later than the one it is set for: it rings too early once in a while, instead of being set each time.
    """

    __slots__ = ("_loop", "_rung", "_timer", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rung = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """End the present wait, or the next one before it begins."""
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, until: float | None) -> None:
        """Wait until it rings, or until the loop's clock reads *until* at the latest; None waits for the ring alone."""
        if not self._rung:
            if until is not None and (self._timer is None or until < self._timer.when()):
                self.forget()
                self._timer = self._loop.call_at(until, self._time_is_up)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._rung = False

    def forget(self) -> None:
        """Let the timer go; the next wait that has a deadline sets it again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        self.ring()
