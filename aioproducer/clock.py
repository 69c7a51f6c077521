"""The wall clock, in Kafka's unit. Durations and deadlines use the event loop's clock instead."""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop


def wall_ms() -> int:
    """Return the milliseconds since the epoch, as Kafka's CreateTime counts them."""
    return time.time_ns() // 1_000_000


class TurnClock:
    """The wall clock, read once per turn of an event loop.

    To read it for every record would cost a tenth of appending one. Where a turn is long, because somebody
    sends many records without an await, whoever keeps the clock says `forget` now and then.
    """

    __slots__ = ("_loop", "_read_at_ms")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._read_at_ms = 0

    def now_ms(self) -> int:
        """Return the time of this turn."""
        if not self._read_at_ms:
            self._read_at_ms = wall_ms()
            self._loop.call_soon(self.forget)
        return self._read_at_ms

    def forget(self) -> None:
        """Read the clock again, the next time that somebody asks."""
        self._read_at_ms = 0
