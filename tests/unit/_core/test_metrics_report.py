from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.metrics import OF_TRANSACTIONS, Metrics, report
from aioproducer.errors import BufferFull


class Counted:
    """Metrics that have counted something, and their report, two minutes after the producer was started."""

    def __init__(self) -> None:
        self.now = 120.0
        self.metrics = Metrics(lambda: self.now)
        a, b = map(self.metrics.topic, "ab")
        one, two = map(self.metrics.node, (1, 2))
        a.written(4, 400, 800, 0.010, 1.0, self.now)
        a.written(2, 200, 200, 0.020, 0.5, self.now)
        b.written(1, 30, 30, 0.0, 0.5, self.now)
        one.answered(0.004, 0, self.now)
        two.answered(0.002, 100, self.now)
        self.now += 10

    def report(self) -> dict[str, dict[Any, Any]]:
        return report(self.metrics, {"calls_waiting": 3}, {1: {"connected": True}, 7: {"connected": False}})


def test_sums_of_topics_and_nodes_are_the_producers() -> None:
    values = Counted().report()["producer"]
    assert (
        values.items()
        >= {
            "record_send_total": 7,
            "record_send_rate": 7 / 30,
            "byte_total": 630,
            "batch_size_avg": 210,
            "batch_size_max": 400,
            "compression_rate_avg": 630 / 1030,
            "record_size_avg": 1030 / 7,
            "record_queue_time_avg": 10,
            "record_queue_time_max": 20,
            "records_per_request_avg": 3.5,
            "request_latency_avg": 3,
            "request_latency_max": 4,
            "produce_throttle_time_avg": 50,
            "produce_throttle_time_max": 100,
            "calls_waiting": 3,
        }.items()
    )


def test_topic_report_has_totals_and_rates() -> None:
    topics = Counted().report()["topics"]
    assert topics.keys() == {"a", "b"}
    assert (
        topics["a"].items()
        >= {
            "record_send_total": 6,
            "record_send_rate": 6 / 30,
            "byte_total": 600,
            "byte_rate": 20,
            "compression_rate": 0.6,
        }.items()
    )


def test_node_report_has_metrics_and_connection_state() -> None:
    counted = Counted()
    counted.metrics.node(1).bytes_out += 300
    nodes = counted.report()["nodes"]
    assert nodes.keys() == {1, 7}, "node 2 is closed"
    assert (
        nodes[1].items()
        >= {
            "connected": True,
            "request_latency_avg": 4,
            "outgoing_byte_total": 300,
            "outgoing_byte_rate": 10,
        }.items()
    )
    assert nodes[7].items() >= {"connected": False, "request_total": 0, "request_latency_max": None}.items()
    assert nodes[7].keys() == nodes[1].keys()


def test_averages_and_maxima_are_none_without_events() -> None:
    values = report(Metrics(lambda: 0.0), {}, {})["producer"]
    unknown = {name for name, value in values.items() if value is None}
    assert unknown == {name for name in values if name.endswith(("_avg", "_max"))}
    assert all(value == 0 for name, value in values.items() if name not in unknown)


def test_events_older_than_the_window_count_in_totals_only() -> None:
    counted = Counted()
    counted.now += 100
    values = counted.report()["producer"]
    assert (values["record_send_total"], values["record_send_rate"], values["batch_size_max"]) == (7, 0, None)


def test_refused_records_count_as_errors() -> None:
    counted = Counted()
    counted.metrics.event("a").failed_records += 2
    counted.metrics.refused(3, BufferFull("no"))
    reported = counted.report()
    assert (
        reported["producer"].items()
        >= {
            "record_error_total": 5,
            "record_error_rate": pytest.approx(5 / 30),
            "buffer_exhausted_total": 3,
            "buffer_exhausted_rate": 0.1,
        }.items()
    )
    assert reported["topics"]["a"]["record_error_total"] == 2


def test_connections_are_those_opened_and_not_closed() -> None:
    counted = Counted()
    counted.metrics.node(-1).opened += 1
    counted.metrics.node(1).opened += 2
    counted.metrics.node(1).closed += 1
    assert (
        counted.report()["producer"].items()
        >= {
            "connection_count": 2,
            "connection_creation_total": 3,
            "connection_close_total": 1,
        }.items()
    )


def test_nanoseconds_are_whole() -> None:
    counted = Counted()
    counted.metrics.calls.flush_s += 0.1 + 0.2
    value = counted.report()["producer"]["flush_time_ns_total"]
    assert (type(value), value) == (int, 300_000_000)


def test_transaction_call_times_are_reported_separately() -> None:
    counted = Counted()
    for number, each in enumerate(OF_TRANSACTIONS.values(), 1):
        setattr(counted.metrics.calls, each, number / 10)
    producer = counted.report()["producer"]
    assert [producer[f"{name}_time_ns_total"] for name in OF_TRANSACTIONS] == [
        100_000_000, 200_000_000, 300_000_000, 400_000_000, 500_000_000,
    ]  # fmt: skip
