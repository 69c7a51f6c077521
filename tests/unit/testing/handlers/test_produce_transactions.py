"""Produce requests of transactional producers: batches inside and outside of a transaction."""

from __future__ import annotations

import pytest

from aioproducer.errors import (
    BrokerError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
)
from aioproducer.testing import Cluster
from tests.unit.testing.client import Client
from tests.unit.testing.transactions import ID, TxnClient


@pytest.fixture
async def txn(cluster: Cluster, client: Client) -> TxnClient:
    cluster.move_coordinator(ID, to_broker=1)
    txn = TxnClient(client)
    assert await txn.init() == 0
    return txn


def committed(cluster: Cluster) -> list[bytes | None]:
    return [each.value for each in cluster.records("orders", 0, isolation_level="read_committed")]


@pytest.mark.parametrize("version", range(3, 13))
async def test_transaction_is_seen_when_it_is_committed(
    cluster: Cluster, txn: TxnClient, version: int
) -> None:
    if version < 12:
        assert await txn.add(0) == {0: 0}
    assert (await txn.write(b"a", b"b", sequence=0, version=version)).error_code == 0
    assert (await txn.write(b"c", sequence=2, version=version)).base_offset == 2
    assert committed(cluster) == []
    assert await txn.end() == 0
    assert committed(cluster) == [b"a", b"b", b"c"]
    *data, marker = cluster.batches("orders", 0)
    assert [batch.control for batch in data] == [False, False]
    assert (marker.control, marker.transactional, marker.base_offset, marker.producer_epoch) == (
        True,
        True,
        3,
        1,
    )
    assert (marker.records[0].key, marker.records[0].value) == (bytes([0, 0, 0, 1]), bytes(6))


async def test_aborted_records_are_never_read(cluster: Cluster, txn: TxnClient) -> None:
    await txn.write(b"a", sequence=0)
    assert await txn.end(committed=False) == 0
    await txn.write(b"b", sequence=0)
    assert await txn.end() == 0
    assert committed(cluster) == [b"b"]
    assert [each.value for each in cluster.records("orders", 0)] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("version", "error"), [(3, InvalidTxnState), (10, InvalidTxnState), (11, TransactionAbortable)]
)
async def test_partition_must_be_added_up_to_v11(
    cluster: Cluster, txn: TxnClient, version: int, error: type[BrokerError]
) -> None:
    assert (await txn.write(b"a", sequence=0, version=version)).error_code == error.code
    assert await txn.add(2) == {2: 0}
    assert (await txn.write(b"a", sequence=0, version=version)).error_code == error.code
    assert cluster.records("orders", 0) == []


async def test_completing_transaction_is_retriable_up_to_v11(cluster: Cluster, txn: TxnClient) -> None:
    cluster.marker_delay_s = 60
    await txn.add(0)
    assert await txn.end(version=4) == 0
    assert (await txn.write(b"a", sequence=0, version=11)).error_code == NotEnoughReplicas.code


async def test_produce_v12_waits_for_previous_transaction(cluster: Cluster, txn: TxnClient) -> None:
    cluster.marker_delay_s = 0.02
    await txn.write(b"a", sequence=0)
    await txn.end()
    assert (await txn.write(b"b", sequence=0)).base_offset == 2
    cluster.marker_delay_s = 0
    await txn.end()
    assert committed(cluster) == [b"a", b"b"]


async def test_refused_batch_has_added_its_partition(cluster: Cluster, txn: TxnClient) -> None:
    assert (await txn.write(b"a", sequence=1)).error_code == OutOfOrderSequenceNumber.code
    assert cluster.transaction_state(ID) == "Ongoing"


async def test_refused_producer_adds_no_partition(cluster: Cluster, txn: TxnClient) -> None:
    cluster.on("produce").answer(TopicAuthorizationFailed)
    assert (await txn.write(b"a", sequence=0)).error_code == TopicAuthorizationFailed.code
    assert cluster.transaction_state(ID) == "Empty"


async def test_batch_of_a_transaction_needs_the_id_in_its_request(txn: TxnClient) -> None:
    answer = await txn.write(b"a", sequence=0, named=False)
    assert answer.error_code == TransactionalIdAuthorizationFailed.code


async def test_plain_batch_is_refused_within_transaction(cluster: Cluster, txn: TxnClient) -> None:
    assert (await txn.write(b"a", sequence=0, transactional=False)).error_code == 0
    assert committed(cluster) == [b"a"]
    assert (await txn.write(b"b", sequence=1)).error_code == 0
    inside = await txn.write(b"c", sequence=2, transactional=False)
    assert inside.error_code == InvalidTxnState.code


@pytest.mark.parametrize("version", [11, 12])
async def test_other_epoch_or_id_is_refused(txn: TxnClient, version: int) -> None:
    txn.epoch += 1
    assert (await txn.write(b"a", sequence=0, version=version)).error_code == InvalidProducerEpoch.code
    txn.producer_id += 1
    assert (await txn.write(b"a", sequence=0, version=version)).error_code == InvalidProducerIdMapping.code


async def test_sequences_continue_within_an_epoch(txn: TxnClient) -> None:
    await txn.add(0)
    assert (await txn.write(b"a", sequence=0, version=11)).base_offset == 0
    await txn.end(version=4)
    await txn.add(0)
    assert (await txn.write(b"b", sequence=0, version=11)).base_offset == 0, "a duplicate"
    await txn.end(version=4)
    await txn.add(0)
    assert (await txn.write(b"b", sequence=1, version=11)).base_offset == 3


async def test_zombie_is_refused_after_markers(cluster: Cluster, txn: TxnClient) -> None:
    cluster.marker_delay_s = 60
    await txn.write(b"a", sequence=0)
    zombie = TxnClient(txn.client)
    zombie.producer_id, zombie.epoch = txn.producer_id, txn.epoch
    assert await txn.end() == 0
    assert (await zombie.write(b"b", sequence=1)).error_code == 0, "it joins, as with Kafka"
    cluster._state.timers._complete(cluster._state.coordinator.transactions[ID])
    assert (await zombie.write(b"c", sequence=2)).error_code == InvalidProducerEpoch.code
    assert committed(cluster) == [b"a", b"b"]
