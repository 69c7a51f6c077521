"""The producer with the API of aiokafka on a real Apache Kafka: aiokafka reads its records."""

from __future__ import annotations

import pytest

from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.aiokafka.errors import MessageSizeTooLargeError, UnknownTopicOrPartitionError
from aioproducer.compat.aiokafka.structs import RecordMetadata
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import read_with_aiokafka
from tests.kafka.samples import SAMPLES, Sample


def as_read(sample: Sample, sent: RecordMetadata, offset: int) -> tuple[object, ...]:
    return (sent.partition, offset, *sample[:3], sample.timestamp_ms, False)


@pytest.mark.parametrize("idempotent", [False, True])
async def test_aiokafka_reads_records_and_batches(kafka: ApacheKafka, topic: str, idempotent: bool) -> None:
    samples = [sample for sample in SAMPLES if sample.key is not None or sample.value is not None]
    written = []
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        enable_idempotence=idempotent,
        compression_type="lz4",
        max_batch_size=100_000,
    ) as producer:
        futures = [
            await producer.send(topic, each.value, each.key, None, each.timestamp_ms, list(each.headers))
            for each in samples
        ]
        for each, future in zip(samples, futures, strict=True):
            sent = await future
            assert (sent.timestamp, sent.timestamp_type) == (each.timestamp_ms, 0)
            written.append(as_read(each, sent, sent.offset))
        partition = max(await producer.partitions_for(topic))
        batch = producer.create_batch()
        for each in samples:
            assert batch.append(
                timestamp=each.timestamp_ms, key=each.key, value=each.value, headers=each.headers
            )
        first = await (await producer.send_batch(batch, topic, partition=partition))
        written += [as_read(each, first, first.offset + index) for index, each in enumerate(samples)]
    assert await read_with_aiokafka(kafka.bootstrap_servers, topic) == sorted(written)


async def test_broker_errors_have_the_names_of_aiokafka(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="100")
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, request_timeout_ms=1_000
    ) as producer:
        with pytest.raises(MessageSizeTooLargeError) as caught:
            await producer.send_and_wait(topic, bytes(1_000))
        assert not caught.value.possibly_persisted
        with pytest.raises(ValueError):
            _ = await producer.send(topic, b"v", partition=1)


async def test_missing_topic_is_unknown(spare_kafka: ApacheKafka) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=spare_kafka.bootstrap_servers, request_timeout_ms=500
    ) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            _ = await producer.send(f"none-{id(producer)}", b"v")
