"""Faults of one topic do not affect other topics."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aioproducer import Producer
from aioproducer._core.batching.batch import Batch
from aioproducer.errors import (
    BrokerError,
    NotEnoughReplicas,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, producing, scenario, settle, values

LATENCY_S = 0.01
LOAD_S = 1.5


async def rate(producer: Producer, partitions: int) -> float:
    """Return the records per second of tasks that each await one `send` to a partition after the other."""
    until = now() + LOAD_S
    sent = 0

    async def send(partition: int) -> None:
        nonlocal sent
        while now() < until:
            await producer.send(TOPIC, b"v" * 1000, partition=partition)
            sent += 1

    await asyncio.gather(*(send(number % partitions) for number in range(5 * partitions)))
    return sent / LOAD_S


async def be_refused(producer: Producer, per_s: float) -> None:
    """Send to a topic that refuses every batch, at a given rate per second."""

    async def send() -> None:
        with pytest.raises(TopicAuthorizationFailed):
            await producer.send("refused", b"v")

    async with asyncio.TaskGroup() as group:
        while True:
            await asyncio.sleep(1 / per_s)
            _ = group.create_task(send())


@scenario
async def test_refusing_topic_delays_no_other_topic() -> None:
    """Each refusal bumps the epoch of its partition; other partitions keep their epochs."""
    async with (
        open_cluster(brokers=3, partitions=8, latency_s=LATENCY_S) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=1_000) as producer,
    ):
        cluster.create_topic("refused", 4)
        await producer.partitions_for("refused")
        alone = await rate(producer, 8)
        cluster.on("produce", topic="refused", times=None).answer(TopicAuthorizationFailed)
        refused = asyncio.create_task(be_refused(producer, 50))
        beside = await rate(producer, 8)
        refused.cancel()
        await asyncio.wait([refused])
        assert beside >= 0.8 * alone


def batches_in_memory() -> int:
    """Count the batches of this process, those included that only wait for the garbage collector."""
    return sum(isinstance(each, Batch) for each in gc.get_objects())


@scenario
async def test_delivered_records_are_freed_before_lingering_ones() -> None:
    gc.collect()  # collect batches of earlier tests
    before = batches_in_memory()
    async with producing(linger_ms=60_000, buffer_memory=1_000_000) as (producer, cluster):
        cluster.create_topic("lingering")
        lingering = await producer.enqueue("lingering", b"v")
        for _ in range(100):
            await producer.send_many(TOPIC, [b"v" * 1_000] * 100)
        await settle()
        assert batches_in_memory() - before < 10
        await producer.flush()
        assert lingering.done()


@pytest.mark.parametrize("refusal", [NotEnoughReplicas, UnknownTopicOrPartition])
@scenario
async def test_recreated_topic_with_the_same_leaders_keeps_order(refusal: type[BrokerError]) -> None:
    """The new log accepts any first sequence, so one batch is in flight until the first acknowledgement."""
    async with (
        open_cluster(latency_s=LATENCY_S) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, metadata_max_age_ms=1_000) as producer,
    ):
        await producer.send(TOPIC, b"before")
        cluster.delete_topic(TOPIC)
        cluster.create_topic(TOPIC, 1)
        await asyncio.sleep(2)
        cluster.on("produce", topic=TOPIC).answer(refusal)
        futures = []
        for number in range(5):
            futures.append(await producer.enqueue(TOPIC, b"%d" % number))
            await settle()
        await asyncio.gather(*futures)
        assert values(cluster) == [b"0", b"1", b"2", b"3", b"4"]
