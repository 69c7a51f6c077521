from __future__ import annotations

import pytest

from aioproducer._core.batching.schedule import ESTIMATE_VALID_S, SLOW_S, BrokerLatencies


class Nodes:
    """Latencies of nodes with a manual clock."""

    def __init__(self, now: float = 5.0) -> None:
        self.now = now
        self.latencies = BrokerLatencies(lambda: self.now)

    def answer(self, node_id: int, took_s: float) -> None:
        """Let a node answer a request after *took_s*."""
        self.latencies[node_id].sent(self.now)
        self.now += took_s
        self.latencies[node_id].answered(self.now)


def test_estimate_multiplies_by_the_requests_in_flight() -> None:
    nodes = Nodes()
    for unanswered in range(1, 4):
        nodes.latencies[1].sent(5.0)
        nodes.now = 5.0 + SLOW_S
        assert nodes.latencies.estimated_delay_s(1) == (unanswered + 1) * (nodes.now - 5.0)


def test_estimate_uses_the_longer_of_last_and_current_request() -> None:
    nodes = Nodes()
    nodes.latencies[1].sent(nodes.now)
    nodes.latencies[1].sent(nodes.now)
    nodes.now = 6.0
    nodes.latencies[1].answered(nodes.now)
    assert nodes.latencies.estimated_delay_s(1) == 2 * 1.0
    nodes.now = 6.5
    assert nodes.latencies.estimated_delay_s(1) == 2 * 1.0
    nodes.now = 8.0
    assert nodes.latencies.estimated_delay_s(1) == 2 * 2.0


def test_pipelined_requests_share_the_latency() -> None:
    nodes = Nodes()
    for at in (5.0, 5.001, 5.002):
        nodes.latencies[1].sent(at)
    for at, share in ((5.1, 1), (5.101, 2), (5.102, 3)):
        nodes.now = at
        nodes.latencies[1].answered(at)
        assert nodes.latencies.estimated_delay_s(1) == pytest.approx((4 - share) * 0.1 / share)


def test_requests_lost_together_share_their_time() -> None:
    nodes = Nodes()
    for _ in range(2):
        nodes.latencies[1].sent(5.0)
    nodes.now = 35.0
    for _ in range(2):
        nodes.latencies[1].answered(35.0)
    assert nodes.latencies.estimated_delay_s(1) == 15


def test_service_time_of_an_idle_broker_starts_at_its_request() -> None:
    nodes = Nodes()
    nodes.answer(1, 0.5)
    nodes.now += 60
    nodes.answer(1, 0.25)
    assert nodes.latencies.estimated_delay_s(1) == 0.25


def test_slow_broker_is_remembered_for_a_moment() -> None:
    nodes = Nodes()
    nodes.answer(1, 0.5)
    assert nodes.latencies.is_slow(1)
    nodes.now += 0.9 * ESTIMATE_VALID_S
    assert nodes.latencies.is_slow(1)
    nodes.now += 0.2 * ESTIMATE_VALID_S
    assert not nodes.latencies.is_slow(1)


def test_unused_broker_is_not_slow() -> None:
    latencies = Nodes().latencies
    assert not latencies.is_slow(1)
    _ = latencies[1]
    assert latencies.estimated_delay_s(1) == 0
    assert latencies.nearby == ()


def test_estimate_counts_until_its_last_moment() -> None:
    nodes = Nodes(-SLOW_S)
    nodes.answer(1, SLOW_S)
    assert nodes.latencies.estimated_delay_s(1) == SLOW_S
    assert not nodes.latencies.is_slow(1)
    assert not nodes.latencies.is_faster(2, 1)
    nodes.now = ESTIMATE_VALID_S
    assert nodes.latencies.estimated_delay_s(1) == 0


def test_slow_answer_behind_a_fast_one_took_its_own_time() -> None:
    nodes = Nodes()
    for _ in range(2):
        nodes.latencies[1].sent(5.0)
    nodes.latencies[1].answered(5.25)
    nodes.now = 6.0
    nodes.latencies[1].answered(nodes.now)
    assert nodes.latencies.estimated_delay_s(1) == 0.75


def test_faster_broker_needs_less_than_half_of_a_long_delay() -> None:
    nodes = Nodes()
    nodes.answer(1, SLOW_S)
    nodes.answer(2, 2.9 * SLOW_S)
    assert not nodes.latencies.is_faster(1, 2)
    nodes.answer(2, 3.1 * SLOW_S)
    assert nodes.latencies.is_faster(1, 2)
    assert not nodes.latencies.is_faster(2, 1)
    nodes.answer(3, 0.9 * SLOW_S)
    assert not nodes.latencies.is_faster(4, 3), "as good as any"
    nodes.answer(3, 1.1 * SLOW_S)
    assert nodes.latencies.is_faster(4, 3)


def test_estimates_of_lost_nodes_are_dropped_once_they_are_idle() -> None:
    nodes = Nodes()
    for node_id in (1, 2, 3):
        nodes.answer(node_id, 0.5)
    nodes.latencies[3].sent(nodes.now)
    nodes.latencies.forget([1])
    assert set(nodes.latencies) == {1, 3}
