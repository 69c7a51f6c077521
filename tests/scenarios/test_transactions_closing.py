"""Ends of transactions that are cut short: by a close, by an outage, by each other; on the in-process broker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import (
    CommitFailed,
    PreparedTransaction,
    Producer,
    ProducerClosed,
    ProducerFenced,
    TransactionAdmin,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)
from aioproducer.errors import BrokerError, InvalidRecord, NotEnoughReplicas, ProducerError
from tests.cases import for_each
from tests.scenarios.rig import cluster, now, scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.testing import Cluster

ID = "orders-1"
in_each_version = pytest.mark.parametrize("version", [1, 2], ids=["TV1", "TV2"])


def producer_of(opened: Cluster, **options: Any) -> Producer:
    return Producer(opened.bootstrap_servers, transactional_id=ID, **options)


@asynccontextmanager
async def half_written(version: int) -> AsyncIterator[tuple[Cluster, Producer, Any, asyncio.Task[Any]]]:
    """Yield a producer whose transaction has one stored record and one record that is refused for now."""
    async with cluster(partitions=2, transaction_version=version) as opened:
        producer = producer_of(opened)
        await producer.start()
        transaction = await producer.begin_transaction()
        await producer.send("orders", b"1", partition=0)
        opened.on("produce", topic="orders", partition=1, times=None).answer(NotEnoughReplicas)
        second = asyncio.create_task(producer.send("orders", b"2", partition=1))
        await asyncio.sleep(0.05)
        try:
            yield opened, producer, transaction, second
        finally:
            await producer.close(0)


async def closed_by(producer: Producer, how: str) -> None:
    if how != "cancelled":
        await producer.close(float(how))
        return
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0.2)
    closing.cancel()
    await asyncio.wait([closing])


@for_each("how", ["0", "1", "cancelled"])
@in_each_version
@scenario
async def test_close_prevents_a_commit_of_remaining_records(version: int, how: str) -> None:
    async with half_written(version) as (opened, producer, _, second):
        ends = opened.on("end_txn", times=None)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.3)
        await closed_by(producer, how)
        with pytest.raises(CommitFailed, match="ProducerClosed"):
            await committing
        with pytest.raises(ProducerClosed):
            await second
        await asyncio.sleep(1)
        assert ends.hits == 0
        assert opened.records("orders", 0, isolation_level="read_committed") == []


@in_each_version
@scenario
async def test_close_prevents_a_prepare_of_remaining_records(version: int) -> None:
    async with half_written(version) as (_, producer, transaction, second):
        preparing = asyncio.create_task(transaction.prepare())
        await asyncio.sleep(0.3)
        await producer.close(0)
        with pytest.raises(CommitFailed, match="ProducerClosed"):
            await preparing
        with pytest.raises(ProducerClosed):
            await second


@in_each_version
@scenario
async def test_close_during_end_txn_leaves_the_outcome_unknown(version: int) -> None:
    async with cluster(transaction_version=version) as opened:
        producer = producer_of(opened)
        await producer.start()
        await producer.begin_transaction()
        await producer.send("orders", b"1")
        opened.on("end_txn", times=None).drop(before_append=False)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.3)
        await producer.close(0)
        with pytest.raises(TransactionOutcomeUnknown, match="closed before the coordinator responded"):
            await committing
        assert opened.transaction_state(ID) == "CompleteCommit"


@in_each_version
@scenario
async def test_fenced_commit_reports_only_certain_outcomes(version: int) -> None:
    async with cluster(transaction_version=version) as opened:
        producer = producer_of(opened)
        await producer.start()
        await producer.begin_transaction()
        await producer.send("orders", b"1")
        opened.on("end_txn").drop(before_append=False)
        with pytest.raises(TransactionOutcomeUnknown, match="the request is still pending"):
            await producer.commit_transaction(timeout_s=0.3)
        async with producer_of(opened):
            opened.disconnect(1)
            await asyncio.sleep(1.5)
            for _ in range(2):
                with pytest.raises(TransactionOutcomeUnknown, match="the outcome is unknown") as raised:
                    await producer.commit_transaction(timeout_s=2)
                assert raised.value.fatal
        assert len(opened.records("orders", 0, isolation_level="read_committed")) == 1
        await producer.close(0)


@scenario
async def test_finished_commit_succeeds_despite_a_later_failure() -> None:
    async with cluster(transaction_version=1) as opened:
        producer = producer_of(opened)
        await producer.start()
        await producer.begin_transaction()
        await producer.send("orders", b"1")
        opened.on("end_txn").close(before_append=False)
        opened.on("init_producer_id").delay(0.8).answer(ProducerFenced)
        with pytest.raises(TransactionOutcomeUnknown):
            await producer.commit_transaction(timeout_s=0.5)
        await asyncio.sleep(3)
        assert producer.state == "failed"
        await producer.commit_transaction(timeout_s=2)
        with pytest.raises(ProducerFenced):
            await producer.begin_transaction()
        await producer.close(0)


@scenario
async def test_refusal_is_final_when_no_other_node_answers() -> None:
    async with cluster(brokers=2) as opened:
        coordinator = opened.coordinator(ID)
        assert coordinator is not None
        opened.move_leader("orders", 0, to_broker=coordinator)
        producer = producer_of(opened)
        await producer.start()
        await producer.begin_transaction()
        await producer.send("orders", b"1", partition=0)
        async with producer_of(opened):
            pass
        await opened.stop_broker(3 - coordinator)
        began_at = now()
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction(timeout_s=30)
        assert now() - began_at < 5
        await producer.close(0)


@scenario
async def test_prepared_transaction_survives_a_failed_commit() -> None:
    async with cluster() as opened:
        producer = producer_of(opened)
        await producer.start()
        transaction = await producer.begin_transaction()
        await producer.send("orders", b"1")
        prepared: PreparedTransaction = await transaction.prepare()
        await opened.stop_broker(1)
        with pytest.raises(TransactionOutcomeUnknown):
            await producer.commit_transaction(timeout_s=0.5)
        await producer.close(0)
        await opened.start_broker(1)
        async with TransactionAdmin(opened.bootstrap_servers) as admin:
            await admin.end(prepared, commit=True)
        assert opened.transaction_state(ID) == "CompleteCommit"


@scenario
async def test_failed_commit_is_raised_despite_an_unanswered_abort() -> None:
    async with cluster() as opened:
        producer = producer_of(opened, max_block_ms=700)
        await producer.start()

        async def block() -> None:
            async with producer.transaction():
                await producer.send("orders", b"1")
                opened.on("produce").answer(InvalidRecord)
                with pytest.raises(InvalidRecord):
                    await producer.send("orders", b"2")
                opened.on("end_txn", times=None).drop()

        with pytest.raises(CommitFailed, match="InvalidRecord"):
            await block()
        await producer.close(0)


@pytest.mark.parametrize(
    ("refusal", "kind"), [(ProducerFenced, ProducerFenced), (InvalidRecord, CommitFailed)]
)
@scenario
async def test_commit_fails_at_once_after_a_failure(
    refusal: type[BrokerError], kind: type[ProducerError]
) -> None:
    async with cluster(brokers=2, partitions=2) as opened:
        for partition in range(2):
            opened.move_leader("orders", partition, to_broker=1 + partition)
        producer = producer_of(opened)
        await producer.start()
        await producer.begin_transaction()
        await producer.send_many("orders", [b"1", b"2"], partitions=[0, 1])
        opened.on("produce", partition=1, times=None).drop()
        opened.on("produce", partition=0).delay(0.3).answer(refusal)
        sending = [asyncio.create_task(producer.send("orders", b"3", partition=each)) for each in range(2)]
        await asyncio.sleep(0.01)
        began_at = now()
        with pytest.raises(kind):
            await producer.commit_transaction(timeout_s=20)
        assert now() - began_at < 1
        await producer.close(0)
        assert all(
            isinstance(each, ProducerError) for each in await asyncio.gather(*sending, return_exceptions=True)
        )


@scenario
async def test_two_commits_that_are_late_together_leave_one_abort() -> None:
    async with cluster() as opened:
        producer = producer_of(opened, max_block_ms=300)
        await producer.start()
        await producer.begin_transaction()
        await producer.send("orders", b"1", partition=0)
        opened.on("produce").delay(2)
        sending = asyncio.create_task(producer.send("orders", b"2", partition=0))
        await asyncio.sleep(0.05)

        async def end() -> None:
            with pytest.raises((CommitFailed, TransactionTimeout)):
                await producer.commit_transaction()
            with pytest.raises(TransactionTimeout):
                await producer.abort_transaction(timeout_s=0.3)

        await asyncio.gather(end(), end())
        await producer.abort_transaction(timeout_s=5)
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("orders", b"3", partition=0)
        await producer.close()
        await asyncio.gather(sending, return_exceptions=True)
        seen = opened.records("orders", 0, isolation_level="read_committed")
        assert [each.value for each in seen] == [b"3"]


@scenario
async def test_closed_admin_fails_pending_calls_at_once() -> None:
    async with cluster() as opened:
        async with producer_of(opened) as producer:
            transaction = await producer.begin_transaction()
            await producer.send("orders", b"1")
            prepared = await transaction.prepare()
        opened.on("end_txn", times=None).drop()
        async with TransactionAdmin(opened.bootstrap_servers) as admin:
            ending = asyncio.create_task(admin.end(prepared, commit=True))
            await asyncio.sleep(0.3)
        with pytest.raises(TransactionOutcomeUnknown, match="the admin was closed"):
            await ending
