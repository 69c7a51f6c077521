"""Record timestamps: from the sender, or from the broker with message.timestamp.type=LogAppendTime."""

from __future__ import annotations

import pytest

from aioproducer import Producer, RecordMetadata
from aioproducer._core.clock import wall_ms
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import read_with_aiokafka, read_with_librdkafka
from tests.kafka.samples import SAMPLES, WAYS_TO_SEND, WayToSend


@pytest.mark.parametrize("send", WAYS_TO_SEND)
async def test_log_append_time_is_returned_and_stored(
    kafka: ApacheKafka, new_topic: NewTopic, send: WayToSend
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = wall_ms()
    async with Producer(kafka.bootstrap_servers, compression_type="lz4") as producer:
        sent = await send(producer, topic, SAMPLES)
    after = wall_ms()
    assert all(each.log_append_time and before <= each.timestamp_ms <= after for each in sent)
    expected = [
        sample.as_read(where)._replace(timestamp_ms=where.timestamp_ms, log_append_time=True)
        for sample, where in zip(SAMPLES, sent, strict=True)
    ]
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == expected
    assert await read_with_aiokafka(kafka.bootstrap_servers, topic) == expected


async def test_record_without_timestamp_has_the_time_of_the_call(kafka: ApacheKafka, topic: str) -> None:
    before = wall_ms()
    async with Producer(kafka.bootstrap_servers) as producer:
        one = await producer.send(topic, b"value", partition=0)
        many = await producer.send_many(topic, [b"value"] * 2, partition=0)
    told = [one, *(each for each in many if isinstance(each, RecordMetadata))]
    assert all(before <= each.timestamp_ms <= wall_ms() and not each.log_append_time for each in told)
    found = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert [(each.timestamp_ms, each.log_append_time) for each in found] == [each[3:] for each in told]
