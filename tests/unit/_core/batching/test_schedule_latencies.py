from __future__ import annotations

import pytest

from aioproducer._core.batching.schedule import ESTIMATE_VALID_S, SLOW_S, BrokerLatencies


class Nodes:
    """The latencies of nodes, and a clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 5.0
        self.latencies = BrokerLatencies(lambda: self.now)

    def answer(self, node_id: int, took_s: float) -> None:
        """Let a node take so long for a request."""
        self.latencies[node_id].sent(self.now)
        self.now += took_s
        self.latencies[node_id].answered(self.now)


def test_one_more_request_waits_for_all_that_are_there() -> None:
    nodes = Nodes()
    for unanswered in range(1, 4):
        nodes.latencies[1].sent(5.0)
        nodes.now = 5.0 + SLOW_S
        assert nodes.latencies.estimated_delay_s(1) == (unanswered + 1) * (nodes.now - 5.0)


def test_each_is_taken_to_last_as_long_as_the_last_one_or_as_this_one_so_far() -> None:
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


def test_where_the_way_is_long_each_has_its_share_of_the_time() -> None:
    nodes = Nodes()
    for at in (5.0, 5.001, 5.002):
        nodes.latencies[1].sent(at)
    for at, share in ((5.1, 1), (5.101, 2), (5.102, 3)):
        nodes.now = at
        nodes.latencies[1].answered(at)
        assert nodes.latencies.estimated_delay_s(1) == pytest.approx((4 - share) * 0.1 / share)


def test_those_that_are_lost_together_took_long_together() -> None:
    nodes = Nodes()
    for _ in range(2):
        nodes.latencies[1].sent(5.0)
    nodes.now = 35.0
    for _ in range(2):
        nodes.latencies[1].answered(35.0)
    assert nodes.latencies.estimated_delay_s(1) == 15


def test_what_began_while_a_node_had_nothing_to_do_counts_from_then() -> None:
    nodes = Nodes()
    nodes.answer(1, 0.5)
    nodes.now += 60
    nodes.answer(1, 0.25)
    assert nodes.latencies.estimated_delay_s(1) == 0.25


def test_that_a_node_was_slow_is_remembered_for_a_moment() -> None:
    nodes = Nodes()
    nodes.answer(1, 0.5)
    assert nodes.latencies.is_slow(1)
    nodes.now += 0.9 * ESTIMATE_VALID_S
    assert nodes.latencies.is_slow(1)
    nodes.now += 0.2 * ESTIMATE_VALID_S
    assert not nodes.latencies.is_slow(1)


def test_nothing_is_known_of_a_node_that_was_sent_nothing() -> None:
    assert not Nodes().latencies.is_slow(1)


def test_sooner_is_in_less_than_half_of_a_long_time() -> None:
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
