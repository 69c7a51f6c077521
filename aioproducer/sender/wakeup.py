"""What the sender sleeps on: an event with a deadline, at the price of one Future."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Many may ring it, one task waits for it; ringing it twice is ringing it once.

    An `asyncio.Event` under `asyncio.timeout_at` does the same and costs three times as much, on a
    path that every request takes.
    """

    __slots__ = ("_loop", "_rung", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """End the present wait, or the next one before it begins."""
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, until: float | None) -> None:
        """Wait until it rings, or until the loop's clock reads *until*; None waits for the ring alone."""
        if not self._rung:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_at(until, self.ring) if until is not None else None
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        self._rung = False
