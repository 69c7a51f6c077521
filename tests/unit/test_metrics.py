from __future__ import annotations

from aioproducer.metrics import Metrics


def test_a_topic_keeps_its_counters() -> None:
    metrics = Metrics()
    metrics.topic("a").records_delivered += 2
    metrics.topic("a").records_delivered += 3
    assert metrics.topic("a").records_delivered == 5


def test_the_total_adds_up_all_topics() -> None:
    metrics = Metrics()
    assert set(metrics.total().values()) == {0}
    metrics.topic("a").bytes_delivered = 5
    metrics.topic("b").bytes_delivered = 7
    metrics.topic("b").records_failed = 1
    total = metrics.total()
    assert total["bytes_delivered"] == 12
    assert total["records_failed"] == 1
    assert total["records_delivered"] == 0
