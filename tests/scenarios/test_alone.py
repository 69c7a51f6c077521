"""A single record without other senders: every wait of the record has to end by itself."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from aioproducer import ConnectionFailed, Producer, RecordMetadata
from aioproducer._core.batching.batch import Batch
from aioproducer._core.net.connection import Connection
from aioproducer._core.sender.requests import ResponseHandler
from aioproducer.config import ProducerOptions
from aioproducer.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, producing, scenario, values

PLAIN: ProducerOptions = {"enable_idempotence": False, "acks": "all"}
BOTH = pytest.mark.parametrize("options", [{}, PLAIN], ids=["idempotent", "plain"])


async def send_one(producer: Producer, value: bytes = b"alone") -> float:
    """Send one record, and return the duration."""
    began_at = now()
    await producer.send(TOPIC, value)
    return now() - began_at


class TestMetadata:
    @BOTH
    @for_each("stale", [0, 1, 2, 3, 5])
    @scenario
    async def test_metadata_is_requested_until_a_broker_has_the_topic(
        self, stale: int, options: ProducerOptions
    ) -> None:
        """Two answers in a row lack the topic, as when it is recreated or a broker lags."""
        async with producing(linger_ms=0, **options) as (producer, cluster):
            await producer.send(TOPIC, b"before")
            cluster.on("produce").answer(UnknownTopicOrPartition)
            if stale:
                cluster.on("metadata", times=stale).answer(UnknownTopicOrPartition)
            # The pauses between the requests grow from 0.1 to 1 s (KIP-580), with a fifth of jitter.
            pauses_s = sum(min(1.0, 0.1 * 2**attempt * 1.2) for attempt in range(stale))
            assert await send_one(producer) < pauses_s + 0.3
            assert values(cluster) == [b"before", b"alone"]

    @BOTH
    @scenario
    async def test_record_for_missing_partition_fails_and_next_is_sent(
        self, options: ProducerOptions
    ) -> None:
        async with producing(partitions=3, linger_ms=0, **options) as (producer, cluster):
            await producer.send(TOPIC, b"before", partition=2)
            cluster.delete_topic(TOPIC)
            cluster.create_topic(TOPIC, 2)
            began_at = now()
            with pytest.raises(UnknownTopicOrPartition, match="no such partition"):
                await producer.send(TOPIC, b"alone", partition=2)
            assert now() - began_at < 10
            cluster.add_partitions(TOPIC, 3)
            back_at = now()
            await producer.send(TOPIC, b"alone", partition=2)
            assert now() - back_at < 1.5

    @scenario
    async def test_metadata_outage_causes_few_requests(self) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            await producer.send(TOPIC, b"before")
            cluster.on("produce").answer(UnknownTopicOrPartition)
            unknown = cluster.on("metadata", times=None).answer(UnknownTopicOrPartition)
            before = cluster.request_count("metadata")
            sending = asyncio.create_task(producer.send(TOPIC, b"alone"))
            await asyncio.sleep(20)
            assert cluster.request_count("metadata") - before <= 60
            unknown.remove()
            await sending


class TestPauses:
    """A backoff ends early when the new leader is known or the connection is open."""

    @BOTH
    @scenario
    async def test_single_record_follows_a_new_leader_at_once(self, options: ProducerOptions) -> None:
        async with producing(brokers=2, linger_ms=0, **options) as (producer, cluster):
            await producer.send(TOPIC, b"before")
            cluster.move_leader(TOPIC, 0, to_broker=2)
            assert await send_one(producer) < 0.02

    @BOTH
    @scenario
    async def test_pause_ends_when_metadata_lags_behind(self, options: ProducerOptions) -> None:
        async with producing(brokers=2, linger_ms=0, **options) as (producer, cluster):
            await producer.send(TOPIC, b"before")
            refusing = cluster.on("produce", node=1, times=None).answer(NotLeaderOrFollower)
            sending = asyncio.create_task(producer.send(TOPIC, b"alone"))
            await asyncio.sleep(10)
            cluster.move_leader(TOPIC, 0, to_broker=2)
            moved_at = now()
            await sending
            refusing.remove()
            assert now() - moved_at < 1.5
            assert cluster.produce_requests(TOPIC, 0)[-1] == 2

    @BOTH
    @for_each("failover", [False, True])
    @for_each("away_s", [0.5, 3.0, 30.0])
    @scenario
    async def test_returned_broker_is_used_after_the_first_connection(
        self, options: ProducerOptions, away_s: float, *, failover: bool
    ) -> None:
        async with producing(brokers=3, linger_ms=0, **options) as (producer, cluster):
            await producer.send(TOPIC, b"before")
            await cluster.stop_broker(1, failover=failover)
            sending = asyncio.create_task(producer.send(TOPIC, b"alone"))
            began_at = now()
            if failover:
                await sending
                assert now() - began_at < 0.3
                return
            await asyncio.sleep(away_s)
            connected_at = await self.start_and_wait_for_a_connection(cluster)
            await sending
            assert now() - connected_at < 0.3

    @BOTH
    @for_each("away_s", [0.5, 3.0, 30.0])
    @scenario
    async def test_pause_ends_when_the_only_broker_returns(
        self, options: ProducerOptions, away_s: float
    ) -> None:
        async with producing(linger_ms=0, **options) as (producer, cluster):
            await producer.send(TOPIC, b"before")
            await cluster.stop_broker(1)
            sending = asyncio.create_task(producer.send(TOPIC, b"alone"))
            await asyncio.sleep(away_s)
            connected_at = await self.start_and_wait_for_a_connection(cluster)
            await sending
            assert now() - connected_at < 0.3

    @BOTH
    @scenario
    async def test_broker_that_hangs_up_causes_few_connections(self, options: ProducerOptions) -> None:
        async with producing(linger_ms=0, **options) as (producer, cluster):
            await producer.send(TOPIC, b"before")
            hanging_up = cluster.on("produce", times=None).close()
            sending = asyncio.create_task(producer.send(TOPIC, b"alone"))
            await asyncio.sleep(20)
            assert hanging_up.hits < 200
            hanging_up.remove()
            over_at = now()
            await sending
            assert now() - over_at < 1.5

    @BOTH
    @pytest.mark.parametrize("failover", [False, True])
    @scenario
    async def test_broker_that_hangs_up_causes_few_connections_under_load(
        self, options: ProducerOptions, *, failover: bool
    ) -> None:
        async with producing(brokers=3, partitions=6, linger_ms=0, **options) as (producer, cluster):
            acknowledged_at = [now()] * 6
            worst_s = [0.0] * 6

            async def send(partition: int) -> None:
                while True:
                    await producer.send(TOPIC, b"v", partition=partition)
                    worst_s[partition] = max(worst_s[partition], now() - acknowledged_at[partition])
                    acknowledged_at[partition] = now()
                    await asyncio.sleep(0.05)

            sending = [asyncio.create_task(send(number)) for number in range(6)]
            await asyncio.sleep(0.5)
            await cluster.stop_broker(1, failover=failover)
            await asyncio.sleep(3.0)
            if failover:
                assert max(worst_s) < 0.3
            else:
                connected_at = await self.start_and_wait_for_a_connection(cluster)
                await asyncio.sleep(0.3)
                assert min(acknowledged_at) > connected_at
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    @staticmethod
    async def start_and_wait_for_a_connection(cluster: Cluster) -> float:
        """Start broker 1, and return the time of its first completed handshake (loop clock)."""
        knocking = cluster.on("api_versions", node=1)
        await cluster.start_broker(1)
        started_at = now()
        await knocking.happened()
        assert now() - started_at < 1.3
        return now()


class TestProducerId:
    @scenario
    async def test_producer_id_is_requested_when_a_broker_returns(self) -> None:
        async with open_cluster() as cluster, Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            cluster.on("init_producer_id", times=4).close()
            await producer.partitions_for(TOPIC)
            assert await send_one(producer) < 1.5

    @scenario
    async def test_producer_id_is_requested_after_the_last_epoch(self) -> None:
        """Its last epoch is left in the turn that would have sent the next record."""
        async with producing(linger_ms=0) as (producer, cluster):
            assert producer._engine is not None
            identities = producer._engine.accumulator.identities
            await producer.send(TOPIC, b"before")
            assert identities.current is not None
            queue = producer._engine.accumulator.topic(TOPIC)[0]
            queue.sequences.identity = identities.current._replace(epoch=32_767)
            queue.sequences.request_epoch_bump((1,), absent=True)
            assert await send_one(producer) < 0.1
            first, last = cluster.batches(TOPIC, 0)
            assert (last.producer_id, last.producer_epoch, last.base_sequence) == (last.producer_id, 0, 0)
            assert last.producer_id != first.producer_id


class TestUncertainBatches:
    """The oldest batch of a partition that may be in the log, and that the leader refuses for its sequence."""

    @staticmethod
    async def lose_the_answer(
        producer: Producer, cluster: Cluster, value: bytes
    ) -> asyncio.Task[RecordMetadata]:
        lost = cluster.on("produce", topic=TOPIC).close()
        sending = asyncio.create_task(producer.send(TOPIC, value))
        await lost.happened()
        return sending

    @pytest.mark.parametrize("behind", [0, 1, 20])
    @scenario
    async def test_log_that_lost_its_end_is_written_again(self, behind: int) -> None:
        """Acknowledged records were lost, so the leader never expects the next sequence."""
        async with producing(linger_ms=0) as (producer, cluster):
            for value in (b"kept", b"lost"):
                await producer.send(TOPIC, value)
            self.lose_the_end(cluster)
            began_at = now()
            sending = await self.lose_the_answer(producer, cluster, b"alone")
            others = [asyncio.create_task(producer.send(TOPIC, b"%d" % number)) for number in range(behind)]
            await asyncio.gather(sending, *others)
            assert now() - began_at < 2.0
            assert values(cluster) == [b"kept", b"alone", *(b"%d" % number for number in range(behind))]

    @pytest.mark.parametrize("count", [1, 2, 5])
    @scenario
    async def test_record_stored_before_a_restart_is_not_stored_twice(self, count: int) -> None:
        """All answers were lost, and the snapshot of the leader has only the last batch, so it denies the others."""
        unanswered: list[Batch] = []
        all_lost = asyncio.Event()

        def lose(handler: ResponseHandler, connection: Connection, batches: list[Batch], *_: object) -> None:
            unanswered.extend(batches)
            handler.lost(connection, batches, ConnectionFailed("the answer got lost", written=True))
            if len(unanswered) == count:
                all_lost.set()

        options: dict[str, Any] = {"retry_backoff_ms": 1000, "retry_backoff_max_ms": 1000}
        async with producing(linger_ms=0, batch_size=0, **options) as (producer, cluster):
            await producer.send(TOPIC, b"first", partition=0)
            expected = [b"%d" % number for number in range(count)]
            with mock.patch.object(ResponseHandler, "take", lose):
                sending = [producer.send_nowait(TOPIC, value, partition=0) for value in expected]
                await all_lost.wait()
            assert values(cluster) == [b"first", *expected]
            await cluster.stop_broker(1)
            await cluster.start_broker(1)
            began_at = now()
            sent = await asyncio.gather(*sending)
            assert now() - began_at < 6.0
            await producer.send(TOPIC, b"last", partition=0)
            assert values(cluster) == [b"first", *expected, b"last"]
            assert all(where.offset in {-1, offset} for offset, where in enumerate(sent, 1))

    @staticmethod
    def lose_the_end(cluster: Cluster) -> None:
        """Cut the last batch off, as an unclean leader election does."""
        log = cluster._state.partition(TOPIC, 0).log
        gone = log._batches.pop()
        log.end_offset = gone.base_offset
        for producer in log.producers._producers.values():
            producer.recent.pop()
