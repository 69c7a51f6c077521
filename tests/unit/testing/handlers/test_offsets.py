from __future__ import annotations

import pytest

from aioproducer._core.protocol.consumer import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from aioproducer.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotCoordinator,
    RequestTimedOut,
    TransactionAbortable,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from aioproducer.testing import Cluster
from aioproducer.testing.state import CommittedOffset, Consumer
from tests.unit.testing.client import Client
from tests.unit.testing.transactions import ID, TxnClient


@pytest.fixture
async def txn(cluster: Cluster, client: Client) -> TxnClient:
    for key in (ID, "g"):
        cluster.move_coordinator(key, to_broker=1)
    txn = TxnClient(client)
    assert await txn.init() == 0
    return txn


async def fetched(client: Client, version: int, *, require_stable: bool = False) -> tuple[int, int]:
    """Return the offset of "g" in partition 0, and the code."""
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=(0,))]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=require_stable
        )
        many = (await client.ask(request, version)).groups[0].topics[0].partitions[0]
        return many.committed_offset, many.error_code
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=(0,))],
        require_stable=require_stable,
    )
    one = (await client.ask(request, version)).topics[0].partitions[0]
    return one.committed_offset, one.error_code


@pytest.mark.parametrize("version", range(6))
async def test_offsets_are_committed_with_the_transaction(
    cluster: Cluster, txn: TxnClient, version: int
) -> None:
    if version < 5:
        assert await txn.add_group("g") == 0
    assert await txn.commit_offset("g", 7, version=version) == 0
    assert cluster.committed_offset("g", "orders", 0) is None
    assert await txn.end() == 0
    assert cluster.committed_offset("g", "orders", 0) == CommittedOffset(7, -1, "m")
    assert cluster.committed_offset("g", "orders", 1) is None


async def test_offsets_of_aborted_transaction_are_dropped(cluster: Cluster, txn: TxnClient) -> None:
    assert await txn.commit_offset("g", 7) == 0
    assert await txn.end(committed=False) == 0
    assert cluster.committed_offset("g", "orders", 0) is None


@pytest.mark.parametrize(
    ("version", "error"), [(0, InvalidTxnState), (3, InvalidTxnState), (4, TransactionAbortable)]
)
async def test_group_must_be_added_up_to_v4(txn: TxnClient, version: int, error: type[BrokerError]) -> None:
    assert await txn.commit_offset("g", 7, version=version) == error.code


@pytest.mark.parametrize(
    ("consumer", "code"),
    [
        (Consumer("m", 3), 0),
        (Consumer("m", 2), IllegalGeneration.code),
        (Consumer("n", 3), UnknownMemberId.code),
    ],
)
async def test_offset_commit_checks_the_consumer(
    cluster: Cluster, txn: TxnClient, consumer: Consumer, code: int
) -> None:
    cluster.join_group("g", "m", 3)
    assert await txn.commit_offset("g", 7, consumer=consumer) == code
    await txn.end()
    assert (cluster.committed_offset("g", "orders", 0) is None) == bool(code)


@pytest.mark.parametrize("version", [4, 5])
async def test_coordinator_errors_are_mapped_for_groups(
    cluster: Cluster, txn: TxnClient, version: int
) -> None:
    cluster.marker_delay_s = 60
    await txn.add_group("g")
    await txn.end(version=4)
    assert await txn.commit_offset("g", 7, version=version) == CoordinatorNotAvailable.code
    txn.epoch += 1
    assert await txn.commit_offset("g", 7, version=version) == InvalidProducerEpoch.code


async def test_partition_that_does_not_exist_has_no_offset(txn: TxnClient) -> None:
    assert await txn.commit_offset("g", 7, partition=9) == UnknownTopicOrPartition.code


async def test_offset_requests_need_the_group_coordinator(cluster: Cluster, txn: TxnClient) -> None:
    cluster.move_coordinator("g", to_broker=2)
    assert await txn.commit_offset("g", 7) == NotCoordinator.code
    answer = await txn.client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]))
    assert answer.groups[0].error_code == NotCoordinator.code
    one = await txn.client.ask(OffsetFetchRequest(group_id="g"), 7)
    assert one.error_code == NotCoordinator.code


async def test_rule_refuses_one_partition_before_or_after(cluster: Cluster, txn: TxnClient) -> None:
    cluster.on("txn_offset_commit", topic="orders", partition=0).answer(RequestTimedOut)
    assert await txn.commit_offset("g", 7) == RequestTimedOut.code
    cluster.on("txn_offset_commit", topic="orders", partition=0).answer(RequestTimedOut, before_append=False)
    assert await txn.commit_offset("g", 8) == RequestTimedOut.code
    await txn.end()
    assert cluster.committed_offset("g", "orders", 0) == CommittedOffset(8, -1, "m")


@pytest.mark.parametrize("version", range(1, 10))
async def test_offsets_are_read_back(txn: TxnClient, version: int) -> None:
    assert await fetched(txn.client, version) == (-1, 0)
    await txn.commit_offset("g", 7)
    assert await fetched(txn.client, version) == (-1, 0)
    if version >= 7:
        assert await fetched(txn.client, version, require_stable=True) == (-1, UnstableOffsetCommit.code)
    await txn.end()
    assert await fetched(txn.client, version, require_stable=version >= 7) == (7, 0)


async def test_all_offsets_of_a_group_are_returned(txn: TxnClient) -> None:
    await txn.commit_offset("g", 7)
    await txn.commit_offset("g", 8, partition=2)
    await txn.end()
    answer = await txn.client.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    )
    (topic,) = answer.groups[0].topics
    assert {each.partition_index: each.committed_offset for each in topic.partitions} == {0: 7, 2: 8}
