"""Who is due when, for many things with deadlines that are nearly always met."""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

T = TypeVar("T")

TICK_S = 0.1
"""Deadlines are kept to this grain: something is due at most one tick after its deadline, never before."""


class Deadlines(Generic[T]):
    """A timer wheel without the wheel: one ordered set of items per tick, and a heap of the ticks in use.

    Nearly every batch is delivered long before its deadline, so adding and discarding must be cheap
    (a heap of batches would keep the delivered ones until their time came, two minutes of them), and
    looking for what is due must not touch what is not.
    """

    __slots__ = ("_by_tick", "_ticks")

    def __init__(self) -> None:
        self._by_tick: dict[int, dict[T, None]] = {}
        self._ticks: list[int] = []

    def add(self, item: T, deadline: float) -> None:
        """Let *item* be due at *deadline*."""
        tick = math.ceil(deadline / TICK_S)
        items = self._by_tick.get(tick)
        if items is None:
            self._by_tick[tick] = {item: None}
            heapq.heappush(self._ticks, tick)
        else:
            items[item] = None

    def discard(self, item: T, deadline: float) -> None:
        """Forget *item*, added with *deadline*, if it is still here."""
        items = self._by_tick.get(math.ceil(deadline / TICK_S))
        if items is not None:
            items.pop(item, None)

    def next_due(self) -> float | None:
        """Return when the next item is due, or None if there is none."""
        while self._ticks:
            tick = self._ticks[0]
            if self._by_tick[tick]:
                return tick * TICK_S
            heapq.heappop(self._ticks)
            del self._by_tick[tick]
        return None

    def take_due(self, now: float) -> list[T]:
        """Remove and return what is due at *now*, by tick, and within it as it was added."""
        due: list[T] = []
        while (at := self.next_due()) is not None and at <= now:
            due.extend(self._by_tick.pop(heapq.heappop(self._ticks)))
        return due
