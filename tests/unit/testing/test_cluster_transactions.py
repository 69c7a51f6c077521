from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.protocol.consumer import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from aioproducer.testing import Cluster, ThreadedCluster, in_virtual_time
from aioproducer.testing.faults import Target
from aioproducer.testing.state import CommittedOffset
from tests.cases import for_each
from tests.unit.testing.client import Client, fetch_request
from tests.unit.testing.transactions import ID, TxnClient


@pytest.fixture
async def txn(cluster: Cluster, client: Client) -> TxnClient:
    cluster.move_coordinator(ID, to_broker=1)
    txn = TxnClient(client)
    assert await txn.init() == 0
    return txn


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_version_can_be_changed_while_it_runs(version: int) -> None:
    assert Cluster().transaction_version == 2
    cluster = Cluster(transaction_version=version)
    assert cluster.transaction_version == version
    cluster.transaction_version = 1
    assert cluster.transaction_version == 1


@for_each(("version", "error"), [(3, ValueError), (-1, ValueError), ("2", TypeError), (True, TypeError)])
def test_unknown_transaction_version_is_refused(version: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"transaction.version"):
        Cluster(transaction_version=version)
    with pytest.raises(error, match=r"transaction.version"):
        Cluster().transaction_version = version


async def test_unused_id_has_no_state(cluster: Cluster, txn: TxnClient) -> None:
    assert (cluster.transaction_state("nobody"), cluster.transaction_state(ID)) == (None, "Empty")


async def test_coordinator_that_is_down_is_replaced_and_comes_back(cluster: Cluster) -> None:
    cluster.move_coordinator(ID, to_broker=2)
    assert cluster.coordinator(ID) == 2
    await cluster.stop_broker(2)
    assert cluster.coordinator(ID) == 1
    await cluster.stop_broker(1)
    assert cluster.coordinator(ID) is None
    await cluster.start_broker(2)
    assert cluster.coordinator(ID) == 2
    with pytest.raises(ValueError, match="there is no broker 3"):
        cluster.move_coordinator(ID, to_broker=3)


async def test_markers_wait_for_a_leader(cluster: Cluster, txn: TxnClient) -> None:
    await txn.add(0, 1)
    await txn.write(b"a", sequence=0)
    await cluster.stop_broker(2)
    assert await txn.end() == 0
    assert cluster.transaction_state(ID) == "PrepareCommit"
    await cluster.start_broker(2)
    assert cluster.transaction_state(ID) == "CompleteCommit"
    assert [batch.control for batch in cluster.batches("orders", 1)] == [True]


async def test_markers_are_complete_when_topic_is_deleted(cluster: Cluster, txn: TxnClient) -> None:
    await txn.add(1)
    await cluster.stop_broker(2)
    assert await txn.end() == 0
    cluster.delete_topic("orders")
    assert cluster.transaction_state(ID) == "CompleteCommit"


async def test_transaction_outlives_its_broker(cluster: Cluster, client: Client) -> None:
    cluster.move_coordinator(ID, to_broker=2)
    async with await Client.to(cluster, 2) as coordinator:
        txn = TxnClient(coordinator)
        await txn.init()
        writer = TxnClient(client)
        writer.producer_id, writer.epoch = txn.producer_id, txn.epoch
        assert (await writer.write(b"a", sequence=0)).error_code == 0
        await cluster.stop_broker(1)
        await cluster.start_broker(1)
        assert cluster.records("orders", 0, isolation_level="read_committed") == []
        assert await txn.end() == 0
    assert len(cluster.records("orders", 0, isolation_level="read_committed")) == 1


@pytest.mark.parametrize("committed", [True, False])
async def test_truncated_log_keeps_remaining_transactions(
    cluster: Cluster, txn: TxnClient, committed: bool
) -> None:
    await txn.write(b"a", sequence=0)
    await txn.end(committed=committed)
    await txn.write(b"b", sequence=0)
    (lost,) = cluster.lose_end("orders", 0, 1)
    assert (lost.offset, lost.value) == (2, b"b")
    log = cluster._state.partition("orders", 0).log
    assert (log.last_stable_offset, log.record_count, log.producers.epoch(txn.producer_id)) == (2, 1, 1)
    assert len(log.transactions.aborted(0, 9)) == (0 if committed else 1)
    assert cluster.lose_end("orders", 0, 1) == [], "only a marker"
    assert (log.last_stable_offset, log.has_open_transaction(txn.producer_id, 0)) == (0, True)


async def test_read_committed_ends_at_first_open_transaction(cluster: Cluster, txn: TxnClient) -> None:
    await txn.write(b"aborted", sequence=0)
    await txn.end(committed=False)
    await txn.write(b"open", sequence=0)
    request = fetch_request({0: 0})
    request.isolation_level = 1
    part = (await txn.client.ask(request)).responses[0].partitions[0]
    assert (part.high_watermark, part.last_stable_offset) == (3, 2)
    assert [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()] == [
        (txn.producer_id, 0)
    ]
    log = cluster._state.partition("orders", 0).log
    assert part.records == log.read(0, 10_000, until=2) != log.read(0, 10_000)
    request.isolation_level = 0
    part = (await txn.client.ask(request)).responses[0].partitions[0]
    assert (part.aborted_transactions, part.records) == (None, log.read(0, 10_000))
    for isolation_level, end in ((0, 3), (1, 2)):
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
        ends = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name="orders", partitions=[asked])],
        )
        assert (await txn.client.ask(ends)).topics[0].partitions[0].offset == end


async def test_read_committed_waits_for_commit(cluster: Cluster, txn: TxnClient) -> None:
    await txn.write(b"a", sequence=0)
    async with await Client.to(cluster) as reader:
        request = fetch_request({0: 0}, max_wait_ms=60_000)
        request.isolation_level = 1
        waiting = asyncio.create_task(reader.ask(request))
        await cluster.on("fetch").happened()
        assert not waiting.done()
        await txn.end()
        assert (await waiting).responses[0].partitions[0].records


async def test_records_are_waited_for_and_markers_are_none(cluster: Cluster, txn: TxnClient) -> None:
    await txn.write(b"a", sequence=0)
    await txn.end()
    waiting = asyncio.create_task(cluster.wait_for_records("orders", 0, 2))
    await asyncio.sleep(0)
    assert not waiting.done()
    await txn.write(b"b", sequence=0)
    assert [record.value for record in await waiting] == [b"a", b"b"]


@in_virtual_time
async def test_transaction_times_out_by_the_clock_of_the_cluster() -> None:
    async with (
        Cluster(topics={"orders": 1}, transport="memory") as cluster,
        await Client.to(cluster) as client,
    ):
        txn = TxnClient(client)
        assert await txn.init(timeout_ms=600_000) == 0
        await txn.write(b"a", sequence=0)
        await asyncio.sleep(599)
        assert cluster.transaction_state(ID) == "Ongoing"
        await asyncio.sleep(2)
        assert cluster.transaction_state(ID) == "CompleteAbort"
        assert cluster.records("orders", 0, isolation_level="read_committed") == []


def test_cluster_on_a_thread_has_the_same() -> None:
    with ThreadedCluster(brokers=2, topics={"orders": 1}, transaction_version=1) as cluster:
        assert cluster.transaction_version == 1
        cluster.transaction_version = 2
        cluster.marker_delay_s = 0.5
        assert (cluster.transaction_version, cluster.marker_delay_s) == (2, 0.5)
        assert cluster.transaction_state(ID) is None
        cluster.move_coordinator(ID, to_broker=2)
        assert cluster.coordinator(ID) == 2
        cluster.join_group("g", "m", 1, instance_id="i")
        groups = cluster._cluster._state.groups
        assert cluster.committed_offset("g", "orders", 0) is None
        groups.add("g", 5, Target("orders", 0), CommittedOffset(7))
        groups.end("g", 5, committed=True)
        assert cluster.committed_offset("g", "orders", 0) == CommittedOffset(7)
        assert cluster.records("orders", 0, isolation_level="read_committed") == []
