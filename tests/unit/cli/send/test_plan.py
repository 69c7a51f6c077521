from __future__ import annotations

import pytest

from aioproducer.cli.send.decoding import Fields
from aioproducer.cli.send.input_framing import LengthPrefixed, Lines
from aioproducer.cli.send.json_input import JsonInput
from aioproducer.cli.send.plan import Format, Outcome, Plan
from aioproducer.config import ProducerConfig
from aioproducer.errors import DeliveryTimeout, RecordTooLarge

PLAN = Plan(config=ProducerConfig(bootstrap_servers="a:1"), topic="orders")


@pytest.mark.parametrize(
    ("form", "unit", "framing"),
    [("lines", "line", Lines), ("json", "line", JsonInput), ("length-prefixed", "record", LengthPrefixed)],
)
def test_each_format_has_its_framing_and_its_unit(form: str, unit: str, framing: type) -> None:
    format_ = Format(name=form)
    assert format_.unit == unit
    assert type(format_.framing(10)()) is framing


def test_each_format_has_its_decoding() -> None:
    assert Format().decode({0})([b"a=1"]).values == [b"a=1"]
    assert Format(key_separator=b"=").decode({0})([b"a=1"]).keys == [b"a"]
    by_json = Format(name="json", fields=Fields(partition="p"))
    assert by_json.decode({0, 1})([b'{"p": 1}', b'{"p": 2}']).bad == [
        (1, "p = 2: the topic has the partitions 0 to 1")
    ]
    told = by_json.decode({0, 1}, skips=True)([b'{"p": 2}', b'{"p": 1}'])
    assert (told.rows, told.partitions, len(told.bad)) == ([1], [1], 1)
    told = Format(key_separator=b"=").decode({0}, skips=True)([b"a", b"b=2", b"c"])
    assert (told.rows, told.keys, [at for at, _ in told.bad]) == ([1], [b"b"], [0, 2])


def test_an_outcome_counts_failures_by_kind_and_what_is_in_doubt() -> None:
    outcome = Outcome(PLAN, sent=6, acknowledged=2)
    doubtful = DeliveryTimeout("first")
    doubtful.possibly_persisted = True
    for error in (doubtful, DeliveryTimeout("second"), RecordTooLarge("large")):
        outcome.fail(error)
    assert outcome.failures == {"DeliveryTimeout: first": 2, "RecordTooLarge: large": 1}
    assert (outcome.doubtful, outcome.unknown) == (1, 1)


@pytest.mark.parametrize(
    ("sent", "stopped", "complete"), [(2, None, True), (3, None, False), (2, "interrupted", False)]
)
def test_it_is_complete_if_nothing_is_left(sent: int, stopped: str | None, complete: bool) -> None:
    assert Outcome(PLAN, sent=sent, acknowledged=2, stopped=stopped).complete is complete


def test_constants_are_added_by_every_format() -> None:
    for name in ("lines", "json", "length-prefixed"):
        columns = Format(name=name, key=b"k", headers=(("a", b"1"),)).decode({0})([b"{}"])
        assert (columns.keys, columns.headers) == ([b"k"], [[("a", b"1")]])
    columns = Format(key_separator=b":", headers=(("a", b"1"),)).decode({0})([b"k:v"])
    assert (columns.keys, columns.values, columns.headers) == ([b"k"], [b"v"], [[("a", b"1")]])
