"""The records of the demo, a day of a shop's click stream as often as it takes, and a check of what is read back."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import cycle, islice
from typing import Self

from aioproducer._core.records.decode import DecodedRecord
from aioproducer.types import RecordMetadata

_NUMBER = re.compile(rb'\{"number":(\d{1,9}),')


@dataclass(frozen=True, slots=True)
class Events:
    """Records as columns: JSON values, and the customers that they are about as keys."""

    keys: list[bytes]
    values: list[bytes]

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, stop: int) -> Events:
        """Return the events from number *start* to before *stop*."""
        return Events(self.keys[start:stop], self.values[start:stop])

    @classmethod
    def load(cls, count: int) -> Self:
        """Return *count* events, numbered from 0 in their values: so they differ, though the day repeats."""
        day = files("aioproducer.cli").joinpath("data", "clicks.jsonl").read_bytes().splitlines()
        customers = [json.loads(line)["customer"].encode() for line in day]
        return cls(
            keys=list(islice(cycle(customers), count)),
            values=[
                b'{"number":%d,%b' % (number, line[1:])
                for number, line in enumerate(islice(cycle(day), count))
            ],
        )


def number_of(value: bytes | None) -> int:
    """Return the number of an event, or -1 if it is none of ours."""
    match = _NUMBER.match(value or b"")
    return int(match[1]) if match else -1


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
