"""Brokers, or proxies in front of brokers, that offer fewer versions of an API than this client sends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from aioproducer import GroupMetadata, Producer, TransactionAdmin
from aioproducer._core.protocol.admin import ListTransactionsRequest
from aioproducer._core.protocol.produce import InitProducerIdRequest, ProduceRequest
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    TxnOffsetCommitRequest,
)
from aioproducer.errors import CommitFailed, ProducerFenced, TransactionOutcomeUnknown, UnsupportedVersion
from aioproducer.testing import broker as broker_module
from aioproducer.testing.handlers import connect
from tests.scenarios.rig import TOPIC, cluster, scenario

GROUP = GroupMetadata("group", generation_id=3, member_id="member-1")
OFFSETS = {(TOPIC, 0): 5}
Cap = Callable[[Mapping[int, int]], None]

in_each_version = pytest.mark.parametrize("version", [0, 1, 2], ids=["TV0", "TV1", "TV2"])


@pytest.fixture
def cap(monkeypatch: pytest.MonkeyPatch) -> Cap:
    """Return a function that limits the versions of APIs, by key, that all brokers offer."""

    def limit(highest: Mapping[int, int]) -> None:
        offered = {
            key: (lowest, min(newest, highest.get(key, newest)))
            for key, (lowest, newest) in connect.OFFERED.items()
        }
        for module in connect, broker_module:
            monkeypatch.setattr(module, "OFFERED", offered)

    return limit


BEFORE_2_5 = {TxnOffsetCommitRequest.API_KEY: 2, ProduceRequest.API_KEY: 7, EndTxnRequest.API_KEY: 1}


@in_each_version
@pytest.mark.parametrize("records", [0, 1, 200])
@scenario
async def test_group_metadata_fails_its_call_alone(cap: Cap, version: int, records: int) -> None:
    cap(BEFORE_2_5)
    async with cluster(2, transaction_version=version) as opened:
        async with Producer(opened.bootstrap_servers, transactional_id="t") as producer:
            for _ in range(2):
                async with producer.transaction() as transaction:
                    for number in range(records):
                        _future = await producer.enqueue(TOPIC, b"%d" % number)
                    with pytest.raises(
                        UnsupportedVersion, match=r"older than Kafka 2.5 .* pass the group id"
                    ):
                        await transaction.send_offsets(OFFSETS, GROUP)
                    await transaction.send_offsets(OFFSETS, "group")
        assert len(opened.records(TOPIC, 0)) == 2 * records


@scenario
async def test_cancelled_offsets_with_group_metadata_fail_transaction(cap: Cap) -> None:
    cap(BEFORE_2_5)
    async with cluster(1) as opened, Producer(opened.bootstrap_servers, transactional_id="t") as producer:
        transaction = await producer.begin_transaction()
        await producer.send(TOPIC, b"first")
        call = asyncio.ensure_future(transaction.send_offsets(OFFSETS, GROUP))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(CommitFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"second")
        committed = [each.value for each in opened.records(TOPIC, 0, isolation_level="read_committed")]
        assert committed == [b"second"]


@pytest.mark.parametrize(
    "highest",
    [
        {ProduceRequest.API_KEY: 11},
        {EndTxnRequest.API_KEY: 4},
        {TxnOffsetCommitRequest.API_KEY: 4},
        {ProduceRequest.API_KEY: 7, EndTxnRequest.API_KEY: 1, TxnOffsetCommitRequest.API_KEY: 3},
    ],
    ids=["Produce", "EndTxn", "TxnOffsetCommit", "all"],
)
@pytest.mark.parametrize("records", [1, 500])
@scenario
async def test_transactions_run_behind_capped_versions(
    cap: Cap, highest: Mapping[int, int], records: int
) -> None:
    cap(highest)
    async with cluster(3, 3, transaction_version=2) as opened:
        async with Producer(opened.bootstrap_servers, transactional_id="t") as producer:
            for commit in True, False, True:
                await producer.begin_transaction()
                for number in range(records):
                    _future = await producer.enqueue(TOPIC, b"%d" % number, partition=number % 3)
                await producer.send_offsets_to_transaction(OFFSETS, "group")
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        committed = [
            each
            for partition in range(3)
            for each in opened.records(TOPIC, partition, isolation_level="read_committed")
        ]
        assert len(committed) == 2 * records


@pytest.mark.parametrize(
    ("highest", "arguments", "needed"),
    [
        (0, {"longer_than_ms": 5}, "longer_than_ms needs Kafka 3.8"),
        (1, {"pattern": "t.*"}, "pattern needs Kafka 4.1"),
    ],
)
@scenario
async def test_admin_names_the_filter_that_a_broker_lacks(
    cap: Cap, highest: int, arguments: dict[str, object], needed: str
) -> None:
    cap({ListTransactionsRequest.API_KEY: highest})
    async with cluster(2) as opened, TransactionAdmin(opened.bootstrap_servers) as admin:
        with pytest.raises(UnsupportedVersion, match=needed):
            await admin.list(**arguments)  # type: ignore[arg-type]
        assert await admin.list() == []


@scenario
async def test_transactions_without_coordinators_fail_the_start(cap: Cap) -> None:
    cap({FindCoordinatorRequest.API_KEY: 0})
    async with cluster(1) as opened:
        with pytest.raises(UnsupportedVersion, match="FindCoordinator"):
            await Producer(opened.bootstrap_servers, transactional_id="t").start()


BEFORE_2_7 = {
    InitProducerIdRequest.API_KEY: 3,
    AddPartitionsToTxnRequest.API_KEY: 1,
    AddOffsetsToTxnRequest.API_KEY: 1,
    EndTxnRequest.API_KEY: 1,
}


@pytest.mark.parametrize("end", ["commit", "abort", "offsets", "send"])
@scenario
async def test_older_producer_is_fenced_by_brokers_before_2_7(cap: Cap, end: str) -> None:
    cap(BEFORE_2_7)
    async with cluster(1, transaction_version=1) as opened:
        async with Producer(opened.bootstrap_servers, transactional_id="t") as first:
            await first.begin_transaction()
            if end != "send":
                await first.send(TOPIC, b"first")
            async with Producer(opened.bootstrap_servers, transactional_id="t"):
                calls: dict[str, Callable[[], Awaitable[object]]] = {
                    "commit": first.commit_transaction,
                    "abort": first.abort_transaction,
                    "offsets": lambda: first.send_offsets_to_transaction(OFFSETS, "group"),
                    "send": lambda: first.send(TOPIC, b"late"),
                }
                with pytest.raises(ProducerFenced) as fenced:
                    await calls[end]()
                assert fenced.value.fatal
        assert opened.records(TOPIC, 0, isolation_level="read_committed") == []


@pytest.mark.parametrize("commit", [True, False])
@in_each_version
@scenario
async def test_end_of_empty_transaction_is_unknown_before_3_0(cap: Cap, version: int, commit: bool) -> None:
    cap({DescribeTransactionsRequest.API_KEY: -1, ListTransactionsRequest.API_KEY: -1})
    async with cluster(1, transaction_version=version) as opened:
        async with (
            Producer(opened.bootstrap_servers, transactional_id="t") as producer,
            producer.transaction() as transaction,
        ):
            prepared = await transaction.prepare()
        async with TransactionAdmin(opened.bootstrap_servers) as admin:
            if version == 2 and not commit:  # this version aborts an empty transaction
                await admin.end(prepared, commit=False)
                return
            with pytest.raises(TransactionOutcomeUnknown):
                await admin.end(prepared, commit=commit)
