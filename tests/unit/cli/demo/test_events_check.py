from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from aioproducer._core.records.decode import DecodedRecord
from aioproducer.cli.demo.events import Check, Events
from aioproducer.types import RecordMetadata

KEYS = [b"ada", b"bob", b"ada", b"ada"]
EVENTS = Events(keys=KEYS, values=[b'{"number":%d,"event":"x"}' % number for number in range(len(KEYS))])
WHERE = [(0, 10), (1, 20), (0, 11), (0, 12)]
"""Partition and offset of each."""


def record(number: int, *, offset: int | None = None, key: bytes | None = None) -> DecodedRecord:
    offset = WHERE[number][1] if offset is None else offset
    return DecodedRecord(offset, 0, key or KEYS[number], EVENTS.values[number], ())


def flaws(
    by_partition: Mapping[int, Sequence[DecodedRecord]], *, acknowledged_offsets: bool = True
) -> dict[str, int]:
    acknowledged = [
        RecordMetadata("t", partition, offset if acknowledged_offsets else -1, 0, log_append_time=False)
        for partition, offset in WHERE
    ]
    check = Check(EVENTS, acknowledged)
    for partition, records in by_partition.items():
        check.see(partition, records)
    assert check.seen == sum(map(len, by_partition.values()))
    return check.flaws()


def test_what_is_as_it_was_sent_has_no_flaws() -> None:
    assert flaws({0: [record(0), record(2), record(3)], 1: [record(1)]}) == {}


def test_a_record_that_was_delivered_at_an_unknown_offset_may_be_anywhere_in_its_partition() -> None:
    by_partition = {0: [record(0), record(2), record(3, offset=99)], 1: [record(1)]}
    assert flaws(by_partition, acknowledged_offsets=False) == {}
    assert flaws(by_partition) == {"not where acknowledged": 1}


@pytest.mark.parametrize(
    ("by_partition", "found"),
    [
        ({0: [record(0)], 1: [record(1)]}, {"lost": 2}),
        ({}, {"lost": 4}),
        ({0: [record(0), record(2), record(3), record(3, offset=13)], 1: [record(1)]}, {"doubled": 1}),
        ({0: [record(0), record(2), record(3)], 1: [record(1)] * 300}, {"doubled": 299}),
        ({0: [record(2), record(0), record(3)], 1: [record(1)]}, {"out of order": 1}),
        (
            {0: [record(0), record(2)], 1: [record(1), record(3)]},
            {"not where acknowledged": 1, "out of order": 1},
        ),
        ({0: [record(0), record(2), record(3, key=b"eve")], 1: [record(1)]}, {"altered": 1}),
        (
            {
                0: [record(0), record(2), record(3)._replace(value=b'{"number":3,"event":"y"}')],
                1: [record(1)],
            },
            {"altered": 1},
        ),
        (
            {
                0: [record(0), record(2), record(3)],
                1: [record(1), record(1)._replace(value=b"hello"), record(1)._replace(value=b'{"number":4,')],
            },
            {"never sent": 2},
        ),
    ],
)
def test_every_flaw_is_counted(
    by_partition: Mapping[int, Sequence[DecodedRecord]], found: dict[str, int]
) -> None:
    assert flaws(by_partition) == found
