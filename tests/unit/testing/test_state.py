"""State that no request shows: fetches that wait are notified of a new leader and of a deleted topic."""

from __future__ import annotations

import pytest

from aioproducer._core.address import Address
from aioproducer.errors import BrokerError, FencedInstanceId, IllegalGeneration, UnknownMemberId
from aioproducer.testing.faults import Refused, Target
from aioproducer.testing.state import ClusterState, CommittedOffset, Consumer, Groups, Node
from tests.cases import for_each


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
        state.count_request(request, node_id, [target])
    assert state.produce_requests == {target: [1, 2]}
    assert state.requests == {("produce", 1): 1, ("fetch", 1): 1, ("produce", 2): 1}


TARGET = Target("orders", 1)


def pending(*producer_ids: int) -> Groups:
    groups = Groups()
    for producer_id in producer_ids:
        groups.add("g", producer_id, TARGET, CommittedOffset(producer_id))
    return groups


def test_offset_is_pending_until_its_transaction_ends() -> None:
    groups = pending(5)
    assert (groups.committed("g", TARGET), groups.is_pending("g", TARGET)) == (None, True)
    assert not groups.is_pending("g", Target("orders", 0))
    groups.end("g", 5, committed=True)
    assert (groups.committed("g", TARGET), groups.is_pending("g", TARGET)) == (CommittedOffset(5), False)
    assert groups.targets("g") == [TARGET]


def test_aborted_offset_of_another_producer_stays_pending() -> None:
    groups = pending(5, 6)
    groups.end("g", 5, committed=False)
    assert (groups.committed("g", TARGET), groups.is_pending("g", TARGET)) == (None, True)
    groups.end("g", 6, committed=True)
    groups.end("g", 5, committed=True)
    assert groups.committed("g", TARGET) == CommittedOffset(6)


def test_unknown_group_has_no_offsets() -> None:
    groups = Groups()
    groups.end("g", 5, committed=True)
    assert (groups.committed("g", TARGET), groups.targets("g")) == (None, [])
    assert not groups.is_pending("g", TARGET)


@for_each(
    ("consumer", "error"),
    [
        (Consumer(), None),
        (Consumer("m"), None),
        (Consumer("m", 3), IllegalGeneration),
        (Consumer("", 0), IllegalGeneration),
    ],
)
def test_unknown_group_has_no_generation(consumer: Consumer, error: type[BrokerError] | None) -> None:
    assert code(Groups(), consumer) == (error and error.code)


@for_each(
    ("consumer", "error"),
    [
        (Consumer(), None),
        (Consumer("m"), None),
        (Consumer("m", 3), UnknownMemberId),
        (Consumer("", 3), UnknownMemberId),
    ],
)
def test_group_without_members_refuses_a_generation(
    consumer: Consumer, error: type[BrokerError] | None
) -> None:
    assert code(pending(5), consumer) == (error and error.code)


@for_each(
    ("consumer", "error"),
    [
        (Consumer(), None),
        (Consumer("m", 3), None),
        (Consumer("m", 2), IllegalGeneration),
        (Consumer("m"), IllegalGeneration),
        (Consumer("n", 3), UnknownMemberId),
        (Consumer("m", 3, "i"), UnknownMemberId),
        (Consumer("s", 3, "instance"), None),
        (Consumer("m", 3, "instance"), FencedInstanceId),
    ],
)
def test_group_with_members_accepts_its_current_generation(
    consumer: Consumer, error: type[BrokerError] | None
) -> None:
    groups = Groups()
    groups.join("g", "m", 3)
    groups.join("g", "s", 3, "instance")
    assert code(groups, consumer) == (error and error.code)


def test_new_generation_removes_members() -> None:
    groups = Groups()
    groups.join("g", "m", 3)
    groups.join("g", "n", 4)
    assert code(groups, Consumer("m", 3)) == UnknownMemberId.code
    assert code(groups, Consumer("n", 4)) is None


def code(groups: Groups, consumer: Consumer) -> int | None:
    try:
        groups.check("g", consumer)
    except Refused as refused:
        return refused.code
    return None


@pytest.mark.parametrize("is_used", [True, False])
def test_lookups_without_offset_request_log_once(is_used: bool, caplog: pytest.LogCaptureFixture) -> None:
    groups = Groups()
    groups.looked_up("shipping")
    if is_used:
        groups.used("shipping")
    for _ in range(20):
        groups.looked_up("shipping")
    assert [each.getMessage().split()[:2] for each in caplog.records] == (
        [] if is_used else [["broker.group_unused", "group=shipping"]]
    )
