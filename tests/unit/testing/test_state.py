"""What no request to the broker shows: who waits at a log is told of a new leader, and of the end of its topic."""

from __future__ import annotations

import pytest

from aioproducer._core.net.address import Address
from aioproducer.testing.faults import Target
from aioproducer.testing.state import ClusterState, Node


@pytest.fixture
def state() -> ClusterState:
    state = ClusterState(
        auto_create_topics=False, default_partitions=1, message_max_bytes=1_000_000, transaction_version=2
    )
    state.nodes = {node_id: Node(node_id, Address("broker", node_id)) for node_id in (1, 2)}
    state.add_topic(state.new_topic("orders", 2))
    return state


def test_move_leader_wakes_fetches(state: ClusterState) -> None:
    seen: list[tuple[int, int]] = []
    partition = state.partition("orders", 0)
    partition.log.watchers.add(lambda: seen.append((partition.leader, partition.leader_epoch)))
    state.partition("orders", 1).log.watchers.add(lambda: seen.append((0, 0)))
    state.move_leader(partition, 2)
    assert seen == [(2, 1)]


def test_delete_topic_wakes_fetches(state: ClusterState) -> None:
    seen: list[int] = []
    for index in (0, 1):
        state.partition("orders", index).log.watchers.add(lambda index=index: seen.append(index))  # type: ignore[misc]
    state.delete_topic("orders")
    assert seen == [0, 1]


def test_only_produce_requests_are_recorded(state: ClusterState) -> None:
    target = Target("orders", 0)
    for request, node_id in (("produce", 1), ("fetch", 1), ("produce", 2)):
        state.note(request, node_id, [target])
    assert state.produce_requests == {target: [1, 2]}
    assert state.requests == {("produce", 1): 1, ("fetch", 1): 1, ("produce", 2): 1}
