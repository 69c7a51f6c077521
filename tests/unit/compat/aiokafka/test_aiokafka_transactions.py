from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aioproducer import GroupMetadata, errors as ours
from aioproducer.compat.aiokafka import AIOKafkaProducer, IllegalOperation
from aioproducer.compat.aiokafka.errors import (
    IllegalGenerationError,
    KafkaTimeoutError,
    ProducerFenced,
    TopicAuthorizationFailedError,
)
from aioproducer.compat.aiokafka.structs import TopicPartition
from aioproducer.compat.aiokafka.translation import translated
from aioproducer.testing import Cluster, in_virtual_time

TOPIC = "orders"


@asynccontextmanager
async def transactional() -> AsyncIterator[tuple[AIOKafkaProducer, Cluster]]:
    async with (
        Cluster(topics={TOPIC: 1, "in": 1}, transport="memory") as cluster,
        AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="me", request_timeout_ms=1_000
        ) as producer,
    ):
        yield producer, cluster


def committed(cluster: Cluster) -> list[bytes | None]:
    return [each.value for each in cluster.records(TOPIC, 0, isolation_level="read_committed")]


@in_virtual_time
async def test_without_an_id_there_are_none() -> None:
    async with (
        Cluster(transport="memory") as cluster,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            producer.transaction().__aenter__,
            lambda: producer.send_offsets_to_transaction({TopicPartition("in", 0): 1}, "group"),
        ):
            with pytest.raises(IllegalOperation, match="transactional_id"):
                await call()


@pytest.mark.parametrize(("offsets", "group"), [({}, "g"), ({TopicPartition("in", 0): 1}, ""), ({}, "")])
@in_virtual_time
async def test_empty_offsets_need_a_transaction_first(offsets: dict[TopicPartition, int], group: str) -> None:
    async with transactional() as (producer, _):
        with pytest.raises(IllegalOperation):
            await producer.send_offsets_to_transaction(offsets, group)
        async with producer.transaction():
            with pytest.raises(ValueError, match="neither may be empty"):
                await producer.send_offsets_to_transaction(offsets, group)


@in_virtual_time
async def test_commit_waits_for_as_long_as_it_takes() -> None:
    async with transactional() as (producer, cluster):
        async with producer.transaction():
            _ = await producer.send(TOPIC, b"1")
            cluster.on("end_txn", times=3).drop()
        await producer.begin_transaction()
        _ = await producer.send(TOPIC, b"2")
        cluster.on("end_txn", times=3).drop()
        await producer.commit_transaction()
        await asyncio.sleep(1)
        assert committed(cluster) == [b"1", b"2"]


@in_virtual_time
async def test_commit_says_what_failed_and_abort_mends_it() -> None:
    async with transactional() as (producer, cluster):
        cluster.on("produce").answer(ours.TopicAuthorizationFailed)
        await producer.begin_transaction()
        _ = await producer.send(TOPIC, b"1")
        with pytest.raises(TopicAuthorizationFailedError) as caught:
            await producer.commit_transaction()
        assert isinstance(caught.value.__cause__, ours.CommitFailed)
        await producer.abort_transaction()
        async with producer.transaction():
            _ = await producer.send(TOPIC, b"2")
        await asyncio.sleep(1)
        assert committed(cluster) == [b"2"]


@in_virtual_time
async def test_a_block_that_cannot_be_committed_is_aborted() -> None:
    async with transactional() as (producer, cluster):
        cluster.on("produce").answer(ours.TopicAuthorizationFailed)
        with pytest.raises(TopicAuthorizationFailedError):
            async with producer.transaction():
                _ = await producer.send(TOPIC, b"1")
        async with producer.transaction():
            _ = await producer.send(TOPIC, b"2")
        await asyncio.sleep(1)
        assert committed(cluster) == [b"2"]


@in_virtual_time
async def test_what_the_body_raises_is_let_out_also_after_a_fatal_error() -> None:
    async with transactional() as (producer, cluster):
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - a block of its own
            async with producer.transaction():
                cluster.on("produce").answer(ours.ProducerFenced)
                with pytest.raises(ProducerFenced):
                    await producer.send_and_wait(TOPIC, b"1")
                raise ZeroDivisionError
        with pytest.raises(ProducerFenced):
            await producer.begin_transaction()


@in_virtual_time
async def test_a_block_that_was_not_entered_leaves_nothing() -> None:
    async with transactional() as (producer, _):
        await producer.begin_transaction()
        with pytest.raises(IllegalOperation, match="a transaction is open"):
            async with producer.transaction():
                raise AssertionError
        await producer.transaction().__aexit__(None, None, None)
        await producer.abort_transaction()


@in_virtual_time
async def test_a_member_that_the_group_goes_on_without_commits_nothing() -> None:
    async with transactional() as (producer, cluster):
        cluster.join_group("readers", "me", 2)
        offsets = {TopicPartition("in", 0): 5}
        with pytest.raises(IllegalGenerationError):
            async with producer.transaction():
                await producer.send_offsets_to_transaction(offsets, GroupMetadata("readers", 1, "me"))
        async with producer.transaction():
            await producer.send_offsets_to_transaction(offsets, GroupMetadata("readers", 2, "me"))
        await asyncio.sleep(1)
        told = cluster.committed_offset("readers", "in", 0)
        assert told is not None
        assert told.offset == 5


def test_errors_of_transactions_have_names_of_aiokafkas() -> None:
    fatal = ours.InvalidProducerEpoch("why")
    fatal.fatal = True
    failed = ours.CommitFailed("why")
    failed.__cause__ = fatal
    assert isinstance(translated(ours.ProducerFenced("why")), ProducerFenced)
    assert isinstance(translated(fatal), ProducerFenced)
    assert isinstance(translated(failed), ProducerFenced)
    assert not isinstance(translated(ours.InvalidProducerEpoch("why")), ProducerFenced)
    assert isinstance(translated(ours.TransactionTimeout("why")), KafkaTimeoutError)
    assert isinstance(translated(ours.TransactionOutcomeUnknown("why")), KafkaTimeoutError)
    told = translated(ours.TransactionStateError("why"))
    assert isinstance(told, IllegalOperation)
    assert isinstance(told.__cause__, ours.TransactionStateError)
