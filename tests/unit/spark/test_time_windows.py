"""Times that topics keep."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from aioproducer.spark.time_windows import AFTER, BEFORE, DIFFERENCE, Limit, TimeWindow, outside, time_window
from tests.cases import for_each

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


@for_each(
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


def test_each_topic_has_its_own_window() -> None:
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
