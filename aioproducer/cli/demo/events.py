"""The records of the demo: a day of a shop's click stream, as often as it takes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from itertools import cycle, islice
from typing import Self

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
