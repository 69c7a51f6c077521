"""The wall clock, in Kafka's unit. Durations and deadlines use the event loop's clock instead."""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop


def wall_ms() -> int:
    """Return the milliseconds since the epoch, as Kafka's CreateTime counts them."""
    return time.time_ns() // 1_000_000


class LoopClock:
    """The wall clock, read once per iteration of an event loop.

    To read it for every record would cost a tenth of appending one. Where an iteration is long, because somebody
    sends many records without an await, whoever keeps the clock says `forget` now and then.
    """

    __slots__ = ("_loop", "known_ms")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.known_ms: int = 0
        """The time of this iteration, or 0 if nobody has asked yet."""

    def now_ms(self) -> int:
        """Return the time of this iteration."""
        if not self.known_ms:
            self.known_ms = wall_ms()
            self._loop.call_soon(self.forget)
        return self.known_ms

    def fresh_ms(self) -> int:
        """Read the clock whatever is known: for those who are few, and most often alone in their iteration."""
        now = wall_ms()
        if self.known_ms:
            self.known_ms = now  # who asks later in this iteration is told nothing earlier
        return now

    def forget(self) -> None:
        """Read the clock again, the next time that somebody asks."""
        self.known_ms = 0
