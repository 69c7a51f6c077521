"""confluent-kafka's Producer.produce with on_delivery: a call and a callback per record."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from typing import Any, ClassVar

from benchmarks.clients.confluent import flush
from benchmarks.clients.confluent_produce import ConfluentProduce
from benchmarks.clients.futures import TURN_EVERY, repeated
from benchmarks.payload import Window
from benchmarks.settings import Work

OnDelivery = Callable[[Any, Any], None]


class ConfluentCallback(ConfluentProduce):
    """Client that receives the outcome of each record, as with Futures."""

    workloads: ClassVar = frozenset({Work.FIRE, Work.CALLBACKS, Work.GATHER})

    async def fire(self, window: Window) -> None:
        """Append records one by one, then wait for the outcome of each."""
        await self.gather(window, len(window))

    async def callbacks(self, window: Window) -> None:
        """Append records one by one, each with a callback, and wait until all callbacks were called."""
        await self.gather(window, len(window))

    async def outcomes(self, window: Window) -> list[tuple[int, int]]:
        """Send *window* and return the partition and the offset of each record."""
        places: list[tuple[int, int]] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                raise RuntimeError(error)
            places.append((message.partition(), message.offset()))

        self._hand_over(window, len(window), delivered)
        return places

    async def gather(self, window: Window, count: int) -> None:
        """Append *count* records one by one, then wait until all callbacks were called."""
        left, errors = count, []

        def delivered(error: Any, message: Any) -> None:
            nonlocal left
            if error is not None:
                errors.append(error)
            left -= 1

        self._hand_over(window, count, delivered)
        if errors or left:
            raise RuntimeError(f"{left} records without an outcome, {len(errors)} failed: {errors[:1]}")

    def _hand_over(self, window: Window, count: int, delivered: OnDelivery) -> None:
        """Call `produce` for each record, poll every `TURN_EVERY` records, and flush."""
        topic, produce, poll = self.topic, self._producer.produce, self._producer.poll
        if window.keys is None and window.headers is None:
            for number, value in enumerate(islice(cycle(window.values), count), 1):
                try:
                    produce(topic, value, on_delivery=delivered)
                except BufferError:
                    self._insist(value, on_delivery=delivered)
                if not number % TURN_EVERY:
                    poll(0)
        else:
            for number, (value, key, headers) in enumerate(repeated(window, count), 1):
                try:
                    produce(topic, value, key, headers=headers, on_delivery=delivered)  # type: ignore[arg-type] # a list is invariant
                except BufferError:
                    self._insist(value, key, headers=headers, on_delivery=delivered)
                if not number % TURN_EVERY:
                    poll(0)
        flush(self._producer)
