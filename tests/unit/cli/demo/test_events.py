from __future__ import annotations

import json
from collections import Counter

import pytest

from aioproducer.cli.demo.events import Events, number_of

DAY = 2408
"""How many events the file has."""


def test_each_event_is_numbered_json_keyed_by_its_customer() -> None:
    events = Events.load(DAY)
    assert len(events) == len(events.keys) == DAY
    for number, (key, value) in enumerate(zip(events.keys, events.values, strict=True)):
        told = json.loads(value)
        assert told["number"] == number == number_of(value)
        assert told["customer"].encode() == key


def test_the_day_repeats_and_no_two_events_are_equal() -> None:
    events = Events.load(2 * DAY + 1)
    first, second = (json.loads(events.values[number]) for number in (7, DAY + 7))
    assert second | {"number": 7} == first
    assert events.keys[:DAY] == events.keys[DAY:-1]
    assert len(set(events.values)) == len(events)


def test_the_data_is_worth_sending() -> None:
    events = Events.load(DAY)
    kinds = Counter(json.loads(value)["event"] for value in events.values)
    assert len(kinds) >= 10
    assert len(set(events.keys)) >= 200
    assert 300 * 1024 < sum(map(len, events.values)) < 600 * 1024


def test_a_part_has_the_numbers_asked_for() -> None:
    part = Events.load(20).part(5, 8)
    assert list(map(number_of, part.values)) == [5, 6, 7]
    assert len(part.keys) == 3


@pytest.mark.parametrize(
    "value", [None, b"", b"{}", b'{"number":}', b'{"number":-1,', b'x{"number":1,"a":2}', b'{"number":1}']
)
def test_what_is_not_ours_has_no_number(value: bytes | None) -> None:
    assert number_of(value) == -1
