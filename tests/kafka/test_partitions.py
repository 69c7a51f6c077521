"""Partitions of records: the choice of other clients for a key, and new partitions."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest
from aiokafka.partitioner import DefaultPartitioner
from confluent_kafka import Producer as OtherProducer

from aioproducer import Producer, RecordMetadata
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import read_with_librdkafka

PARTITIONS = 7  # a prime: every bit of the hash counts


def random_keys(count: int) -> list[bytes]:
    randomness = random.Random(2)
    return list({randomness.randbytes(randomness.randrange(1, 40)) for _ in range(2 * count)})[:count]


async def test_ten_thousand_keys_have_the_partitions_of_librdkafka(
    kafka: ApacheKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    keys = random_keys(10_000)
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send_many(topic, [b"ours"] * len(keys), keys=keys)
    other = OtherProducer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        other.produce(topic, b"theirs", key)
        other.poll(0)
    assert other.flush(30) == 0

    found: defaultdict[bytes | None, list[tuple[bytes | None, int]]] = defaultdict(list)
    for record in read_with_librdkafka(kafka.bootstrap_servers, topic):
        found[record.key].append((record.value, record.partition))
    assert found.keys() == set(keys)
    for placed, (one, two) in found.items():
        assert {one[0], two[0]} == {b"ours", b"theirs"}
        assert one[1] == two[1], placed


@pytest.mark.parametrize("key", [b"", b"\x00", b"\xff" * 4, b"customer-7", "größe".encode()])
async def test_key_has_the_partition_of_aiokafka(kafka: ApacheKafka, new_topic: NewTopic, key: bytes) -> None:
    partitions = list(range(PARTITIONS))
    async with Producer(kafka.bootstrap_servers) as producer:
        sent = await producer.send(new_topic(partitions=PARTITIONS), b"value", key)
    assert sent.partition == DefaultPartitioner()(key, partitions, partitions)


async def test_explicit_partition_is_accepted_right_after_its_creation(
    kafka: ApacheKafka, new_topic: NewTopic
) -> None:
    topic = new_topic()
    async with Producer(kafka.bootstrap_servers) as producer:
        await producer.send(topic, b"before")
        with pytest.raises(ValueError, match="partition=2"):
            await producer.send(topic, b"too early", partition=2)
        kafka.add_partitions(topic, 3)
        sent = await producer.send(topic, b"after", partition=2)
        assert await producer.partitions_for(topic) == {0, 1, 2}
    assert (sent.partition, sent.offset) == (2, 0)
    found = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert [(each.partition, each.value) for each in found] == [(0, b"before"), (2, b"after")]


async def test_added_partitions_are_used_after_a_refresh(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    told: list[RecordMetadata] = []
    async with asyncio.timeout(30), Producer(kafka.bootstrap_servers, metadata_max_age_ms=100) as producer:
        told.append(await producer.send(topic, b"before"))
        adding = asyncio.create_task(asyncio.to_thread(kafka.add_partitions, topic, 3))
        while {each.partition for each in told} != {0, 1, 2}:
            told.append(await producer.send(topic, b"during"))
        await adding
        keys = random_keys(100)
        result = await producer.send_many(topic, [b"after"] * len(keys), keys=keys)
    told += [sent for sent in result if isinstance(sent, RecordMetadata)]
    assert {result.partition(index) for index in range(len(keys))} == {0, 1, 2}
    found = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert [each[:2] for each in found] == sorted((each.partition, each.offset) for each in told)


async def test_recreated_topic_uses_its_new_partitions(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers) as producer:
        for _ in range(3):
            await producer.send(topic, b"old")
        kafka.delete_topic(topic)
        kafka.create_topic(topic, partitions=2)
        sent = await producer.send(topic, b"new", partition=1)
        again = await producer.send(topic, b"new", partition=0)
    assert (sent.partition, sent.offset) == (1, 0)
    assert (again.partition, again.offset) == (0, 0)
    assert [each.value for each in read_with_librdkafka(kafka.bootstrap_servers, topic)] == [b"new", b"new"]
