"""Producers that must not create topics: `allow_auto_create_topics=False`."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import CommitFailed, MetadataUnavailable, Producer, SendManyError
from aioproducer.errors import ProducerError, UnknownTopicOrPartition
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, scenario, values

MISSPELT = "odrers"


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("creates", [True, False])
@scenario
async def test_unknown_topic_fails_within_a_second(brokers: int, creates: bool) -> None:
    async with (
        open_cluster(brokers, auto_create_topics=creates) as cluster,
        Producer(cluster.bootstrap_servers, allow_auto_create_topics=False) as producer,
    ):
        await producer.send(TOPIC, b"known", partition=0)
        for call, within_s in (
            (producer.send(MISSPELT, b"v"), 1.0),
            (producer.enqueue(MISSPELT, b"v"), 3.5),  # pauses between requests for the topic have grown
            (producer.partitions_for(MISSPELT), 3.5),
        ):
            began_at = now()
            with pytest.raises(UnknownTopicOrPartition, match="allow_auto_create_topics") as raised:
                await call
            assert not raised.value.possibly_persisted
            assert now() - began_at <= within_s
        with pytest.raises((SendManyError, UnknownTopicOrPartition)):
            await producer.send_many(MISSPELT, [b"v", b"w"])
        with pytest.raises(MetadataUnavailable):
            _ = producer.send_nowait(MISSPELT, b"v")
        await producer.send(TOPIC, b"still known", partition=0)
        topics = (await producer.cluster()).topics
        assert MISSPELT not in {str(each) for each in topics}


@scenario
async def test_denial_of_a_lagging_broker_is_not_final() -> None:
    async with (
        open_cluster(auto_create_topics=False) as cluster,
        Producer(cluster.bootstrap_servers, allow_auto_create_topics=False) as producer,
    ):
        sending = asyncio.create_task(producer.send("late", b"v"))
        await asyncio.sleep(0.02)
        assert cluster.request_count("metadata") == 2  # the start, and one denial
        cluster.create_topic("late")
        await sending
        assert values(cluster, topic="late") == [b"v"]


@scenario
async def test_created_topic_is_used_after_a_refusal() -> None:
    async with (
        open_cluster(auto_create_topics=False) as cluster,
        Producer(cluster.bootstrap_servers, allow_auto_create_topics=False) as producer,
    ):
        with pytest.raises(UnknownTopicOrPartition):
            await producer.send("late", b"v")
        cluster.create_topic("late")
        await producer.send("late", b"v")


@scenario
async def test_transaction_with_an_unknown_topic_fails() -> None:
    async with (
        open_cluster() as cluster,
        Producer(cluster.bootstrap_servers, allow_auto_create_topics=False, transactional_id="t") as producer,
    ):
        await producer.begin_transaction()
        with pytest.raises(UnknownTopicOrPartition):
            await producer.send(MISSPELT, b"v")
        with pytest.raises(CommitFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"v")


@scenario
async def test_topic_is_created_by_default() -> None:
    async with open_cluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
        await producer.send("created", b"v")


@scenario
async def test_outage_is_no_denial() -> None:
    async with (
        open_cluster() as cluster,
        Producer(cluster.bootstrap_servers, allow_auto_create_topics=False, max_block_ms=2_000) as producer,
    ):
        await cluster.stop_broker(1)
        with pytest.raises(ProducerError) as raised:
            await producer.send(MISSPELT, b"v")
        assert not isinstance(raised.value, UnknownTopicOrPartition)
        assert now() == 2
