"""Transactions as aiokafka documents them, with aiokafka itself and with the compatible producer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import aiokafka
import pytest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from aioproducer.compat import aiokafka as compat
from aioproducer.testing import ThreadedCluster
from tests.scenarios.test_compat_aiokafka import TOPIC, errors_of, started

pytestmark = [
    pytest.mark.parametrize("client", [aiokafka, compat], ids=["aiokafka", "compat"]),
    pytest.mark.kafka_cluster(topics={TOPIC: 3, "in": 2}, auto_create_topics=False, transaction_version=1),
]


def committed(cluster: ThreadedCluster) -> list[bytes | None]:
    return [
        record.value
        for partition in range(3)
        for record in cluster.records(TOPIC, partition, isolation_level="read_committed")
    ]


async def test_readers_see_only_committed_records(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster, transactional_id="me") as producer:
        for value, commit in ((b"1", True), (b"2", False), (b"3", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, value, partition=0)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        await producer.begin_transaction()
        await producer.commit_transaction()  # an empty one
    assert committed(kafka_cluster) == [b"1", b"3"]


async def test_transaction_block_commits_or_aborts(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster, transactional_id="me") as producer:
        async with producer.transaction():
            await producer.send(TOPIC, b"1", partition=0)
            await producer.send(TOPIC, b"2", partition=1)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - a block of its own
            async with producer.transaction():
                await producer.send_and_wait(TOPIC, b"3", partition=0)
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send(TOPIC, b"4", partition=2)
    assert committed(kafka_cluster) == [b"1", b"2", b"4"]


async def test_offsets_are_committed_with_the_transaction(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster, transactional_id="me") as producer:
        async with producer.transaction():
            await producer.send_offsets_to_transaction(
                {TopicPartition("in", 0): 7, TopicPartition("in", 1): OffsetAndMetadata(9, "why")}, "readers"
            )
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - a block of its own
            async with producer.transaction():
                await producer.send_offsets_to_transaction({TopicPartition("in", 0): 8}, "readers")
                raise ZeroDivisionError
        async with producer.transaction():
            pass
    told = [kafka_cluster.committed_offset("readers", "in", number) for number in (0, 1)]
    assert [each and (each.offset, each.metadata) for each in told] == [(7, ""), (9, "why")]


async def test_send_outside_a_transaction_is_refused(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster, transactional_id="me") as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"v", timestamp=None)
        batch.close()
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: producer.send(TOPIC, b"v"),
            lambda: producer.send_and_wait(TOPIC, b"v"),
            lambda: producer.send_offsets_to_transaction({TopicPartition("in", 0): 7}, "readers"),
        ]
        for call in calls:
            with pytest.raises(errors_of(client).IllegalOperation):
                await call()


@pytest.mark.parametrize(
    ("offsets", "group"),
    [({}, "readers"), ({TopicPartition("in", 0): 7}, ""), ({TopicPartition("in", 0): 7}, None)],
)
async def test_offsets_without_partitions_or_group_are_refused(
    client: ModuleType, kafka_cluster: ThreadedCluster, offsets: object, group: object
) -> None:
    async with started(client, kafka_cluster, transactional_id="me") as producer:
        await producer.begin_transaction()
        with pytest.raises(ValueError):
            await producer.send_offsets_to_transaction(offsets, group)
        await producer.abort_transaction()


async def test_fenced_producer_fails_and_its_successor_continues(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster, transactional_id="me") as first:
        await first.begin_transaction()
        await first.send_and_wait(TOPIC, b"first", partition=0)
        async with started(client, kafka_cluster, transactional_id="me") as second:
            async with second.transaction():
                await second.send(TOPIC, b"second", partition=0)
            with pytest.raises(errors_of(client).ProducerFenced):
                await first.commit_transaction()
    assert committed(kafka_cluster) == [b"second"]


async def test_producer_fenced_in_a_block_fails(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster, transactional_id="me") as first:
        with pytest.raises(errors_of(client).ProducerFenced):  # noqa: PT012 - a block of its own
            async with first.transaction():
                await first.send_and_wait(TOPIC, b"first", partition=0)
                async with (
                    started(client, kafka_cluster, transactional_id="me") as second,
                    second.transaction(),
                ):
                    await second.send(TOPIC, b"second", partition=0)
                await first.send_and_wait(TOPIC, b"late", partition=0)
    assert committed(kafka_cluster) == [b"second"]


async def test_batch_outside_a_transaction_is_refused(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster, transactional_id="me") as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"1", timestamp=None)
        with pytest.raises(errors_of(client).IllegalOperation):
            await producer.send_batch(batch, TOPIC, partition=0)
        async with producer.transaction():
            await producer.send_batch(batch, TOPIC, partition=0)
    assert committed(kafka_cluster) == [b"1"]
