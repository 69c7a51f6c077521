from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest

from aioproducer import GroupMetadata, errors as ours
from aioproducer.compat.aiokafka import AIOKafkaProducer, IllegalOperation, group_metadata_of
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
async def test_transaction_methods_require_a_transactional_id() -> None:
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
async def test_commit_is_retried_until_it_succeeds() -> None:
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
async def test_commit_raises_the_cause_and_abort_recovers() -> None:
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
async def test_failed_transaction_block_is_aborted() -> None:
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
async def test_body_error_is_raised_after_a_fatal_error() -> None:
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
async def test_transaction_block_in_an_open_transaction_is_refused() -> None:
    async with transactional() as (producer, _):
        await producer.begin_transaction()
        with pytest.raises(IllegalOperation, match="a transaction is open"):
            async with producer.transaction():
                raise AssertionError
        await producer.transaction().__aexit__(None, None, None)
        await producer.abort_transaction()


@in_virtual_time
async def test_offsets_of_an_old_generation_are_refused() -> None:
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


def consumer(*, generation: int = 3, member: str = "m-1", subscribed: bool = True, **more: Any) -> Any:
    """Return a consumer with the attributes that the producer reads."""
    return SimpleNamespace(
        **{
            "_group_id": "readers",
            "_group_instance_id": "i-1",
            "_coordinator": SimpleNamespace(generation=generation, member_id=member),
            "_subscription": SimpleNamespace(partitions_auto_assigned=lambda: subscribed),
            **more,
        }
    )


def test_group_metadata_has_member_and_generation() -> None:
    assert group_metadata_of(consumer()) == GroupMetadata("readers", 3, "m-1", "i-1")


def test_group_metadata_of_a_non_member_has_generation_0() -> None:
    assert group_metadata_of(consumer(generation=-1, member="")) == GroupMetadata("readers", 0, "", "i-1")


def test_group_of_assigned_consumer_has_no_member() -> None:
    assert group_metadata_of(consumer(subscribed=False, generation=-1)) == GroupMetadata("readers")


def test_group_metadata_requires_a_group_and_a_start() -> None:
    with pytest.raises(ValueError, match="no group_id"):
        group_metadata_of(consumer(_group_id=None))
    with pytest.raises(ValueError, match="not started"):
        group_metadata_of(consumer(_coordinator=None))


def test_group_metadata_of_an_unknown_release_is_unchecked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aiokafka, "__version__", "0.140.0")
    with caplog.at_level(logging.WARNING, "aioproducer"):
        assert group_metadata_of(SimpleNamespace(_group_id="readers")) == GroupMetadata("readers")
    assert caplog.messages == ["compat.group_unchecked group=readers aiokafka=0.140.0"]


async def test_consumer_of_aiokafka_has_the_attributes_read_here() -> None:
    made = aiokafka.AIOKafkaConsumer("in", group_id="readers", group_instance_id="i-1")
    made._coordinator = SimpleNamespace(generation=1, member_id="m")
    assert group_metadata_of(made) == GroupMetadata("readers", 1, "m", "i-1")
    made._coordinator = None
    await made.stop()
