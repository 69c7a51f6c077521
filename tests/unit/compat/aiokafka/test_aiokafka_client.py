"""Attributes that programs read from aiokafka's producer in addition to its methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka.protocol.metadata import MetadataRequest

from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.aiokafka.errors import KafkaConnectionError, ProducerClosed
from aioproducer.compat.aiokafka.structs import BrokerMetadata, TopicPartition
from aioproducer.testing import Cluster, in_virtual_time
from tests.unit.producer_rig import SERVERS, TOPIC


@asynccontextmanager
async def started(transport: str = "memory") -> AsyncIterator[tuple[AIOKafkaProducer, Cluster]]:
    async with (
        Cluster(topics={TOPIC: 2, "other": 1}, brokers=2, transport=transport) as broker,  # type: ignore[arg-type]
        AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="me") as producer,
    ):
        yield producer, broker


class TestCluster:
    @in_virtual_time
    async def test_cluster_lists_the_brokers(self) -> None:
        async with started() as (producer, _):
            cluster = producer.client.cluster
            assert {each.nodeId for each in cluster.brokers()} == {1, 2}
            assert isinstance(cluster.broker_metadata(1), BrokerMetadata)
            assert cluster.broker_metadata(7) is None

    @in_virtual_time
    async def test_topics_are_those_in_use(self) -> None:
        async with started() as (producer, _):
            cluster = producer.client.cluster
            assert cluster.topics() == set()
            assert cluster.partitions_for_topic(TOPIC) is None
            assert cluster.available_partitions_for_topic(TOPIC) is None
            assert cluster.leader_for_partition(TopicPartition(TOPIC, 0)) is None
            await producer.send_and_wait(TOPIC, b"v")
            assert cluster.topics() == {TOPIC}
            assert cluster.partitions_for_topic(TOPIC) == {0, 1}
            assert cluster.available_partitions_for_topic(TOPIC) == {0, 1}
            leaders = {cluster.leader_for_partition(TopicPartition(TOPIC, each)) for each in (0, 1)}
            assert leaders == {1, 2}
            assert cluster.leader_for_partition(TopicPartition(TOPIC, 2)) is None
            led = cluster.partitions_for_broker(1) | cluster.partitions_for_broker(2)
            assert led == {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)}

    @in_virtual_time
    async def test_add_topic_makes_partitions_known(self) -> None:
        async with started() as (producer, broker):
            cluster = producer.client.cluster
            assert await producer.client.add_topic(TOPIC)
            assert cluster.partitions_for_topic(TOPIC) == {0, 1}
            requests = broker.request_count("metadata")
            assert await producer.client.add_topic(TOPIC)
            assert broker.request_count("metadata") == requests
            assert await producer.client.set_topics([TOPIC, "other"])
            assert cluster.topics() == {TOPIC, "other"}
            assert await producer.client.set_topics([])

    @in_virtual_time
    async def test_add_topic_need_not_be_awaited(self) -> None:
        async with started() as (producer, _):
            added = producer.client.add_topic("other")
            assert producer.client.cluster.partitions_for_topic("other") is None
            await asyncio.sleep(1)
            assert producer.client.cluster.partitions_for_topic("other") == {0}
            assert added.result() is True

    @in_virtual_time
    async def test_add_topic_is_false_when_no_broker_answers(self) -> None:
        async with started() as (producer, broker):
            for each in (1, 2):
                await broker.stop_broker(each)
            assert await producer.client.add_topic("other") is False

    def test_cluster_is_empty_before_the_start(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=SERVERS)
        assert producer.client.cluster.brokers() == set()
        assert producer.client.get_random_node() is None
        assert producer._sender.sender_task is None
        asyncio.run(producer.stop())


class TestClient:
    @in_virtual_time
    async def test_client_has_the_given_options(self) -> None:
        async with started() as (producer, broker):
            assert producer.client._bootstrap_servers == broker.bootstrap_servers
            assert producer.client._client_id == "me"
            assert await producer.client._wait_on_metadata(TOPIC) == {0, 1}
            await producer.client.bootstrap()

    @in_virtual_time
    async def test_client_fetches_all_topics(self) -> None:
        async with started() as (producer, broker):
            assert (await producer.client.fetch_all_metadata()).topics() == {TOPIC, "other"}
            assert producer.client.cluster.topics() == set()
            await broker.stop_broker(1)
            await broker.stop_broker(2)
            with pytest.raises(KafkaConnectionError):
                await producer.client.fetch_all_metadata()

    @in_virtual_time
    async def test_force_metadata_update_returns_success(self) -> None:
        async with started() as (producer, broker):
            assert await producer.client.force_metadata_update()
            await producer.send_and_wait(TOPIC, b"v")
            asked = broker.on("metadata", times=None)
            assert await producer.client.force_metadata_update()
            assert asked.hits == 1
            await broker.stop_broker(1)
            await broker.stop_broker(2)
            assert not await producer.client.force_metadata_update()

    @in_virtual_time
    async def test_ready_returns_true_if_connected(self) -> None:
        async with started() as (producer, broker):
            client = producer.client
            assert client.get_random_node() in {1, 2}
            assert await client.ready(1)
            assert await client.ready(2)
            assert not await client.ready(3)
            await broker.stop_broker(2)
            await asyncio.sleep(1)
            assert not await client.ready(2)

    async def test_fetch_all_metadata_before_the_start_raises(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=SERVERS)
        with pytest.raises(ProducerClosed):
            await producer.client.fetch_all_metadata()
        await producer.stop()

    async def test_request_of_aiokafka_is_sent_by_its_own_client(self) -> None:
        async with started(transport="tcp") as (producer, _):
            first = await producer.client.send(1, MetadataRequest([]))
            assert {each[0] for each in first.brokers} == {1, 2}
            theirs = producer.client._aiokafka_client
            await producer.client.send(2, MetadataRequest([]))
            assert producer.client._aiokafka_client is theirs


class TestSender:
    async def test_sender_task_lives_until_the_stop(self) -> None:
        async with started() as (producer, _):
            task = producer._sender.sender_task
            assert task is not None
            assert not task.done()
            assert producer._sender._sender_task is task
        assert task.done()
