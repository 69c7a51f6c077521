"""An administrator changes a topic that two producers write to; both producers continue."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Final
from uuid import uuid4

import pytest

from aioproducer import Producer
from aioproducer.errors import MessageTooLarge, UnknownTopicOrPartition
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.load import Load, Sent
from tests.kafka.under_load import PARTITIONS, under_load

LIMIT: Final = 10_000
"""Bytes of a batch, once the topic takes no larger ones."""
FAILS_WITHIN_S: Final = 10.0

in_thread = asyncio.to_thread


async def test_lowered_limit_splits_batches_and_fails_larger_records(
    three_brokers: ApacheKafka,
) -> None:
    async def refused(load: Load, partition: int) -> Sent:
        while (sent := await load.send(partition, size=2 * LIMIT)).place:
            pass  # the leader of the partition does not have the new limit yet
        return sent

    async def lower(load: Load) -> list[Sent]:
        before = load.producer.metrics()["topics"][load.topic]
        assert before["bytes_delivered"] > LIMIT * before["batches_delivered"]
        await in_thread(three_brokers.configure_topic, load.topic, {"max.message.bytes": str(LIMIT)})
        return await asyncio.gather(*(refused(load, partition) for partition in range(PARTITIONS)))

    async with under_load(three_brokers, value_size=2_000, batch_size=100_000, linger_ms=200) as loads:
        too_large = chain(*await asyncio.gather(*map(lower, loads)))
        await loads.acknowledged_by()
    assert {type(sent.error) for sent in too_large} == {MessageTooLarge}


async def test_recreated_topic_receives_later_records(
    three_brokers: ApacheKafka,
) -> None:
    async def create_again(load: Load) -> None:
        await in_thread(three_brokers.delete_topic, load.topic)
        await in_thread(three_brokers.await_everywhere, load.topic, exists=False)
        assert (await load.send(0, timeout_s=0.5)).error  # it has met the gap
        await in_thread(three_brokers.create_topic, load.topic, PARTITIONS)
        await in_thread(three_brokers.await_everywhere, load.topic, exists=True)
        load.fresh_from = len(load.sent)

    async with under_load(three_brokers) as loads:
        await asyncio.gather(*map(create_again, loads))
        await loads.acknowledged_by()


async def test_records_for_deleted_partitions_fail(three_brokers: ApacheKafka) -> None:
    topic, gone = f"fewer-{uuid4().hex}", 5
    await in_thread(three_brokers.create_topic, topic, gone + 1)
    async with Producer(three_brokers.bootstrap_servers) as producer:
        await producer.send_many(topic, [b"before"] * (gone + 1), partitions=range(gone + 1))
        await in_thread(three_brokers.delete_topic, topic)
        await in_thread(three_brokers.await_everywhere, topic, exists=False)
        waiting = producer.send_nowait(topic, b"late", partition=gone)
        await in_thread(three_brokers.create_topic, topic, 2)
        await in_thread(three_brokers.await_everywhere, topic, exists=True)
        async with asyncio.timeout(FAILS_WITHIN_S):
            with pytest.raises(UnknownTopicOrPartition, match=r"no such partition, .* 2 partitions, 0 to 1"):
                await waiting
            for partition in range(2):
                assert (await producer.send(topic, b"new", partition=partition)).offset == 0


async def test_added_partitions_get_their_share_of_a_load_without_keys(three_brokers: ApacheKafka) -> None:
    more = 2 * PARTITIONS
    async with under_load(three_brokers, by_partitioner=True, metadata_max_age_ms=500) as loads:
        await asyncio.gather(*(in_thread(three_brokers.add_partitions, load.topic, more) for load in loads))
        await loads.acknowledged_by(more)
