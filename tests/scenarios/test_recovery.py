"""Automatic recovery and its duration; the matrix of faults is in `faults/`."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import DeliveryTimeout, Producer, RecordMetadata, TopicAuthorizationFailed
from aioproducer.config import ProducerOptions
from aioproducer.errors import NotLeaderOrFollower, OutOfOrderSequenceNumber
from tests.scenarios.rig import TOPIC, now, producing, scenario, settle, values

IMPATIENT: ProducerOptions = {"retry_backoff_max_ms": 100, "reconnect_backoff_max_ms": 100}


async def one_by_one(producer: Producer, count: int) -> list[asyncio.Future[RecordMetadata]]:
    """Send numbers, each in a batch and a request of its own."""
    futures = []
    for number in range(count):
        futures.append(producer.send_nowait(TOPIC, b"%d" % number))
        await settle()
    return futures


class TestIdleTopics:
    """A topic without sends for `metadata_max_idle_ms` is forgotten, and looked up again at its next use."""

    @scenario
    async def test_record_after_a_long_pause_is_stored(self) -> None:
        """Sequences that restart under the same epoch would look like duplicates of the first records."""
        async with producing(metadata_max_idle_ms=5_000, metadata_max_age_ms=1_000) as (producer, cluster):
            await producer.send(TOPIC, b"before")
            await asyncio.sleep(60)
            assert producer._engine is not None
            assert TOPIC not in producer._engine.accumulator.topics
            assert (await producer.send(TOPIC, b"after")).offset == 1
            assert values(cluster) == [b"before", b"after"]
            first, second = cluster.batches(TOPIC, 0)
            assert (first.producer_id, second.producer_id) == (first.producer_id, first.producer_id)
            assert (second.producer_epoch, second.base_sequence) == (first.producer_epoch + 1, 0)

    @scenario
    async def test_idle_topic_is_sent_to_after_a_call_waited_for_it(self) -> None:
        async with producing(
            metadata_max_idle_ms=5_000, metadata_max_age_ms=1_000, buffer_memory=1_000, linger_ms=0
        ) as (producer, cluster):
            await producer.send(TOPIC, b"before")
            cluster.create_topic("other")
            cluster.on("produce", topic="other").delay(20.0)
            hog = asyncio.create_task(producer.send("other", b"x" * 800))
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(producer.send(TOPIC, b"x" * 500))
            await asyncio.gather(hog, waiting)
            await asyncio.sleep(60)
            await producer.send(TOPIC, b"after")
            assert values(cluster) == [b"before", b"x" * 500, b"after"]

    @scenario
    async def test_pending_record_keeps_an_idle_topic(self) -> None:
        async with producing(metadata_max_idle_ms=5_000, request_timeout_ms=1_000) as (producer, cluster):
            await cluster.stop_broker(1)
            future = producer.send_nowait(TOPIC, b"v")
            await asyncio.sleep(30)
            await cluster.start_broker(1)
            healed_at = now()
            assert (await future).offset == 0
            assert now() - healed_at < 5


class TestSequences:
    @scenario
    async def test_sequence_gap_is_closed_by_a_new_epoch(self) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            await producer.send(TOPIC, b"first")
            cluster.on("produce", topic=TOPIC, after=1).answer(TopicAuthorizationFailed)
            futures = await one_by_one(producer, 5)
            await producer.flush()
            assert [type(future.exception()) for future in futures].count(TopicAuthorizationFailed) == 1
            assert values(cluster) == [b"first", b"0", b"2", b"3", b"4"]
            epochs = [batch.producer_epoch for batch in cluster.batches(TOPIC, 0)]
            assert epochs == sorted(epochs)
            assert epochs[-1] == 1

    @scenario
    async def test_partitions_without_a_gap_keep_their_epoch(self) -> None:
        async with producing(partitions=2, linger_ms=0) as (producer, cluster):
            for partition in range(2):
                await producer.send(TOPIC, b"v", partition=partition)
            cluster.on("produce", topic=TOPIC, partition=0).answer(TopicAuthorizationFailed)
            with pytest.raises(TopicAuthorizationFailed):
                await producer.send(TOPIC, b"v", partition=0)
            for partition in range(2):
                await producer.send(TOPIC, b"w", partition=partition)
            stamps = [
                [(batch.producer_epoch, batch.base_sequence) for batch in cluster.batches(TOPIC, partition)]
                for partition in range(2)
            ]
            assert stamps == [[(0, 0), (1, 0)], [(0, 0), (0, 1)]]

    @scenario
    async def test_broker_without_sequences_gets_a_new_epoch(self) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            await producer.send(TOPIC, b"a")
            cluster.on("produce", topic=TOPIC, times=5).answer(OutOfOrderSequenceNumber)
            futures = await one_by_one(producer, 5)
            assert [(await future).offset for future in futures] == [1, 2, 3, 4, 5]
            assert values(cluster)[1:] == [b"0", b"1", b"2", b"3", b"4"]


class TestBrokers:
    @scenario
    async def test_moved_leader_is_followed_at_once(self) -> None:
        async with producing(brokers=2, linger_ms=0, retry_backoff_ms=100) as (producer, cluster):
            await producer.send(TOPIC, b"a")
            cluster.move_leader(TOPIC, 0, to_broker=2)
            moved_at = now()
            await producer.send(TOPIC, b"b")
            assert now() - moved_at < 0.2
            assert cluster.produce_requests(TOPIC, 0)[-2:] == [1, 2]

    @scenario
    async def test_stale_metadata_with_the_old_leader_is_ignored(self) -> None:
        async with producing(brokers=2, linger_ms=0) as (producer, cluster):
            await producer.send(TOPIC, b"a")
            cluster.on("produce", topic=TOPIC, times=2).answer(NotLeaderOrFollower)
            assert (await producer.send(TOPIC, b"b")).offset == 1

    @pytest.mark.parametrize("failover", [False, True])
    @scenario
    async def test_broker_outage_loses_no_record(self, *, failover: bool) -> None:
        async with producing(brokers=3, partitions=3, linger_ms=0, **IMPATIENT) as (producer, cluster):
            sending = []
            for number in range(60):
                if number == 10:
                    await cluster.stop_broker(2, failover=failover)
                if number == 40:
                    await cluster.start_broker(2)
                sending.append(
                    asyncio.create_task(producer.send(TOPIC, b"%02d" % number, partition=number % 3))
                )
                await asyncio.sleep(0.1)
            back_at = now()
            await asyncio.gather(*sending)
            assert now() - back_at < 0.2
            for partition in range(3):
                log = values(cluster, partition)
                assert log == [b"%02d" % number for number in range(partition, 60, 3)]

    @scenario
    async def test_outage_of_all_brokers_loses_no_record(self) -> None:
        async with producing(brokers=2, partitions=2, linger_ms=0, **IMPATIENT) as (producer, cluster):
            for node_id in (1, 2):
                await cluster.stop_broker(node_id)
            sending = [
                asyncio.create_task(producer.send(TOPIC, b"v", partition=number % 2)) for number in range(10)
            ]
            await asyncio.sleep(5)
            assert producer.state == "degraded"
            for node_id in (1, 2):
                await cluster.start_broker(node_id)
            back_at = now()
            await asyncio.gather(*sending)
            assert now() - back_at < 0.2
            assert producer.state == "ready"

    @scenario
    async def test_frozen_broker_delays_only_its_partitions(self) -> None:
        async with producing(
            brokers=2,
            partitions=2,
            delivery_timeout_ms=5_000,
            request_timeout_ms=2_000,
        ) as (producer, cluster):
            cluster.freeze_broker(1)
            stuck = asyncio.create_task(producer.send(TOPIC, b"v", partition=0))
            for _ in range(20):
                await producer.send(TOPIC, b"v", partition=1)
            with pytest.raises(DeliveryTimeout):
                await stuck
            cluster.thaw_broker(1)
            await producer.send(TOPIC, b"w", partition=0)

    @scenario
    async def test_recreated_topic_is_written(self) -> None:
        async with producing(partitions=2, metadata_max_age_ms=1_000) as (producer, cluster):
            await producer.send(TOPIC, b"old", partition=1)
            cluster.delete_topic(TOPIC)
            cluster.create_topic(TOPIC, 1)
            await asyncio.sleep(2)
            assert (await producer.send(TOPIC, b"new")).offset == 0
            with pytest.raises(ValueError, match="partition=1"):
                await producer.send(TOPIC, b"gone", partition=1)
