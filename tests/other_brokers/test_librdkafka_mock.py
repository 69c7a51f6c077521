"""librdkafka's mock cluster, an independent broker that users of confluent-kafka test against.

It lives in a client of librdkafka's and listens on real sockets. It has a mind of its own: the topics that it is asked
for exist, with four partitions; it answers requests with acks=0, says too much in Metadata, and for it any record came
at 1,234 ms.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from aioproducer import ConnectionFailed, DeliveryTimeout, Producer
from aioproducer._core.records.compression import Codec
from tests.kafka.readback import await_records, read_with_librdkafka
from tests.kafka.samples import SAMPLES, WAYS_TO_SEND, with_send, with_send_many

PARTITIONS = range(4)
BROKERS = 3
topic_numbers = itertools.count()
SOON_S = 5.0
"""Nothing here takes so long."""


@contextmanager
def mock_cluster(**options: Any) -> Iterator[str]:
    """Yield the addresses of a cluster that is there meanwhile."""
    owner = confluent_kafka.Producer({"test.mock.num.brokers": BROKERS, "log_level": 0, **options})
    try:
        brokers = owner.list_topics(timeout=SOON_S).brokers.values()
        yield ",".join(f"{each.host}:{each.port}" for each in brokers)
    finally:
        owner.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with mock_cluster() as servers:
        yield servers


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"topic-{next(topic_numbers)}"


def assert_undisturbed(producer: Producer) -> None:
    """Assert that all went well at the first attempt."""
    numbers = producer.metrics()["producer"]
    assert {name: numbers[name] for name in ("connection_close_total", "record_retry_total")} == {
        "connection_close_total": 0,
        "record_retry_total": 0,
    }


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": False}, {"acks": 1}], ids=str)
@pytest.mark.parametrize("codec", [str(codec) for codec in Codec])
async def test_every_shape_of_record_is_read_as_it_was_sent(
    servers: str, topic: str, codec: Any, options: dict[str, Any]
) -> None:
    written = []
    async with Producer(servers, compression_type=codec, linger_ms=1, **options) as producer:
        for send in WAYS_TO_SEND:
            sent = await send(producer, topic, SAMPLES)
            written += [sample.as_read(where) for sample, where in zip(SAMPLES, sent, strict=True)]
        assert_undisturbed(producer)
    assert read_with_librdkafka(servers, topic) == sorted(written)


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_records_with_acks_0_arrive(servers: str, topic: str, codec: Any) -> None:
    async with Producer(servers, acks=0, compression_type=codec, linger_ms=1) as producer:
        sent = [*await with_send(producer, topic, SAMPLES), *await with_send_many(producer, topic, SAMPLES)]
        assert {each.offset for each in sent} == {-1}
        await producer.flush()
        # The last record is awaited, the earlier records are not.
        await producer.partitions_for(f"{topic}-another")
        assert_undisturbed(producer)
    written = [sample.as_read(where) for sample, where in zip(SAMPLES * 2, sent, strict=True)]
    arrived = await_records(servers, topic, lambda records: len(records) >= len(written), timeout_s=SOON_S)
    assert Counter(each._replace(offset=-1) for each in arrived) == Counter(written)


async def test_requested_topics_are_created_on_all_brokers(servers: str, topic: str) -> None:
    async with Producer(servers, linger_ms=0) as producer:
        for number in range(10):  # leaders are drawn by lot
            created = f"{topic}-{number}"
            assert await producer.partitions_for(created) == frozenset(PARTITIONS)
            result = await producer.send_many(created, [b"v"] * len(PARTITIONS), partitions=PARTITIONS)
            assert [result.offset(index) for index in PARTITIONS] == [0] * len(PARTITIONS)
        nodes = producer.metrics()["nodes"]
        assert_undisturbed(producer)
    assert len(nodes) == BROKERS
    assert all(each["request_total"] > 1 for each in nodes.values())  # more than the handshake


@pytest.mark.parametrize("end", ["flush", "close"])
async def test_batches_in_flight_stay_in_order(topic: str, end: str) -> None:
    with mock_cluster(**{"test.mock.broker.rtt": 20}) as servers:
        producer = Producer(servers, batch_size=2_000, linger_ms=0)
        await producer.start()
        futures = [
            await producer.enqueue(topic, b"%04d" % number * 20, b"%d" % (number % 7))
            for number in range(1_000)
        ]
        if end == "flush":
            await producer.flush()
            assert all(each.done() for each in futures)
        assert_undisturbed(producer)
        assert await producer.close() == 0
        records = read_with_librdkafka(servers, topic)
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for each in records:
        by_key.setdefault(each.key, []).append(each.value)
    assert by_key == {
        b"%d" % key: [b"%04d" % number * 20 for number in range(key, 1_000, 7)] for key in range(7)
    }
    assert Counter((each.partition, each.offset) for each in records) == Counter(
        (future.result().partition, future.result().offset) for future in futures
    )


async def test_records_expire_when_the_cluster_disappears(
    topic: str,
) -> None:
    with mock_cluster() as servers:
        producer = Producer(
            servers, linger_ms=0, request_timeout_ms=100, delivery_timeout_ms=300, max_block_ms=300
        )
        await producer.start()
        await producer.send(topic, b"v", partition=0)
    began_at = time.monotonic()
    with pytest.raises(DeliveryTimeout):
        await producer.send(topic, b"v", partition=0)
    assert await producer.close() == 0
    assert time.monotonic() < began_at + SOON_S
    with pytest.raises(ConnectionFailed):
        await asyncio.wait_for(Producer(servers).start(), SOON_S)
