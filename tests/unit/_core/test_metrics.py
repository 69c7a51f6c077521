from __future__ import annotations

import pytest

from aioproducer._core.metrics import WINDOW_S, Metrics, NodeCounters, TopicCounters, report
from aioproducer.errors import BufferFull, BufferTimeout, MetadataTimeout
from tests.cases import for_each


def counters_at(*times: float) -> NodeCounters:
    """A counters that has counted an answer at each of *times*, which took 10 s less each time."""
    counters = NodeCounters(0.0)
    for number, at in enumerate(times):
        counters.answered(100.0 - 10 * number, 0, at)
    return counters


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TestTally:
    def test_node_counters_add_up_responses_and_keep_maxima(self) -> None:
        counters = NodeCounters(0.0)
        counters.requests += 2
        counters.answered(0.5, 30, 1.0)
        counters.answered(0.25, 0, 2.0)
        counters.answered(0.125, 20, 3.0)
        numbers = counters.numbers()
        assert (numbers["answers"], numbers["latency_s"], numbers["throttle_ms"]) == (3, 0.875, 50)
        assert (numbers["latency_s_max"], numbers["throttle_ms_max"]) == (0.5, 30)
        assert (numbers["requests"], numbers["responses"]) == (2, 0)

    def test_topic_counters_add_up_batches_and_keep_maxima(self) -> None:
        counters = TopicCounters(0.0)
        counters.written(2, 100, 300, 0.5, 0.5, 1.0)
        counters.written(3, 50, 400, 0.25, 0.5, 1.0)
        assert counters.numbers() == dict.fromkeys(TopicCounters.__slots__, 0) | {
            "batches": 2,
            "records": 5,
            "bytes": 150,
            "bytes_max": 100,
            "uncompressed": 700,
            "queued_s": 0.75,
            "queued_s_max": 0.5,
            "requests": 1.0,
        }

    def test_counts_stay_whole_numbers(self) -> None:
        counters = TopicCounters(0.0)
        counters.written(2, 100, 300, 0.5, 0.5, 1.0)
        assert all(
            isinstance(getattr(counters, name), int)
            for name in ("batches", "records", "bytes", "uncompressed")
        )

    def test_counting_turns_the_window(self) -> None:
        topic, node = TopicCounters(0.0), NodeCounters(0.0)
        for now in (WINDOW_S - 1, WINDOW_S + 1):
            topic.written(1, 1, 1, 1.0, 1.0, now)
            node.answered(1.0, 1, now)
        assert topic.window_ends_at == node.window_ends_at == 2 * WINDOW_S


class TestLately:
    def test_rate_of_a_new_counter_uses_one_window(self) -> None:
        recent = counters_at(0.001).recent(0.002)
        assert (recent.span_s, recent.numbers["answers"]) == (WINDOW_S, 1)

    @for_each(
        ("now", "span_s", "answers", "maximum"),
        [
            (29, 30, 1, 100),
            (31, 31, 1, 100),  # the window is over, without an event since
            (59, 59, 1, 100),
            (61, 30, 0, 0),
        ],
    )
    def test_rate_uses_two_windows_for_a_single_count(
        self, now: float, span_s: float, answers: int, maximum: float
    ) -> None:
        assert counters_at(1).recent(now)[0] == span_s
        numbers = counters_at(1).recent(now).numbers
        assert (numbers["answers"], numbers["latency_s_max"]) == (answers, maximum)

    @for_each(
        ("now", "span_s", "answers", "maximum"),
        [
            (31, 31, 2, 100),
            (59, 59, 2, 100),
            (60, 30, 1, 90),  # the second window began at 30
            (89, 59, 1, 90),
            (90, 30, 0, 0),
        ],
    )
    def test_rate_covers_the_current_and_previous_window(
        self, now: float, span_s: float, answers: int, maximum: float
    ) -> None:
        recent = counters_at(1, 31).recent(now)
        assert (recent.span_s, recent.numbers["answers"], recent.numbers["latency_s_max"]) == (
            span_s,
            answers,
            maximum,
        )

    def test_third_window_discards_the_first(self) -> None:
        recent = counters_at(1, 31, 62, 63).recent(64)
        assert (recent.span_s, recent.numbers["answers"], recent.numbers["latency_s_max"]) == (34, 3, 90)

    def test_rate_discards_counts_older_than_a_minute(self) -> None:
        counters = counters_at(0, 59)
        assert counters.recent(59.5).numbers["answers"] == 2
        assert [counters.recent(now).numbers["answers"] for now in (60, 89, 90)] == [1, 1, 0]
        assert counters.recent(88.5).numbers["latency_s_max"] == 90

    def test_rate_after_a_long_pause_counts_only_new_events(self) -> None:
        recent = counters_at(1, 31, 1_000).recent(1_001)
        assert (recent.span_s, recent.numbers["answers"], recent.numbers["latency_s_max"]) == (30, 1, 80)

    def test_totals_are_of_all_time(self) -> None:
        assert counters_at(1, 31, 62, 1_000).numbers()["answers"] == 4


class TestMetrics:
    def test_topics_and_nodes_keep_their_tallies(self) -> None:
        metrics = Metrics(Clock())
        metrics.topic("a").delivered_records += 2
        metrics.topic("a").delivered_records += 3
        assert metrics.topics["a"].delivered_records == 5
        assert metrics.node(1) is metrics.node(1) is not metrics.node(2)

    def test_event_advances_the_window(self) -> None:
        clock = Clock()
        metrics = Metrics(clock)
        metrics.event("a").retried_records += 1
        clock.now = 70
        metrics.event("a").retried_records += 10
        assert metrics.topics["a"].recent(70).numbers["retried_records"] == 10
        assert metrics.topics["a"].retried_records == 11

    def test_metrics_count_refused_records_and_memory_shortage(self) -> None:
        clock = Clock()
        metrics = Metrics(clock)
        metrics.refused(2, BufferFull("no"))
        metrics.refused(1, BufferTimeout("no"))
        clock.now = 70
        metrics.refused(4, MetadataTimeout("no"))
        metrics.refused(8, TypeError("a wrong call is not the cluster's fault"))
        assert (metrics.calls.refused_records, metrics.calls.exhausted) == (7, 3)
        recent = metrics.calls.recent(70).numbers
        assert (recent["refused_records"], recent["exhausted"]) == (4, 0)

    def test_calls_of_transactions_add_up_unless_they_fail(self) -> None:
        clock = Clock()
        metrics = Metrics(clock)
        for took_s in (0.5, 0.25):
            with metrics.timed("commit_s"):
                clock.now += took_s
        with pytest.raises(ZeroDivisionError), metrics.timed("abort_s"):  # noqa: PT012 - a block of its own
            clock.now += 1
            raise ZeroDivisionError
        assert (metrics.calls.commit_s, metrics.calls.abort_s, metrics.calls.begin_s) == (0.75, 0, 0)


class TestForgetting:
    def test_forgotten_topic_leaves_its_totals_to_the_producer(self) -> None:
        now = 0.0
        metrics = Metrics(lambda: now)
        for topic, count in (("a", 1), ("b", 2), ("c", 4)):
            metrics.event(topic).failed_records += count
        now = 100.0
        metrics.forget_topic("a")
        metrics.forget_topic("c")
        metrics.forget_topic("missing")
        told = report(metrics, {}, {})
        assert set(told["topics"]) == {"b"}
        assert told["producer"]["record_error_total"] == 7
        assert told["producer"]["record_error_rate"] == 0
        metrics.event("a").failed_records += 8
        told = report(metrics, {}, {})
        assert told["topics"]["a"]["record_error_total"] == 8
        assert told["producer"]["record_error_total"] == 15

    def test_forgotten_node_leaves_its_totals_to_the_producer(self) -> None:
        metrics = Metrics(lambda: 0.0)
        for node_id in (-1, 1, 2):
            metrics.node(node_id).opened += 1
            metrics.node(node_id).requests += 10
        metrics.node(2).closed += 1
        metrics.forget_nodes([2])
        assert set(metrics.nodes) == {-1, 1}
        told = report(metrics, {}, {})["producer"]
        assert (told["connection_count"], told["request_total"]) == (2, 30)
