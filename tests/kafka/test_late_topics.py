"""Topics that do not exist yet when the producer wants to write to them."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aioproducer import MetadataTimeout, MetadataUnavailable, Producer
from aioproducer.errors import UnknownTopicOrPartition
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.kafka.samples import SAMPLES, with_send, with_send_many


@pytest.fixture
def no_topic() -> str:
    """The name of a topic that does not exist."""
    return f"late-{uuid.uuid4()}"


async def test_send_creates_a_topic_when_the_broker_allows_it(kafka: ApacheKafka, no_topic: str) -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        sent = await with_send(producer, no_topic, SAMPLES)
    written = [sample.as_read(where) for sample, where in zip(SAMPLES, sent, strict=True)]
    assert read_with_librdkafka(kafka.bootstrap_servers, no_topic) == sorted(written)


async def test_waiting_sends_keep_their_order_for_a_created_topic(
    spare_kafka: ApacheKafka, no_topic: str
) -> None:
    async with Producer(spare_kafka.bootstrap_servers) as producer:
        with pytest.raises(MetadataTimeout):  # the broker was asked, and has no such topic
            await producer.send(no_topic, b"impatient", timeout_s=0.2)
        waiting = [
            asyncio.create_task(send(producer, no_topic, SAMPLES)) for send in (with_send_many, with_send)
        ]
        await asyncio.to_thread(spare_kafka.create_topic, no_topic)
        first, second = await asyncio.gather(*waiting)
    sent = first + second
    assert sent == sorted(sent)  # one partition, one offset after the other
    written = [sample.as_read(where) for sample, where in zip(SAMPLES * 2, sent, strict=True)]
    assert read_with_librdkafka(spare_kafka.bootstrap_servers, no_topic) == written


async def test_send_fails_after_max_block_ms_when_the_topic_is_missing(
    spare_kafka: ApacheKafka, no_topic: str
) -> None:
    async with Producer(spare_kafka.bootstrap_servers, max_block_ms=200) as producer:
        with pytest.raises(MetadataTimeout) as caught:
            await producer.send(no_topic, b"value")
        result = await asyncio.gather(
            producer.send_many(no_topic, [b"value"] * 3), producer.partitions_for(no_topic),
            return_exceptions=True,
        )  # fmt: skip
    assert isinstance(caught.value.__cause__, UnknownTopicOrPartition)
    assert not caught.value.possibly_persisted
    assert all(isinstance(each, Exception) for each in result)


async def test_send_nowait_works_as_soon_as_the_topic_is_known(kafka: ApacheKafka, topic: str) -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        with pytest.raises(MetadataUnavailable):
            _ = producer.send_nowait(topic, b"too early")
        assert await producer.partitions_for(topic) == {0, 1, 2}
        sent = await producer.send_nowait(topic, b"value", partition=1)
    [record] = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert (record.partition, record.offset, record.value) == (sent.partition, sent.offset, b"value")
