"""Clients that other people wrote do not know that this is not Kafka."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest

from aioproducer._core.records.compression import Codec
from aioproducer.testing import DecodedRecord, ThreadedCluster

pytestmark = [
    pytest.mark.kafka_cluster(brokers=2, topics={"orders": 2}),
    pytest.mark.slow,
]

MARKERS_WAIT_S = 20.0
HEADERS: list[tuple[str, bytes | None]] = [("trace", b"\x1f"), ("empty", None), ("trace", b"")]
SENT = [
    DecodedRecord(0, 1_700_000_000_000, b"key", b"value", tuple(HEADERS)),
    DecodedRecord(1, 1_700_000_000_007, None, b"x" * 2000, ()),
    DecodedRecord(2, 1_600_000_000_000, b"", None, ()),
]
CODECS = [str(codec) for codec in Codec]


def librdkafka(cluster: ThreadedCluster, **options: Any) -> dict[str, Any]:
    """Return a configuration; in names of *options*, `_` is a dot."""
    settings = {name.replace("_", "."): value for name, value in options.items()}
    return {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0} | settings


def produce_with_librdkafka(cluster: ThreadedCluster, **options: Any) -> None:
    producer = confluent_kafka.Producer(librdkafka(cluster, **options))
    for record in SENT:
        producer.produce(
            "orders",
            record.value,
            record.key,
            partition=1,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
    assert producer.flush(MARKERS_WAIT_S) == 0


def consume_with_librdkafka(cluster: ThreadedCluster, partition: int, count: int) -> list[DecodedRecord]:
    consumer = confluent_kafka.Consumer(librdkafka(cluster, group_id="any", enable_auto_commit=False))
    consumer.assign([confluent_kafka.TopicPartition("orders", partition, confluent_kafka.OFFSET_BEGINNING)])
    consumed: list[DecodedRecord] = []
    deadline = time.monotonic() + MARKERS_WAIT_S
    while len(consumed) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, timeout=1):
            assert message.error() is None, message.error()
            consumed.append(decoded(message))
    consumer.close()
    return consumed


def decoded(message: confluent_kafka.Message) -> DecodedRecord:
    _, timestamp_ms = message.timestamp()
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    offset = cast("int", message.offset())
    return DecodedRecord(offset, timestamp_ms, message.key(), message.value(), tuple(headers))


async def produce_with_aiokafka(cluster: ThreadedCluster, **options: Any) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        for record in SENT:
            sent = await producer.send_and_wait(
                "orders",
                record.value,
                record.key,
                partition=1,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            assert sent.offset == record.offset


async def consume_with_aiokafka(cluster: ThreadedCluster, partition: int, count: int) -> list[DecodedRecord]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([aiokafka.TopicPartition("orders", partition)])
        return [
            DecodedRecord(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
            for each in [await consumer.getone() for _ in range(count)]
        ]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False])
def test_librdkafka_produces(kafka_cluster: ThreadedCluster, codec: str, idempotent: bool) -> None:
    produce_with_librdkafka(kafka_cluster, compression_codec=codec, enable_idempotence=idempotent)
    assert kafka_cluster.records("orders", 1) == SENT
    assert all((batch.producer_id >= 0) == idempotent for batch in kafka_cluster.batches("orders", 1))


# aiokafka's snappy needs a package that is not ours
@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "snappy"])
async def test_aiokafka_produces(kafka_cluster: ThreadedCluster, codec: str) -> None:
    compression = None if codec == "none" else codec
    await produce_with_aiokafka(kafka_cluster, compression_type=compression, enable_idempotence=True)
    assert kafka_cluster.records("orders", 1) == SENT


async def test_aiokafka_and_producer_read_each_other(kafka_cluster: ThreadedCluster) -> None:
    await produce_with_aiokafka(kafka_cluster)
    assert consume_with_librdkafka(kafka_cluster, 1, len(SENT)) == SENT
    assert await consume_with_aiokafka(kafka_cluster, 1, len(SENT)) == SENT


async def test_records_of_librdkafka_are_read_by_both(kafka_cluster: ThreadedCluster) -> None:
    produce_with_librdkafka(kafka_cluster, compression_codec="zstd")
    assert consume_with_librdkafka(kafka_cluster, 1, len(SENT)) == SENT
    assert await consume_with_aiokafka(kafka_cluster, 1, len(SENT)) == SENT


def test_many_records_arrive_once_and_in_order(kafka_cluster: ThreadedCluster) -> None:
    count = 20_000
    producer = confluent_kafka.Producer(librdkafka(kafka_cluster, enable_idempotence=True, linger_ms=1))
    for number in range(count):
        producer.produce("orders", str(number).encode(), partition=0)
    assert producer.flush(MARKERS_WAIT_S) == 0
    expected = [str(number).encode() for number in range(count)]
    assert [record.value for record in kafka_cluster.records("orders", 0)] == expected
    assert [record.value for record in consume_with_librdkafka(kafka_cluster, 0, count)] == expected


def test_librdkafka_follows_a_leader(kafka_cluster: ThreadedCluster) -> None:
    producer = confluent_kafka.Producer(
        librdkafka(kafka_cluster, enable_idempotence=True, retry_backoff_ms=10)
    )
    for to_broker in (2, 1):
        producer.produce("orders", b"value", partition=0)
        assert producer.flush(MARKERS_WAIT_S) == 0
        kafka_cluster.move_leader("orders", 0, to_broker=to_broker)
    producer.produce("orders", b"value", partition=0)
    assert producer.flush(MARKERS_WAIT_S) == 0
    assert len(kafka_cluster.records("orders", 0)) == 3
    assert set(kafka_cluster.produce_requests("orders", 0)) == {1, 2}


async def test_aiokafka_lets_topics_be_created(kafka_cluster: ThreadedCluster) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("created", b"value")
    assert len(kafka_cluster.records("created", 0)) == 1


def test_librdkafka_asks_for_offsets(kafka_cluster: ThreadedCluster) -> None:
    produce_with_librdkafka(kafka_cluster)
    consumer = confluent_kafka.Consumer(librdkafka(kafka_cluster, group_id="any"))
    partition = confluent_kafka.TopicPartition("orders", 1)
    assert consumer.get_watermark_offsets(partition, timeout=MARKERS_WAIT_S) == (0, len(SENT))
    partition.offset = SENT[1].timestamp_ms
    [found] = consumer.offsets_for_times([partition], timeout=MARKERS_WAIT_S)
    assert found.offset == 1
    consumer.close()


def test_admin_client_creates_topics(kafka_cluster: ThreadedCluster) -> None:
    admin = confluent_kafka.admin.AdminClient(librdkafka(kafka_cluster))
    names = ("new", "orders", "bad name")
    outcomes = admin.create_topics([confluent_kafka.admin.NewTopic(name, 3) for name in names])
    assert outcomes["new"].result(MARKERS_WAIT_S) is None
    for name, code in (
        ("orders", confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS),
        ("bad name", confluent_kafka.KafkaError.TOPIC_EXCEPTION),
    ):
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            outcomes[name].result(MARKERS_WAIT_S)
        assert refused.value.args[0].code() == code
    assert len(admin.list_topics("new", timeout=MARKERS_WAIT_S).topics["new"].partitions) == 3


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_subscribing_consumer_is_logged_once(
    kafka_cluster: ThreadedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        "orders", bootstrap_servers=kafka_cluster.bootstrap_servers, group_id="shipping"
    )
    starting = asyncio.create_task(consumer.start())
    async with asyncio.timeout(20):
        while caplog.text.count("IncompatibleBrokerVersion: JoinGroupRequest") < 8:  # noqa: ASYNC110 - aiokafka only logs it
            await asyncio.sleep(0.05)
    starting.cancel()
    await consumer.stop()
    assert caplog.text.count("broker.group_unused group=shipping") == 1
