"""The producer against the fake cluster of franz-go, under faults; franz-go's consumer reads the records back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import product
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition as Assigned

from aioproducer import (
    GroupMetadata,
    Producer,
    ProducerError,
    ProducerFenced,
    ProducerOptions,
    TopicPartition,
)
from tests.kafka.numbered import assert_once_in_order
from tests.kafka.readback import read_with_librdkafka
from tests.kafka.samples import SAMPLES, WAYS_TO_SEND
from tests.other_brokers import franz_go
from tests.other_brokers.franz_go import FranzGoCluster, franz_go_cluster
from tests.other_brokers.numbered import (
    ADD_PARTITIONS,
    CONNECTION_LOST,
    PARTITIONS,
    PRODUCE,
    RECORDS,
    SOON,
    TOPIC,
    TRANSACTION_FAULTS,
    TRANSACTIONAL,
    send_numbered,
)

pytestmark = [
    pytest.mark.skipif(bool(franz_go.reason_to_skip()), reason=franz_go.reason_to_skip()),
    pytest.mark.timeout(300),  # the first test builds the cluster
]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    franz_go.build()


@pytest.fixture
async def cluster() -> AsyncIterator[FranzGoCluster]:
    async with franz_go_cluster() as cluster:
        await cluster.run("create", topic=TOPIC, partition=PARTITIONS)
        yield cluster


@pytest.fixture(params=["", "3.9"], ids=["newest", "3.9"])
async def versioned(request: pytest.FixtureRequest) -> AsyncIterator[FranzGoCluster]:
    """A cluster with each transaction.version."""
    async with franz_go_cluster(version=request.param) as cluster:
        await cluster.run("create", topic=TOPIC, partition=PARTITIONS)
        yield cluster


@pytest.mark.parametrize(
    ("version", "codec", "idempotent"),
    [
        *product(["", "2.4"], ["none", "gzip", "snappy", "lz4", "zstd"], [True]),
        *product(["", "0.11.0"], ["lz4"], [False]),
    ],
)
async def test_franz_go_reads_every_record_as_sent(codec: Any, version: str, *, idempotent: bool) -> None:
    written = []
    options: ProducerOptions = {"compression_type": codec, "enable_idempotence": idempotent}
    async with franz_go_cluster(version=version) as cluster:
        await cluster.run("create", topic=TOPIC, partition=PARTITIONS)
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            for send in WAYS_TO_SEND:
                sent = await send(producer, TOPIC, SAMPLES)
                written += [sample.as_read(where) for sample, where in zip(SAMPLES, sent, strict=True)]
        assert await cluster.read(TOPIC, len(written)) == sorted(written)


async def test_librdkafka_reads_every_record_as_sent(cluster: FranzGoCluster) -> None:
    async with Producer(cluster.bootstrap_servers, compression_type="zstd") as producer:
        sent = await WAYS_TO_SEND[0](producer, TOPIC, SAMPLES)
    found = await asyncio.to_thread(read_with_librdkafka, cluster.bootstrap_servers, TOPIC)
    assert found == sorted(sample.as_read(where) for sample, where in zip(SAMPLES, sent, strict=True))


# kfake appends the batch before it answers REQUEST_TIMED_OUT or NOT_ENOUGH_REPLICAS_AFTER_APPEND
@pytest.mark.parametrize("code", [2, 3, 5, 6, 7, 13, 19, 20, 56, 74])
async def test_refused_batches_are_written_once_in_order(cluster: FranzGoCluster, code: int) -> None:
    async with Producer(cluster.bootstrap_servers, **SOON) as producer:
        sending = asyncio.create_task(send_numbered(producer))
        for _ in range(4):
            await asyncio.sleep(0.03)
            await cluster.fail(PRODUCE, code, count=2)
        await sending
        assert await cluster.hits() > 0
    assert_once_in_order(await cluster.read(TOPIC, RECORDS), RECORDS)


async def test_batches_on_dropped_connections_are_written_once(cluster: FranzGoCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **SOON) as producer:
        sending = asyncio.create_task(send_numbered(producer))
        for _ in range(4):
            await asyncio.sleep(0.03)
            await cluster.drop(PRODUCE, count=2)
        await sending
        assert await cluster.hits() > 0
    assert_once_in_order(await cluster.read(TOPIC, RECORDS), RECORDS)


async def moved(cluster: FranzGoCluster) -> None:
    """Move each partition to the next broker."""
    for partition in range(PARTITIONS):
        leader = (await cluster.run("leader", topic=TOPIC, partition=partition))["node"]
        await cluster.run("move", topic=TOPIC, partition=partition, node=(leader + 1) % 3)


async def shuffled(cluster: FranzGoCluster) -> None:
    """Elect all leaders again."""
    await cluster.run("shuffle")


async def replaced(cluster: FranzGoCluster) -> None:
    """Remove a broker, and add another one."""
    leader = (await cluster.run("leader", topic=TOPIC, partition=0))["node"]
    await cluster.run("remove", node=leader)
    await cluster.run("add", node=-1)


@pytest.mark.parametrize("change", [moved, shuffled, replaced])
async def test_records_are_written_once_in_order_while_leaders_change(
    cluster: FranzGoCluster, change: Callable[[FranzGoCluster], Coroutine[Any, Any, None]]
) -> None:
    async with Producer(cluster.bootstrap_servers, **SOON) as producer:
        sending = asyncio.create_task(send_numbered(producer))
        for _ in range(3):
            await asyncio.sleep(0.05)
            await change(cluster)
        await sending
        await send_numbered(producer, RECORDS, RECORDS)
    assert_once_in_order(await cluster.read(TOPIC, 2 * RECORDS), 2 * RECORDS)


async def test_transactions_are_read_whole_or_not_at_all(versioned: FranzGoCluster) -> None:
    async with Producer(versioned.bootstrap_servers, **TRANSACTIONAL) as producer:
        for number in range(10):
            await producer.begin_transaction()
            await send_numbered(producer, 30, number * 30)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    committed = await versioned.read(TOPIC, 150, committed=True)
    numbers = {int(each.value or b"") for each in committed}
    assert numbers == {each for each in range(300) if each // 30 % 2 == 0}
    await versioned.read(TOPIC, 300)


@pytest.mark.parametrize(("key", "code"), TRANSACTION_FAULTS)
async def test_transactions_survive_faults(versioned: FranzGoCluster, key: int, code: int) -> None:

    async def inject() -> None:
        await (versioned.drop(key) if code == CONNECTION_LOST else versioned.fail(key, code))

    await inject()
    async with Producer(versioned.bootstrap_servers, **TRANSACTIONAL) as producer:
        committed = 0
        for number in range(6):
            await inject()
            try:
                async with producer.transaction():
                    await send_numbered(producer, 30, number * 30)
                committed += 1
            except ProducerError as error:
                assert not error.fatal  # noqa: PT017 - an abortable error is allowed
            await versioned.run("rehash")
    assert committed >= 3
    assert (
        await versioned.hits() > 0 or key == ADD_PARTITIONS
    )  # transaction.version 2 does not need this request
    found = await versioned.read(TOPIC, committed * 30, committed=True)
    assert len({each.value for each in found}) == committed * 30


async def test_newer_producer_fences_the_older_one(versioned: FranzGoCluster) -> None:
    async with Producer(versioned.bootstrap_servers, transactional_id="writer") as older:
        await older.begin_transaction()
        await older.send(TOPIC, b"older")
        async with Producer(versioned.bootstrap_servers, transactional_id="writer") as newer:
            async with newer.transaction():
                await newer.send(TOPIC, b"newer")
            with pytest.raises(ProducerFenced):
                await older.commit_transaction()
    [found] = await versioned.read(TOPIC, 1, committed=True)
    assert found.value == b"newer"


async def test_offsets_are_committed_with_the_transaction(versioned: FranzGoCluster) -> None:
    async with Producer(versioned.bootstrap_servers, transactional_id="writer") as producer:
        transaction = await producer.begin_transaction()
        await producer.send(TOPIC, b"one", partition=0)
        await transaction.send_offsets({TopicPartition(TOPIC, 0): 1}, GroupMetadata("readers"))
        await producer.commit_transaction()
    consumer = Consumer({"bootstrap.servers": versioned.bootstrap_servers, "group.id": "readers"})
    [found] = await asyncio.to_thread(consumer.committed, [Assigned(TOPIC, 0)], 10)
    consumer.close()
    assert found.offset == 1
