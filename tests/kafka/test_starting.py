"""Starts before the broker, and producers that create no topics, on Apache Kafka."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from aioproducer import Producer
from aioproducer.errors import UnknownTopicOrPartition
from tests.kafka.apache.broker import ApacheKafka


async def test_producers_start_before_their_broker(spare_kafka: ApacheKafka) -> None:
    topic = f"early-{uuid.uuid4()}"
    await asyncio.to_thread(spare_kafka.create_topic, topic)
    await asyncio.to_thread(spare_kafka.shut_down)
    waiting = Producer(spare_kafka.bootstrap_servers, bootstrap_timeout_ms=60_000)
    starting = asyncio.create_task(waiting.start())
    async with Producer(spare_kafka.bootstrap_servers, start_wait=False) as producer:
        sending = asyncio.create_task(producer.send(topic, b"one"))
        try:
            await asyncio.sleep(0.5)
            assert producer.state == "degraded"
            assert not starting.done()
            assert not sending.done()
        finally:
            await asyncio.to_thread(spare_kafka.restart)
        assert (await sending).offset >= 0
        assert producer.state == "ready"
        await starting
        await waiting.send(topic, b"two")
        await waiting.close()


@pytest.mark.parametrize("creates", ["kafka", "spare_kafka"])  # with and without auto.create.topics.enable
async def test_unknown_topic_is_refused_and_not_created(creates: str, request: pytest.FixtureRequest) -> None:
    kafka: ApacheKafka = request.getfixturevalue(creates)
    topic = f"never-{uuid.uuid4()}"
    async with Producer(kafka.bootstrap_servers, allow_auto_create_topics=False) as producer:
        began_at = time.monotonic()
        with pytest.raises(UnknownTopicOrPartition):
            await producer.send(topic, b"v")
        assert time.monotonic() - began_at < 5
        assert topic not in (await producer.cluster()).topics
