"""A check that what is read back is what was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aioproducer.cli.demo.events import Events, number_of
from aioproducer.records.decode import DecodedRecord
from aioproducer.types import RecordMetadata


class Check:
    """Compares each record that is read with the event that was sent, and with what its acknowledgement said.

    Records are shown to it partition by partition, in order of offset; events were sent in order of their numbers.
    """

    def __init__(self, events: Events, acknowledged: Sequence[RecordMetadata]) -> None:
        self.seen: int = 0
        self._events = events
        self._acknowledged = acknowledged
        self._times_seen = bytearray(len(events))  # 255 times is as wrong as any more
        self._last: dict[bytes, tuple[int, int]] = {}  # by key: partition and number
        self._flaws: Counter[str] = Counter()

    def see(self, partition: int, records: Sequence[DecodedRecord]) -> None:
        """Look at the next records of *partition*."""
        self.seen += len(records)
        for record in records:
            number = number_of(record.value)
            if not 0 <= number < len(self._events):
                self._flaws["never sent"] += 1
                continue
            self._times_seen[number] = min(self._times_seen[number] + 1, 255)
            if self._times_seen[number] > 1:
                self._flaws["doubled"] += 1
                continue
            key = self._events.keys[number]
            if record.value != self._events.values[number] or record.key != key:
                self._flaws["altered"] += 1
            where = self._acknowledged[number]
            if partition != where.partition or where.offset not in {-1, record.offset}:
                self._flaws["not where acknowledged"] += 1
            last_partition, last_number = self._last.get(key, (partition, -1))
            if partition != last_partition or number < last_number:
                self._flaws["out of order"] += 1
            self._last[key] = partition, number

    def flaws(self) -> dict[str, int]:
        """Return what is wrong and with how many records, now that all were seen; empty is good."""
        lost = self._times_seen.count(0)
        return {**({"lost": lost} if lost else {}), **self._flaws}
