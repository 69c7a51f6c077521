"""Records sent equal the records read by other clients: every shape, way to send, compression and acks."""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple

import pytest

from aioproducer import Producer, ProducerOptions, RecordMetadata
from aioproducer._core.records.compression import Codec
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import await_records, read_with_aiokafka, read_with_librdkafka
from tests.kafka.samples import SAMPLES, WAYS_TO_SEND, Sample, with_send, with_send_many

CODECS: list[ProducerOptions] = [
    {"compression_type": "none"},
    {"compression_type": "gzip"},
    {"compression_type": "snappy"},
    {"compression_type": "lz4"},
    {"compression_type": "zstd"},
]
LEVELS: list[ProducerOptions] = [
    {"compression_type": "gzip", "compression_gzip_level": 1},
    {"compression_type": "gzip", "compression_gzip_level": 2},
    {"compression_type": "gzip", "compression_gzip_level": 9},
    {"compression_type": "lz4", "compression_lz4_level": 1},
    {"compression_type": "lz4", "compression_lz4_level": 17},
    {"compression_type": "zstd", "compression_zstd_level": -7},
    {"compression_type": "zstd", "compression_zstd_level": 19},
]


class BatchHeader(NamedTuple):
    """Fields of the header of a stored batch."""

    codec: Codec
    producer_id: int
    epoch: int
    base_sequence: int


def first_batch(segment: bytes) -> BatchHeader:
    (attributes,) = struct.unpack_from(">h", segment, 21)
    return BatchHeader(Codec(attributes & 7), *struct.unpack_from(">qhi", segment, 43))


def name_of(options: ProducerOptions) -> str:
    return "-".join(map(str, options.values()))


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("compression", CODECS, ids=name_of)
async def test_every_shape_of_record_is_read_as_it_was_sent(
    kafka: ApacheKafka, topic: str, compression: ProducerOptions, idempotent: bool
) -> None:
    written = []
    options: ProducerOptions = {"enable_idempotence": idempotent, **compression}
    async with Producer(kafka.bootstrap_servers, **options) as producer:
        for send in WAYS_TO_SEND:
            sent = await send(producer, topic, SAMPLES)
            assert [each.timestamp_ms for each in sent] == [each.timestamp_ms for each in SAMPLES]
            written += [sample.as_read(where) for sample, where in zip(SAMPLES, sent, strict=True)]
    written.sort()
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == written
    assert await read_with_aiokafka(kafka.bootstrap_servers, topic) == written

    stored = first_batch(kafka.first_segment(topic, written[0].partition))
    assert str(stored.codec) == compression["compression_type"]
    if idempotent:
        assert stored.producer_id >= 0
        assert stored[2:] == (0, 0)
    else:
        assert stored[1:] == (-1, -1, -1)


@pytest.mark.parametrize("compression", LEVELS, ids=name_of)
async def test_every_level_of_compression_can_be_read(
    kafka: ApacheKafka, new_topic: NewTopic, compression: ProducerOptions
) -> None:
    topic = new_topic()
    samples = SAMPLES * 20  # more than a batch, and than one of lz4's blocks
    options: ProducerOptions = {"batch_size": 500_000, **compression}
    async with Producer(kafka.bootstrap_servers, **options) as producer:
        sent = await with_send_many(producer, topic, samples)
    written = [sample.as_read(where) for sample, where in zip(samples, sent, strict=True)]
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == written
    assert await read_with_aiokafka(kafka.bootstrap_servers, topic) == written
    assert str(first_batch(kafka.first_segment(topic)).codec) == compression["compression_type"]


async def test_mutable_values_and_headers_are_sent_as_of_the_call(kafka: ApacheKafka, topic: str) -> None:
    value, key, headers = bytearray(b"value"), bytearray(b"key"), {"trace": bytearray(b"1f"), "null": None}
    async with Producer(kafka.bootstrap_servers, linger_ms=50) as producer:
        future = await producer.enqueue(topic, value, memoryview(key), headers=headers, timestamp_ms=1)
        value[:], key[:] = b"VALUE", b"KEY"
        headers["trace"] = None
        sent = await future
    expected = Sample(b"key", b"value", (("trace", b"1f"), ("null", None)), timestamp_ms=1)
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == [expected.as_read(sent)]


async def test_common_header_precedes_headers_of_the_record(kafka: ApacheKafka, topic: str) -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send_many(
            topic,
            [b"a", b"b"],
            headers=[{}, {"own": b"2", "common": b"3"}],
            common_headers=[("common", b"1")],
            partition=0,
        )
    first, second = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert first.headers == (("common", b"1"),)
    assert second.headers == (("common", b"1"), ("own", b"2"), ("common", b"3"))


@pytest.mark.parametrize("acks", [0, 1])
async def test_records_arrive_with_fewer_acks(
    kafka: ApacheKafka, new_topic: NewTopic, acks: Literal[0, 1]
) -> None:
    topic = new_topic()
    async with Producer(kafka.bootstrap_servers, acks=acks) as producer:
        sent = [*await with_send(producer, topic, SAMPLES), *await with_send_many(producer, topic, SAMPLES)]
    expected = [
        sample.as_read(RecordMetadata(topic, 0, offset, sample.timestamp_ms, log_append_time=False))
        for offset, sample in enumerate(SAMPLES * 2)
    ]
    assert [each.offset for each in sent] == [each.offset if acks else -1 for each in expected]
    log = await_records(kafka.bootstrap_servers, topic, lambda log: len(log) >= len(expected))
    assert log == expected
