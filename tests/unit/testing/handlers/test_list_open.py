from __future__ import annotations

import pytest

from aioproducer._core.protocol.admin import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    ProducerState,
    TopicRequest,
)
from aioproducer._core.protocol.transactions import DescribeTransactionsRequest, TopicData
from aioproducer.errors import (
    ClusterAuthorizationFailed,
    InvalidRegularExpression,
    NotCoordinator,
    NotLeaderOrFollower,
    TransactionalIdNotFound,
)
from aioproducer.testing import Cluster
from tests.unit.testing.client import Client
from tests.unit.testing.transactions import ID, TxnClient


@pytest.fixture
async def txn(cluster: Cluster, client: Client) -> TxnClient:
    cluster.move_coordinator(ID, to_broker=1)
    txn = TxnClient(client)
    assert await txn.init(timeout_ms=12_345) == 0
    return txn


async def test_a_transaction_is_described_with_its_partitions(txn: TxnClient) -> None:
    await txn.add(2, 0)
    (state,) = (await txn.client.ask(DescribeTransactionsRequest(transactional_ids=[ID]))).transaction_states
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", 12_345)
    assert (state.producer_id, state.producer_epoch) == (txn.producer_id, txn.epoch)
    assert state.transaction_start_time_ms > 0
    assert state.topics == [TopicData(topic="orders", partitions=(0, 2))]


async def test_ids_are_described_by_their_coordinator_if_they_are_known(
    cluster: Cluster, txn: TxnClient
) -> None:
    cluster.move_coordinator("elsewhere", to_broker=2)
    cluster.move_coordinator("nobody", to_broker=1)
    request = DescribeTransactionsRequest(transactional_ids=[ID, "elsewhere", "nobody"])
    states = (await txn.client.ask(request)).transaction_states
    assert [each.error_code for each in states] == [0, NotCoordinator.code, TransactionalIdNotFound.code]
    assert [each.transactional_id for each in states] == [ID, "elsewhere", "nobody"]


@pytest.mark.parametrize(
    ("request_", "listed"),
    [
        (ListTransactionsRequest(), True),
        (ListTransactionsRequest(state_filters=["Ongoing"]), True),
        (ListTransactionsRequest(state_filters=["Empty", "PrepareAbort"]), False),
        (ListTransactionsRequest(producer_id_filters=(7,)), False),
        (ListTransactionsRequest(duration_filter=1_000_000), False),
        (ListTransactionsRequest(duration_filter=-1), True),
        (ListTransactionsRequest(transactional_id_pattern="t"), False),
        (ListTransactionsRequest(transactional_id_pattern="t."), True),
        (ListTransactionsRequest(transactional_id_pattern=""), True),
    ],
)
async def test_ids_are_listed_that_pass_all_filters(
    txn: TxnClient, request_: ListTransactionsRequest, listed: bool
) -> None:
    await txn.add(0)
    answer = await txn.client.ask(request_)
    found = [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]
    assert found == ([(ID, "Ongoing")] if listed else [])


async def test_each_node_lists_its_own(cluster: Cluster, txn: TxnClient) -> None:
    async with await Client.to(cluster, 2) as other:
        assert (await other.ask(ListTransactionsRequest())).transaction_states == []
        cluster.move_coordinator(ID, to_broker=2)
        assert len((await other.ask(ListTransactionsRequest())).transaction_states) == 1
    assert (await txn.client.ask(ListTransactionsRequest())).transaction_states == []


async def test_a_state_that_there_is_not_is_told(txn: TxnClient) -> None:
    answer = await txn.client.ask(ListTransactionsRequest(state_filters=["Ongoing", "Asleep"]))
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Asleep"], [])


async def test_a_pattern_that_makes_no_sense_is_refused(txn: TxnClient) -> None:
    answer = await txn.client.ask(ListTransactionsRequest(transactional_id_pattern="("))
    assert answer.error_code == InvalidRegularExpression.code


async def test_producers_are_described_by_who_leads_their_partition(cluster: Cluster, txn: TxnClient) -> None:
    await txn.write(b"a", sequence=0)
    await txn.end()
    await txn.write(b"b", b"c", sequence=0)
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=(0, 1, 2))])
    led, elsewhere, empty = (await txn.client.ask(request)).topics[0].partitions
    assert led.active_producers == [
        ProducerState(
            producer_id=txn.producer_id,
            producer_epoch=1,
            last_sequence=1,
            coordinator_epoch=0,
            current_txn_start_offset=2,
        )
    ]
    assert elsewhere.error_code == NotLeaderOrFollower.code
    assert empty.active_producers == []
    await txn.end()
    (after, *_) = (await txn.client.ask(request)).topics[0].partitions
    (producer,) = after.active_producers
    assert (producer.producer_epoch, producer.last_sequence, producer.current_txn_start_offset) == (2, -1, -1)


async def test_the_script_can_refuse_them(cluster: Cluster, txn: TxnClient) -> None:
    for request in ("describe_transactions", "list_transactions", "describe_producers"):
        cluster.on(request).answer(ClusterAuthorizationFailed)
    refused = ClusterAuthorizationFailed.code
    described = await txn.client.ask(DescribeTransactionsRequest(transactional_ids=[ID]))
    assert described.transaction_states[0].error_code == refused
    assert (await txn.client.ask(ListTransactionsRequest())).error_code == refused
    request_ = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=(0,))])
    assert (await txn.client.ask(request_)).topics[0].partitions[0].error_code == refused
