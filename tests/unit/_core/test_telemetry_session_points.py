from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.telemetry_session import DeltaTracker, Kind, Point, Report, Selection
from aioproducer.contrib.exposition import METRICS

BORN_NS, NOW_NS, LATER_NS = 1, 10, 20
ALL = Selection(("",))


def report(sent: int = 3, latency: float | None = 1.5) -> dict[str, dict[Any, Any]]:
    return {
        "producer": {"record_send_total": sent, "record_queue_time_avg": latency, "calls_waiting": 2},
        "topics": {"orders": {"record_send_total": sent, "records_delivered": sent}},
        "nodes": {1: {"address": "b1:9092", "connected": True, "request_latency_max": 2.5}},
    }


def told(
    tracker: DeltaTracker, sent: int = 3, selection: Selection = ALL, now_ns: int = NOW_NS
) -> tuple[list[Point], DeltaTracker]:
    return tracker.points(report(sent), selection, is_delta=True, now_ns=now_ns)


def test_names_and_attributes_are_those_of_the_jvm_client() -> None:
    prefix = "org.apache.kafka.producer."
    assert told(DeltaTracker(BORN_NS))[0] == [
        Point(f"{prefix}record.send.total", Kind.DELTA, 3.0, {}, BORN_NS),
        Point(f"{prefix}record.queue.time.avg", Kind.GAUGE, 1.5, {}),
        Point(f"{prefix}waiting.threads", Kind.GAUGE, 2.0, {}),
        Point(f"{prefix}node.request.latency.max", Kind.GAUGE, 2.5, {"node_id": "node-1"}),
        Point(f"{prefix}topic.record.send.total", Kind.DELTA, 3.0, {"topic": "orders"}, BORN_NS),
    ]


@pytest.mark.parametrize("part", ["producer", "topics", "nodes"])
def test_points_are_the_metrics_named_by_kafka(part: Any) -> None:
    values = dict.fromkeys(METRICS[part], 1) | dict.fromkeys(("address", "connected"), True)
    everything: dict[str, dict[Any, Any]] = {"producer": {}, "topics": {}, "nodes": {}}
    everything[part] = values if part == "producer" else {"1": values}
    group = {"producer": "", "topics": "topic.", "nodes": "node."}[part]
    expected = {
        f"org.apache.kafka.producer.{group}{(each.kafka or key).replace('_', '-').replace('-', '.')}"
        for key, each in METRICS[part].items()
        if each.kafka is not None
    }
    points, _ = DeltaTracker(BORN_NS).points(everything, ALL, is_delta=True, now_ns=NOW_NS)
    assert {each.name for each in points} == expected


def test_points_without_values_are_omitted() -> None:
    points, _ = DeltaTracker(BORN_NS).points(report(latency=None), ALL, is_delta=True, now_ns=NOW_NS)
    assert not [each for each in points if each.name.endswith("queue.time.avg")]


def test_points_are_filtered_by_prefix() -> None:
    prefix = "org.apache.kafka.producer."
    selection = Selection((f"{prefix}node.", f"{prefix}record.send"))
    points, _ = told(DeltaTracker(BORN_NS), 3, selection)
    assert [each.name for each in points] == [
        f"{prefix}record.send.total",
        f"{prefix}node.request.latency.max",
    ]
    assert told(DeltaTracker(BORN_NS), 3, Selection(()))[0] == []
    points, _ = told(DeltaTracker(BORN_NS), 3, Selection(("",), topics=False))
    assert [each.attributes for each in points] == [{}, {}, {}, {"node_id": "node-1"}]


def sent(points: list[Point]) -> list[tuple[float, int]]:
    return [(each.value, each.start_ns) for each in points if each.name.endswith("record.send.total")]


def test_counters_are_pushed_as_deltas() -> None:
    points, tracker = told(DeltaTracker(BORN_NS), 3, Selection(("",), topics=False))
    assert sent(points) == [(3.0, BORN_NS)]
    points, tracker = told(tracker, 5, now_ns=LATER_NS)
    assert sent(points) == [(2.0, NOW_NS), (5.0, BORN_NS)], "the topic's is new"
    points, tracker = told(tracker, 5, now_ns=30)
    assert sent(points) == [(0.0, LATER_NS), (0.0, LATER_NS)]


def test_refused_points_are_pushed_again_from_old_tracker() -> None:
    before = DeltaTracker(BORN_NS)
    assert told(before, 3)[1] != before
    assert sent(told(before, 5, now_ns=LATER_NS)[0]) == [(5.0, BORN_NS)] * 2


def test_cumulative_counters_are_sent_as_totals() -> None:
    tracker = DeltaTracker(BORN_NS)
    for _ in range(2):
        points, tracker = tracker.points(report(), ALL, is_delta=False, now_ns=NOW_NS)
        assert sent(points) == [(3.0, BORN_NS)] * 2
        assert {each.kind for each in points} == {Kind.CUMULATIVE, Kind.GAUGE}


def sent_to(**topics: int) -> Report:
    values = {name: {"record_send_total": count} for name, count in topics.items()}
    return {"producer": {"record_send_total": sum(topics.values())}, "nodes": {}, "topics": values}


def test_tracker_drops_topics_that_metrics_dropped() -> None:
    selection, tracker = Selection(("",)), DeltaTracker(BORN_NS)
    for number in range(5):
        _, tracker = tracker.points(sent_to(**{f"t{number}": 1}), selection, is_delta=True, now_ns=NOW_NS)
    assert len(tracker.pushed) == 2


def test_topic_that_is_used_again_is_pushed_from_zero() -> None:
    selection, tracker = Selection(("",)), DeltaTracker(BORN_NS)
    _, tracker = tracker.points(sent_to(t=10), selection, is_delta=True, now_ns=NOW_NS)
    points, _ = tracker.points(sent_to(t=3), selection, is_delta=True, now_ns=NOW_NS)
    [point] = [each for each in points if each.attributes]
    assert point.value == 3


def test_tracker_keeps_topics_left_out_of_a_push() -> None:
    tracker = DeltaTracker(BORN_NS)
    _, tracker = tracker.points(sent_to(t=10), Selection(("",)), is_delta=True, now_ns=NOW_NS)
    _, tracker = tracker.points(sent_to(t=11), Selection(("",), topics=False), is_delta=True, now_ns=NOW_NS)
    points, _ = tracker.points(sent_to(t=12), Selection(("",)), is_delta=True, now_ns=NOW_NS)
    [point] = [each for each in points if each.attributes]
    assert point.value == 2
