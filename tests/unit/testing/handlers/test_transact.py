from __future__ import annotations

import pytest

from aioproducer._core.protocol.admin import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    ProducerState,
    TopicRequest,
)
from aioproducer._core.protocol.produce import InitProducerIdRequest
from aioproducer._core.protocol.transactions import DescribeTransactionsRequest, TopicData
from aioproducer.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidRegularExpression,
    NotCoordinator,
    NotLeaderOrFollower,
    ProducerFenced,
    RequestTimedOut,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from aioproducer.testing import Cluster
from aioproducer.testing.handlers.transact import OPERATION_NOT_ATTEMPTED
from tests.unit.testing.client import Client
from tests.unit.testing.transactions import ID, TxnClient

ASK_ID = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)


@pytest.fixture
async def txn(cluster: Cluster, client: Client) -> TxnClient:
    cluster.move_coordinator(ID, to_broker=1)
    txn = TxnClient(client)
    assert await txn.init() == 0
    return txn


@pytest.mark.parametrize("version", range(6))
async def test_every_version_gives_each_producer_an_id_of_its_own(client: Client, version: int) -> None:
    first, second = await client.ask(ASK_ID, version), await client.ask(ASK_ID, version)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (0, 0, 0)
    assert 0 <= first.producer_id < second.producer_id


async def test_idempotent_producer_that_asks_again_gets_a_new_id(client: Client) -> None:
    first = await client.ask(ASK_ID)
    again = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1, producer_id=first.producer_id, producer_epoch=3
    )
    second = await client.ask(again)
    assert second.producer_id != first.producer_id
    assert second.producer_epoch == 0


async def test_nodes_return_distinct_producer_ids(cluster: Cluster, client: Client) -> None:
    async with await Client.to(cluster, 2) as other:
        assert (await client.ask(ASK_ID)).producer_id != (await other.ask(ASK_ID)).producer_id


async def test_other_node_refuses_transactional_id(cluster: Cluster, txn: TxnClient) -> None:
    cluster.move_coordinator(ID, to_broker=2)
    assert await txn.init() == NotCoordinator.code
    assert await txn.add(0) == {0: NotCoordinator.code}
    assert await txn.add_group("g") == NotCoordinator.code
    assert await txn.end() == NotCoordinator.code


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(cluster: Cluster, txn: TxnClient, version: int) -> None:
    assert await txn.add(0, 2, version=version) == {0: 0, 2: 0}
    assert cluster.transaction_state(ID) == "Ongoing"


async def test_unknown_partition_prevents_the_addition_of_others(cluster: Cluster, txn: TxnClient) -> None:
    assert await txn.add(0, 9) == {0: OPERATION_NOT_ATTEMPTED, 9: UnknownTopicOrPartition.code}
    assert cluster.transaction_state(ID) == "Empty"


@pytest.mark.parametrize("version", range(5))
async def test_group_is_added(cluster: Cluster, txn: TxnClient, version: int) -> None:
    assert await txn.add_group("g", version=version) == 0
    assert cluster.transaction_state(ID) == "Ongoing"


@pytest.mark.parametrize("version", range(6))
async def test_end_txn_v5_returns_next_epoch(cluster: Cluster, txn: TxnClient, version: int) -> None:
    await txn.add(0)
    assert await txn.end(version=version) == 0
    assert txn.epoch == (1 if version == 5 else 0)
    assert cluster.transaction_state(ID) == "CompleteCommit"


@pytest.mark.parametrize(("version", "error"), [(1, InvalidProducerEpoch), (2, ProducerFenced)])
async def test_old_versions_know_no_fencing(txn: TxnClient, version: int, error: type[BrokerError]) -> None:
    txn.epoch = -2
    assert await txn.add(0, version=version) == {0: error.code}
    assert await txn.add_group("g", version=version) == error.code
    assert await txn.end(version=version) == error.code


@pytest.mark.parametrize(("version", "error"), [(3, InvalidProducerEpoch), (4, ProducerFenced)])
async def test_old_init_versions_know_no_fencing(
    txn: TxnClient, version: int, error: type[BrokerError]
) -> None:
    txn.producer_id += 1
    assert await txn.init(own=True, version=version) == error.code


async def test_next_transaction_waits_for_markers(cluster: Cluster, txn: TxnClient) -> None:
    cluster.marker_delay_s = 0.05
    await txn.add(0)
    assert await txn.end(version=4) == 0
    assert cluster.transaction_state(ID) == "PrepareCommit"
    busy = ConcurrentTransactions.code
    assert [await txn.add(0), await txn.add_group("g"), await txn.init()] == [{0: busy}, busy, busy]
    assert await txn.end(version=4) == busy
    await cluster._state.timers.wait_until_complete(ID)
    assert cluster.transaction_state(ID) == "CompleteCommit"
    assert await txn.end(version=4) == 0


class TestFaults:
    """Refused before it is done, or after."""

    async def test_rule_fails_init_producer_id_before_or_after_it(
        self, cluster: Cluster, txn: TxnClient
    ) -> None:
        cluster.on("init_producer_id").answer(TransactionalIdAuthorizationFailed)
        assert await txn.init() == TransactionalIdAuthorizationFailed.code
        cluster.on("init_producer_id").answer(RequestTimedOut, before_append=False)
        assert await txn.init() == RequestTimedOut.code
        assert await txn.init() == 0
        assert txn.epoch == 2

    async def test_rule_fails_add_partitions_to_txn_before_or_after_it(
        self, cluster: Cluster, txn: TxnClient
    ) -> None:
        cluster.on("add_partitions_to_txn", partition=2).answer(RequestTimedOut)
        assert await txn.add(0, 2) == {0: OPERATION_NOT_ATTEMPTED, 2: RequestTimedOut.code}
        assert cluster.transaction_state(ID) == "Empty"
        cluster.on("add_partitions_to_txn", partition=2).answer(RequestTimedOut, before_append=False)
        assert await txn.add(0, 2) == {0: 0, 2: RequestTimedOut.code}
        assert cluster.transaction_state(ID) == "Ongoing"

    async def test_rule_fails_add_offsets_to_txn_before_or_after_it(
        self, cluster: Cluster, txn: TxnClient
    ) -> None:
        cluster.on("add_offsets_to_txn").answer(RequestTimedOut)
        assert await txn.add_group("g") == RequestTimedOut.code
        assert cluster.transaction_state(ID) == "Empty"
        cluster.on("add_offsets_to_txn").answer(RequestTimedOut, before_append=False)
        assert await txn.add_group("g") == RequestTimedOut.code
        assert cluster.transaction_state(ID) == "Ongoing"

    async def test_rule_fails_end_txn_before_or_after_it(self, cluster: Cluster, txn: TxnClient) -> None:
        await txn.add(0)
        cluster.on("end_txn").answer(RequestTimedOut)
        assert await txn.end() == RequestTimedOut.code
        assert cluster.transaction_state(ID) == "Ongoing"
        cluster.on("end_txn").answer(RequestTimedOut, before_append=False)
        assert await txn.end() == RequestTimedOut.code
        assert cluster.transaction_state(ID) == "CompleteCommit"
        assert [await txn.end(), txn.epoch] == [0, 1]

    async def test_transaction_may_end_without_a_response(self, cluster: Cluster, txn: TxnClient) -> None:
        await txn.add(0)
        cluster.on("end_txn").close(before_append=False)
        txn.client.send(txn.end_request())
        assert await txn.client.is_closed()
        assert cluster.transaction_state(ID) == "CompleteCommit"


@pytest.fixture
async def coordinated(cluster: Cluster, client: Client) -> TxnClient:
    cluster.move_coordinator(ID, to_broker=1)
    coordinated = TxnClient(client)
    assert await coordinated.init(timeout_ms=12_345) == 0
    return coordinated


async def test_transaction_is_described_with_its_partitions(coordinated: TxnClient) -> None:
    await coordinated.add(2, 0)
    (state,) = (
        await coordinated.client.ask(DescribeTransactionsRequest(transactional_ids=[ID]))
    ).transaction_states
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", 12_345)
    assert (state.producer_id, state.producer_epoch) == (coordinated.producer_id, coordinated.epoch)
    assert state.transaction_start_time_ms > 0
    assert state.topics == [TopicData(topic="orders", partitions=(0, 2))]


async def test_known_ids_are_described_by_their_coordinator(cluster: Cluster, coordinated: TxnClient) -> None:
    cluster.move_coordinator("elsewhere", to_broker=2)
    cluster.move_coordinator("nobody", to_broker=1)
    request = DescribeTransactionsRequest(transactional_ids=[ID, "elsewhere", "nobody"])
    states = (await coordinated.client.ask(request)).transaction_states
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
    coordinated: TxnClient, request_: ListTransactionsRequest, listed: bool
) -> None:
    await coordinated.add(0)
    answer = await coordinated.client.ask(request_)
    found = [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]
    assert found == ([(ID, "Ongoing")] if listed else [])


async def test_node_lists_its_own_ids(cluster: Cluster, coordinated: TxnClient) -> None:
    async with await Client.to(cluster, 2) as other:
        assert (await other.ask(ListTransactionsRequest())).transaction_states == []
        cluster.move_coordinator(ID, to_broker=2)
        assert len((await other.ask(ListTransactionsRequest())).transaction_states) == 1
    assert (await coordinated.client.ask(ListTransactionsRequest())).transaction_states == []


async def test_unknown_state_filter_is_returned(coordinated: TxnClient) -> None:
    answer = await coordinated.client.ask(ListTransactionsRequest(state_filters=["Ongoing", "Asleep"]))
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Asleep"], [])


async def test_malformed_pattern_is_refused(coordinated: TxnClient) -> None:
    answer = await coordinated.client.ask(ListTransactionsRequest(transactional_id_pattern="("))
    assert answer.error_code == InvalidRegularExpression.code


async def test_producers_are_described_by_the_leader(cluster: Cluster, coordinated: TxnClient) -> None:
    await coordinated.write(b"a", sequence=0)
    await coordinated.end()
    await coordinated.write(b"b", b"c", sequence=0)
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=(0, 1, 2))])
    led, elsewhere, empty = (await coordinated.client.ask(request)).topics[0].partitions
    assert led.active_producers == [
        ProducerState(
            producer_id=coordinated.producer_id,
            producer_epoch=1,
            last_sequence=1,
            coordinator_epoch=0,
            current_txn_start_offset=2,
        )
    ]
    assert elsewhere.error_code == NotLeaderOrFollower.code
    assert empty.active_producers == []
    await coordinated.end()
    (after, *_) = (await coordinated.client.ask(request)).topics[0].partitions
    (producer,) = after.active_producers
    assert (producer.producer_epoch, producer.last_sequence, producer.current_txn_start_offset) == (2, -1, -1)


async def test_rule_refuses_administration_requests(cluster: Cluster, coordinated: TxnClient) -> None:
    for request in ("describe_transactions", "list_transactions", "describe_producers"):
        cluster.on(request).answer(ClusterAuthorizationFailed)
    refused = ClusterAuthorizationFailed.code
    described = await coordinated.client.ask(DescribeTransactionsRequest(transactional_ids=[ID]))
    assert described.transaction_states[0].error_code == refused
    assert (await coordinated.client.ask(ListTransactionsRequest())).error_code == refused
    request_ = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=(0,))])
    assert (await coordinated.client.ask(request_)).topics[0].partitions[0].error_code == refused
