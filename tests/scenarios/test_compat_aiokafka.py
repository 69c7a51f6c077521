"""One service, two clients: documented behaviour of aiokafka, with aiokafka itself and with the compatible producer."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import aiokafka
import aiokafka.errors
import pytest

from aioproducer import errors
from aioproducer.compat import aiokafka as compat
from aioproducer.compat.aiokafka import errors as compat_errors
from aioproducer.testing import Rule, ThreadedCluster

TOPIC = "orders"
PATIENCE_MS = 300
"""How long the tests of errors wait for one."""

pytestmark = [
    pytest.mark.parametrize("client", [aiokafka, compat], ids=["aiokafka", "compat"]),
    pytest.mark.kafka_cluster(topics={TOPIC: 3}, auto_create_topics=False),
]


def errors_of(client: ModuleType) -> ModuleType:
    module: ModuleType = compat_errors if client is compat else aiokafka.errors
    return module


@asynccontextmanager
async def started(client: ModuleType, cluster: ThreadedCluster, **options: Any) -> AsyncIterator[Any]:
    producer = client.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def test_send_and_wait_returns_record_metadata(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster) as producer:
        sent = await producer.send_and_wait(TOPIC, b"Super message", partition=1)
    (record,) = kafka_cluster.records(TOPIC, 1)
    assert record.value == b"Super message"
    assert sent[:-1] == (TOPIC, 1, (TOPIC, 1), 0, record.timestamp_ms, 0)
    assert sent.topic_partition.topic == sent.topic == TOPIC


async def test_cancelled_future_leaves_the_record_sent(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster, linger_ms=20) as producer:
        future = await producer.send(TOPIC, b"1", partition=0)
        other = await producer.send(TOPIC, b"2", b"key", 0, 1234, [("trace", b"1f"), ("null", None)])
        assert isinstance(future, asyncio.Future)
        assert not future.done()
        future.cancel()
        sent = await other
    assert (sent.offset, sent.timestamp) == (1, 1234)
    first, second = kafka_cluster.records(TOPIC, 0)
    assert first.value == b"1"
    assert (second.value, second.key, second.timestamp_ms) == (b"2", b"key", 1234)
    assert second.headers == (("trace", b"1f"), ("null", None))


async def test_timestamp_may_have_a_fraction(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster) as producer:
        for send in (producer.send, producer.send_and_wait):
            await send(TOPIC, b"v", partition=0, timestamp_ms=1234.9)
        batch = producer.create_batch()
        assert batch.append(key=None, value=b"v", timestamp=1234.9, headers=None).timestamp == 1234
        await producer.send_batch(batch, TOPIC, partition=0)
    assert [each.timestamp_ms for each in kafka_cluster.records(TOPIC, 0)] == [1234] * 3


async def test_keys_choose_the_partitions_of_the_jvm_client(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster) as producer:
        chosen = [(await producer.send_and_wait(TOPIC, key=b"%d" % key)).partition for key in range(12)]
    assert chosen == [2, 0, 2, 2, 1, 0, 1, 0, 0, 2, 1, 0]


async def test_partitioner_receives_key_and_partitions(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    seen = []

    def my_partitioner(key: bytes | None, every: list[int], available: list[int]) -> int:
        seen.append((key, sorted(every), sorted(available)))
        return max(every) if key == b"last" else min(every)

    options = {"partitioner": my_partitioner, "key_serializer": lambda key: key and key.encode()}
    async with started(client, kafka_cluster, **options) as producer:
        last = await producer.send_and_wait(TOPIC, b"1", key="last")
        none = await producer.send_and_wait(TOPIC, b"2")
    assert (last.partition, none.partition) == (2, 0)
    assert seen == [(key, [0, 1, 2], [0, 1, 2]) for key in (b"last", None)]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_values_are_serialized_and_compressed(
    client: ModuleType, kafka_cluster: ThreadedCluster, compression: str | None
) -> None:
    data: list[Any] = [{"a": 123.4, "b": "some string"}, [1, 2, 3, 4]]
    options = {"value_serializer": lambda value: json.dumps(value).encode(), "compression_type": compression}
    async with started(client, kafka_cluster, **options) as producer:
        for each in data:
            await producer.send(TOPIC, each, partition=0)
    assert [json.loads(each.value or b"") for each in kafka_cluster.records(TOPIC, 0)] == data


async def test_batch_builder_is_filled_and_sent(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster) as producer:
        await producer.send_and_wait(TOPIC, b"before", partition=1)
        batch = producer.create_batch()
        for number in range(2):
            metadata = batch.append(value=b"msg %d" % number, key=None, timestamp=None)
            assert (metadata.offset, metadata.crc) == (number, None)
            assert metadata.size > 0
            assert metadata.timestamp > 0
        batch.close()
        assert batch.closed()
        assert batch.append(value=b"late", key=None, timestamp=None) is None
        assert batch.record_count() == 2
        future = await producer.send_batch(batch, TOPIC, partition=1)
        record = await future
    assert (record.topic, record.partition, record.offset) == (TOPIC, 1, 1)  # the first one's
    assert [each.value for each in kafka_cluster.records(TOPIC, 1)] == [b"before", b"msg 0", b"msg 1"]


async def test_batches_are_filled_until_none_of_a_thousand_is_left(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    counts = []
    async with started(client, kafka_cluster) as producer:
        batch = producer.create_batch()
        number = 0
        while number < 1_000:
            metadata = batch.append(key=None, value=b"Test message %d" % number, timestamp=None)
            if metadata is None:
                partition = random.choice(tuple(await producer.partitions_for(TOPIC)))
                await producer.send_batch(batch, TOPIC, partition=partition)
                counts.append(batch.record_count())
                batch = producer.create_batch()
                continue
            number += 1
        await producer.send_batch(batch, TOPIC, partition=0)
        counts.append(batch.record_count())
    assert sum(counts) == 1_000
    assert len(counts) in {2, 3}  # batches of the compatible producer are slightly smaller
    values = [each.value or b"" for partition in range(3) for each in kafka_cluster.records(TOPIC, partition)]
    assert sorted(values) == sorted(b"Test message %d" % number for number in range(1_000))


async def test_batch_builder_serializes_and_may_be_resent(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster, value_serializer=str.encode) as producer:
        batch = producer.create_batch()
        batch.append(key=b"k", value="v", timestamp=12, headers=[("a", b"b")])
        for _ in range(2):
            await (await producer.send_batch(batch, TOPIC, partition=0))
            assert batch.closed()
    for record in kafka_cluster.records(TOPIC, 0):
        assert (record.key, record.value, record.headers) == (b"k", b"v", (("a", b"b"),))
        assert record.timestamp_ms == 12
    assert len(kafka_cluster.records(TOPIC, 0)) == 2


async def test_full_batch_builder_refuses_records(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster, max_batch_size=1_000) as producer:
        batch = producer.create_batch()
        for size, fits in [(500, True), (500, False), (1, False)]:  # the last one would not be in its place
            assert (batch.append(key=None, value=bytes(size), timestamp=None) is not None) == fits
            assert batch.closed() != fits
        await producer.send_batch(batch, TOPIC, partition=0)
    assert [each.value for each in kafka_cluster.records(TOPIC, 0)] == [bytes(500)]


async def test_empty_batch_builder_is_accepted(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster) as producer:
        await (await producer.send_batch(producer.create_batch(), TOPIC, partition=0))
    assert kafka_cluster.records(TOPIC, 0) == []


async def test_async_with_returns_the_producer(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    producer = client.AIOKafkaProducer(bootstrap_servers=[kafka_cluster.bootstrap_servers])
    async with producer as entered:
        assert entered is producer
        future = await producer.send(TOPIC, b"v", partition=0)
    assert future.done()
    await producer.stop()  # twice is fine
    assert await producer.flush() is None
    with pytest.raises(errors_of(client).ProducerClosed):
        await producer.send(TOPIC, b"v")


async def test_flush_waits_for_sent_records(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster) as producer:
        futures = [await producer.send(TOPIC, b"%d" % number) for number in range(100)]
        await producer.flush()
        assert all(each.done() for each in futures)


async def test_partitions_for_returns_a_set(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster) as producer:
        assert await producer.partitions_for(TOPIC) == {0, 1, 2}


@pytest.mark.parametrize("acks", [0, 1, -1, "all"])
async def test_acks_of_every_value_store_the_record(
    client: ModuleType, kafka_cluster: ThreadedCluster, acks: object
) -> None:
    async with started(client, kafka_cluster, acks=acks) as producer:
        await producer.send_and_wait(TOPIC, b"v", partition=0)
    assert len(kafka_cluster.wait_for_records(TOPIC, 0, 1)) == 1


async def test_idempotent_producer_sends_its_producer_id(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    for idempotent, partition in [(False, 0), (True, 1)]:
        async with started(client, kafka_cluster, enable_idempotence=idempotent) as producer:
            await producer.send_and_wait(TOPIC, b"v", partition=partition)
        (batch,) = kafka_cluster.batches(TOPIC, partition)
        assert (batch.producer_id >= 0) == idempotent


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 2},
        {"acks": "most"},
        {"compression_type": "rar"},
        {"enable_idempotence": True, "acks": 1},
    ],
    ids=str,
)
async def test_options_that_make_no_sense_are_value_errors(
    client: ModuleType, kafka_cluster: ThreadedCluster, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError):
        client.AIOKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers, **options)


async def test_key_is_serialized_before_the_value(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    seen = []

    def serialize(data: bytes) -> bytes:
        seen.append(data)
        return data

    async with started(
        client, kafka_cluster, key_serializer=serialize, value_serializer=serialize
    ) as producer:
        await producer.send(TOPIC, b"v", b"k")
        await producer.send_and_wait(TOPIC, b"v", b"k")
        producer.create_batch().append(key=b"k", value=b"v", timestamp=None)
    assert seen == [b"k", b"v"] * 3


async def test_serializer_errors_propagate_unchanged(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster, value_serializer=lambda value: value / 0) as producer:
        with pytest.raises(ZeroDivisionError):
            await producer.send(TOPIC, 1)
        with pytest.raises(ZeroDivisionError):
            producer.create_batch().append(key=None, value=1, timestamp=None)


@pytest.mark.parametrize("record", [{"value": "text"}, {"value": b"v", "key": "text"}], ids=str)
async def test_value_other_than_bytes_is_a_type_error(
    client: ModuleType, kafka_cluster: ThreadedCluster, record: dict[str, Any]
) -> None:
    async with started(client, kafka_cluster) as producer:
        with pytest.raises(TypeError):
            await producer.send(TOPIC, **record)


async def test_transactions_need_a_transactional_id(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster) as producer:
        for call in (
            producer.begin_transaction,
            producer.transaction().__aenter__,
            producer.commit_transaction,
            producer.abort_transaction,
        ):
            with pytest.raises(client.IllegalOperation):
                await call()


FAULTS: list[tuple[str, Callable[[Rule], object]]] = [
    ("TopicAuthorizationFailedError", lambda rule: rule.answer(errors.TopicAuthorizationFailed)),
    ("MessageSizeTooLargeError", lambda rule: rule.answer(errors.MessageTooLarge)),
    ("NotEnoughReplicasError", lambda rule: rule.answer(errors.NotEnoughReplicas)),
    ("NotLeaderForPartitionError", lambda rule: rule.answer(errors.NotLeaderOrFollower)),
    ("UnknownError", lambda rule: rule.answer(errors.InvalidRecord)),
    ("RequestTimedOutError", lambda rule: rule.answer(errors.RequestTimedOut)),
    ("RequestTimedOutError", lambda rule: rule.drop()),
    ("KafkaConnectionError", lambda rule: rule.close()),
]


@pytest.mark.parametrize(("name", "fault"), FAULTS)
async def test_broker_errors_equal_those_of_aiokafka(
    client: ModuleType, kafka_cluster: ThreadedCluster, name: str, fault: Callable[[Rule], object]
) -> None:
    async with started(client, kafka_cluster, request_timeout_ms=PATIENCE_MS) as producer:
        await producer.partitions_for(TOPIC)
        rule = kafka_cluster.on("produce", times=None)
        fault(rule)
        kind = getattr(errors_of(client), name)
        for send in (producer.send, producer.send_and_wait):
            with pytest.raises(errors_of(client).KafkaError) as caught:
                await (await send(TOPIC, b"v", partition=0))
            assert issubclass(caught.type, kind)
            assert caught.type.__name__ == name
        assert rule.hits > 0


async def test_missing_broker_is_not_ready(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster, request_timeout_ms=PATIENCE_MS) as producer:
        await producer.partitions_for(TOPIC)
        kafka_cluster.stop_broker(1)
        with pytest.raises(errors_of(client).UnknownTopicOrPartitionError):
            await producer.partitions_for("none")  # by now its connection is known to be lost
        with pytest.raises(errors_of(client).NodeNotReadyError) as caught:
            await producer.send_and_wait(TOPIC, b"v", partition=0)
        assert caught.value.retriable


async def test_missing_topic_is_unknown(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    async with started(client, kafka_cluster, request_timeout_ms=PATIENCE_MS) as producer:
        for call in (producer.send_and_wait("none", b"v"), producer.partitions_for("none")):
            with pytest.raises(errors_of(client).UnknownTopicOrPartitionError):
                await call


async def test_oversized_record_is_refused_by_the_call(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    async with started(client, kafka_cluster, max_request_size=1_000) as producer:
        with pytest.raises(errors_of(client).MessageSizeTooLargeError):
            await producer.send(TOPIC, bytes(1_000))


async def test_start_without_broker_is_a_connection_error(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    kafka_cluster.stop_broker(1)
    producer = client.AIOKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers)
    with pytest.raises(errors_of(client).KafkaConnectionError):
        await producer.start()
    await producer.stop()


async def test_idempotent_producer_continues_after_a_request_timeout(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    options = {"enable_idempotence": True, "request_timeout_ms": 100, "retry_backoff_ms": 60}
    async with started(client, kafka_cluster, **options) as producer:
        refused = kafka_cluster.on("produce", times=4).answer(errors.NotEnoughReplicas)
        sent = await producer.send_and_wait(TOPIC, b"v", partition=0)
    assert sent.offset == 0
    assert refused.hits == 4


async def test_records_for_a_deleted_topic_fail_when_idempotent(
    client: ModuleType, kafka_cluster: ThreadedCluster
) -> None:
    options = {"enable_idempotence": True, "request_timeout_ms": PATIENCE_MS}
    async with started(client, kafka_cluster, **options) as producer:
        await producer.send_and_wait(TOPIC, b"v", partition=0)
        kafka_cluster.delete_topic(TOPIC)
        with pytest.raises(errors_of(client).NotLeaderForPartitionError):
            await producer.send_and_wait(TOPIC, b"v", partition=0)
        await producer.flush()
