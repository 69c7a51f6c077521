"""Separation of rows that cannot be sent, and their dead letters."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from aioproducer._core.records.columns import BATCH_OVERHEAD, record_size_bound
from aioproducer.arrow.arrow_columns import Columns
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.spark.bad_rows import (
    AFTER,
    BEFORE,
    DIFFERENCE,
    KEPT_BYTES,
    Limit,
    SplitRows,
    TimeWindow,
    dead_letter_topic,
    outside,
    split_rows,
    time_window,
)
from tests.cases import for_each

HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
TYPES = {
    "topic": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
ALL = Columns(
    value="value",
    key="key",
    headers="headers",
    partition="partition",
    timestamp="timestamp",
    topic_column="topic",
)
DAY_MS = 86_400_000
WINDOWS = {"orders": TimeWindow(), "more": TimeWindow(Limit(DAY_MS, "retention.ms"))}
COUNTS = {"orders": 3, "more": 6}
LARGEST = 4_000


def split(rows: Sequence[dict[str, Any]], columns: Columns = ALL, first: int = 100) -> SplitRows:
    names = columns.names
    piece = pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in names} for row in rows],
        pa.schema({name: TYPES[name] for name in names}),
    )
    settings = ProducerConfig(bootstrap_servers="b:1", max_request_size=LARGEST).batching_settings()
    numbers = range(first, first + len(rows))
    return split_rows(
        piece,
        columns,
        numbers,
        partitions_of=COUNTS.__getitem__,
        window_of=WINDOWS.__getitem__,
        settings=settings,
    )


def reasons(found: SplitRows) -> list[str]:
    return [told(letter)["dead-letter.reason"].decode() for letter in letters(found)]


def letters(found: SplitRows) -> list[dict[str, Any]]:
    return [] if found.letters is None else found.letters.to_pylist()


def told(letter: dict[str, Any]) -> dict[str, bytes]:
    return {each["key"]: each["value"] for each in letter["headers"]}


GOOD = {"topic": "orders", "value": b"v", "partition": 2}


def test_piece_without_bad_rows_is_sent_unchanged() -> None:
    found = split([GOOD, {**GOOD, "partition": None}, {"topic": "orders"}])
    assert found.letters is None
    assert (found.numbers, found.reason) == (range(100, 103), "")
    assert found.good.num_rows == 3


@for_each(
    ("bad", "reason"),
    [
        ({"topic": None}, "column 'topic': there is no topic (null)"),
        ({"topic": "no topic"}, "topic 'no topic' is not a legal name"),
        ({"partition": 3}, "there is no partition 3: 'orders' has 3, from 0"),
        ({"partition": -1}, "there is no partition -1: 'orders' has 3, from 0"),
        (
            {"topic": "more", "timestamp": 0},
            "column 'timestamp': 1970-01-01T00:00:00.000Z is older than topic 'more'",
        ),
        ({"timestamp": -1}, "column 'timestamp': Kafka's timestamps are milliseconds since 1970"),
        ({"headers": [{"key": None, "value": b"x"}]}, "column 'headers': a header has no key (null)"),
        ({"value": b"x" * LARGEST}, "RecordTooLarge: a record for 'orders' takes"),
        ({"topic": None, "value": b"x" * LARGEST}, "column 'topic': there is no topic (null)"),
    ],
)
def test_bad_row_is_separated_from_its_neighbours(bad: dict[str, Any], reason: str) -> None:
    found = split([GOOD, {**GOOD, **bad}, {**GOOD, "topic": "more", "partition": 5}])
    assert found.good.column("topic").to_pylist() == ["orders", "more"]
    assert list(found.numbers) == [100, 102], "a failure behind it has the number of its row"
    (told_reason,) = reasons(found)
    assert told_reason.startswith(reason)
    assert found.reason == told_reason


def test_bad_rows_of_a_piece_are_found_in_order() -> None:
    large = {**GOOD, "value": b"x" * LARGEST}
    late = {**GOOD, "timestamp": -5}
    found = split([large, {**GOOD, "topic": None}, GOOD, late, {**GOOD, "partition": 9}, large, late])
    assert list(found.numbers) == [102]
    assert [each.split()[0] for each in reasons(found)] == [
        "RecordTooLarge:", "column", "column", "there", "RecordTooLarge:", "column",
    ]  # fmt: skip
    assert found.bad == [100, 101, 103, 104, 105, 106]
    assert split([{"topic": None}] * 3).good.num_rows == 0


def test_letter_has_the_row_and_its_destination() -> None:
    own = [{"key": "trace", "value": b"7"}, {"key": None, "value": b"lost"}]
    row = {"topic": "orders", "key": b"k", "value": None, "partition": 9, "headers": own}
    (letter,) = letters(split([row]))
    assert (letter["key"], letter["value"]) == (b"k", None)
    assert letter["headers"][0] == {"key": "trace", "value": b"7"}
    named = told(letter)
    assert list(named) == ["trace", "dead-letter.reason", "dead-letter.topic", "dead-letter.partition"]
    assert (named["dead-letter.topic"], named["dead-letter.partition"]) == (b"orders", b"9")


def test_letter_omits_missing_parts_of_the_destination() -> None:
    (letter,) = letters(split([{"topic": None, "value": b"v"}], dataclasses.replace(ALL, headers=None)))
    assert list(told(letter)) == ["dead-letter.reason"]


def test_letter_of_a_large_row_has_the_first_bytes() -> None:
    row = {
        **GOOD,
        "key": b"k" * 3_000,
        "value": b"v" * 3_000,
        "headers": [{"key": "h", "value": b"h" * 3_000}],
    }
    (letter,) = letters(split([row]))
    assert (letter["key"], letter["value"]) == (b"k" * KEPT_BYTES, b"v" * KEPT_BYTES)
    assert told(letter)["dead-letter.bytes"] == b"6000"
    assert "h" not in told(letter)


@pytest.mark.parametrize("headers", [(), (("h", b"w" * 500),)])
def test_too_large_rows_match_the_producers_limit(headers: tuple[tuple[str, bytes], ...]) -> None:
    """To the byte: a row that it would refuse fails the task."""
    listed = [{"key": name, "value": value} for name, value in headers]
    columns = Columns(value="value", key="key", headers="headers", topic="orders")

    def is_good(size: int) -> bool:
        return not letters(split([{"value": b"v" * size, "key": b"k", "headers": listed}], columns))

    limit = max(
        size
        for size in range(2_000, LARGEST)
        if record_size_bound(b"v" * size, b"k", headers) + BATCH_OVERHEAD <= LARGEST
    )
    assert is_good(limit)
    assert not is_good(limit + 1)


@for_each("given", ["topic", "topic:", "drop", "topic:no topic", "", "topic:orders", "TOPIC:dead"])
def test_on_bad_row_option_has_two_forms(given: str) -> None:
    with pytest.raises(ConfigError, match="onBadRow"):
        dead_letter_topic(given, "orders")


def test_dead_letter_topic_keeps_its_case() -> None:
    assert dead_letter_topic("fail", "orders") is None
    assert dead_letter_topic("topic:Orders.dead", "orders") == "Orders.dead"
    assert dead_letter_topic("topic:orders", None) == "orders"


def test_letter_that_its_headers_make_too_large_is_cut() -> None:
    fits = {"topic": "orders", "value": b"v" * (LARGEST - 110), "partition": 9}
    assert split([{**fits, "partition": 0}]).letters is None
    first, second = letters(split([fits, {"topic": "orders", "value": b"v", "partition": 9}]))
    assert (first["value"], second["value"]) == (b"v" * KEPT_BYTES, b"v")
    assert told(first)["dead-letter.bytes"] == b"%d" % (LARGEST - 110)


def test_letter_of_a_long_illegal_topic_is_cut() -> None:
    (letter,) = letters(split([{"topic": "t" * 2 * LARGEST, "value": b"v"}]))
    named = told(letter)
    assert named["dead-letter.topic"] == b"t" * KEPT_BYTES
    assert named["dead-letter.reason"].startswith(b"topic 'ttt")


DAY = 86_400_000
NOW = 20_000 * DAY
DEFAULTS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    BEFORE: str(2**63 - 1),
    AFTER: "3600000",
    "retention.ms": str(7 * DAY),
}
WEEK, HOUR = Limit(7 * DAY, "retention.ms"), Limit(3_600_000, AFTER)


@for_each(
    ("settings", "window"),
    [
        ({}, TimeWindow(WEEK, HOUR)),
        ({"cleanup.policy": "compact,delete"}, TimeWindow(WEEK, HOUR)),
        ({"cleanup.policy": "compact"}, TimeWindow(None, HOUR)),
        ({"retention.ms": "-1"}, TimeWindow(None, HOUR)),
        ({BEFORE: "5000"}, TimeWindow(Limit(5_000, BEFORE), HOUR)),
        ({BEFORE: "5000", "cleanup.policy": "compact"}, TimeWindow(Limit(5_000, BEFORE), HOUR)),
        ({BEFORE: str(9 * DAY)}, TimeWindow(WEEK, HOUR)),
        ({AFTER: str(2**63 - 1)}, TimeWindow(WEEK, None)),
        ({"message.timestamp.type": "LogAppendTime"}, TimeWindow()),
        ({DIFFERENCE: "1000"}, TimeWindow(Limit(1_000, DIFFERENCE), HOUR)),
        ({DIFFERENCE: "1000", AFTER: str(2**63 - 1), BEFORE: "5000"}, TimeWindow(Limit(5_000, BEFORE), Limit(1_000, DIFFERENCE))),
    ],
)  # fmt: skip
def test_window_follows_the_settings_of_the_topic(settings: dict[str, str], window: TimeWindow) -> None:
    assert time_window(DEFAULTS | settings) == window


def test_topic_without_settings_has_no_limit() -> None:
    assert time_window({}) == TimeWindow()


def found(
    times_ms: list[int | None], kind: Any = None, topics: dict[str, TimeWindow] | None = None
) -> dict[int, str]:
    topics = topics or {"orders": TimeWindow(WEEK, HOUR)}
    kind = kind or pa.timestamp("us", "Europe/Berlin")
    column = pa.array(times_ms, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")).cast(kind)
    codes = [number % len(topics) for number in range(len(times_ms))]
    return outside("at", column, list(topics), codes, topics.__getitem__, NOW)


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s"), pa.int64()]
)  # fmt: skip
def test_times_at_the_limits_are_kept_and_those_behind_are_not(kind: pa.DataType) -> None:
    edge = [NOW - 7 * DAY, NOW + 3_600_000, NOW, None]
    step = 1_000  # the coarsest unit
    if kind == pa.int64():
        column = pa.array([*edge, NOW - 7 * DAY - step, NOW + 3_600_000 + step])
        reasons = outside("at", column, ["orders"], [0] * 6, lambda _: TimeWindow(WEEK, HOUR), NOW)
    else:
        reasons = found([*edge, NOW - 7 * DAY - step, NOW + 3_600_000 + step], kind)
        assert found(edge, kind) == {}
    assert sorted(reasons) == [4, 5]
    assert reasons[4] == (
        "column 'at': 2024-09-26T23:59:59.000Z is older than topic 'orders' allows (retention.ms=604800000)"
    )
    assert reasons[5] == (
        "column 'at': 2024-10-04T01:00:01.000Z is further in the future than topic 'orders' allows"
        " (message.timestamp.after.max.ms=3600000)"
    )


def test_topic_has_its_own_time_window() -> None:
    topics = {"short": TimeWindow(Limit(1_000, "retention.ms")), "kept": TimeWindow()}
    assert sorted(found([NOW - 5_000] * 4, topics=topics)) == [0, 2]
    assert found([NOW - 5_000] * 4, topics={"kept": TimeWindow()}) == {}


def test_rows_without_a_topic_or_a_time_are_left_alone() -> None:
    column = pa.array([0, None], pa.int64())
    assert outside("at", column, ["orders"], [None, 0], lambda _: TimeWindow(WEEK), NOW) == {}
    assert outside("at", column.slice(1), ["orders"], [0], lambda _: TimeWindow(WEEK), NOW) == {}


def test_times_beyond_the_calendar_have_a_reason() -> None:
    column = pa.array([2**62], pa.int64())
    reasons = outside("at", column, ["orders"], [0], lambda _: TimeWindow(None, HOUR), NOW)
    assert reasons[0].startswith(f"column 'at': {2**62} ms after 1970 is further in the future")
