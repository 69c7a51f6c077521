"""The producer against librdkafka's mock cluster, under faults.

The mock fences no producer, lists no aborted transaction, and keeps no offset of a transaction, so no test of these is
here. Its control records have no checksum. It checks no sequence, and accepts a batch
after a refused one; the tests of order therefore have one request in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aioproducer import GroupMetadata, Producer, ProducerError, ProducerOptions, TopicPartition as Partition
from tests.kafka.numbered import assert_once_in_order
from tests.kafka.readback import Record, read_with_librdkafka
from tests.other_brokers.librdkafka import MockCluster, mock_cluster
from tests.other_brokers.numbered import (
    CONNECTION_LOST,
    PARTITIONS,
    PRODUCE,
    RECORDS,
    SOON,
    TOPIC,
    TRANSACTION_FAULTS,
    TRANSACTIONAL,
    read_unchecked,
    send_numbered,
)

ONE_IN_FLIGHT: ProducerOptions = {**SOON, "max_in_flight_requests_per_connection": 1}


@pytest.fixture
async def cluster() -> AsyncIterator[MockCluster]:
    with mock_cluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        yield cluster


async def read(cluster: MockCluster) -> list[Record]:
    return await asyncio.to_thread(read_with_librdkafka, cluster.bootstrap_servers, TOPIC)


# the mock answers before it appends, so that a retry writes the batch for the first time
@pytest.mark.parametrize("code", [CONNECTION_LOST, 2, 3, 5, 6, 7, 13, 19, 20, 56])
async def test_refused_batches_are_written_once_in_order(cluster: MockCluster, code: int) -> None:
    async with Producer(cluster.bootstrap_servers, **ONE_IN_FLIGHT) as producer:
        sending = asyncio.create_task(send_numbered(producer))
        for _ in range(4):
            await asyncio.sleep(0.03)
            cluster.fail(PRODUCE, code, 2)
        await sending
        assert producer.metrics()["producer"]["record_retry_total"] > 0
    assert_once_in_order(await read(cluster), RECORDS)


async def test_records_are_written_once_in_order_while_leaders_move(cluster: MockCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **ONE_IN_FLIGHT) as producer:
        sending = asyncio.create_task(send_numbered(producer))
        for turn in range(4):
            for partition in range(PARTITIONS):
                cluster.lead(TOPIC, partition, (turn + partition) % 3 + 1)
            await asyncio.sleep(0.05)
        await sending
    assert_once_in_order(await read(cluster), RECORDS)


async def test_records_are_written_once_in_order_while_brokers_restart(cluster: MockCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **ONE_IN_FLIGHT) as producer:
        sending = asyncio.create_task(send_numbered(producer))
        for broker in (1, 2, 3):
            cluster.stop(broker)
            await asyncio.sleep(0.1)
            cluster.start(broker)
        await sending
    assert_once_in_order(await read(cluster), RECORDS)


@pytest.mark.parametrize(("key", "code"), TRANSACTION_FAULTS)
async def test_transactions_survive_faults(cluster: MockCluster, key: int, code: int) -> None:
    cluster.fail(key, code)
    committed = 0
    async with Producer(cluster.bootstrap_servers, **TRANSACTIONAL) as producer:
        for number in range(6):
            cluster.fail(key, code)
            try:
                async with producer.transaction():
                    await send_numbered(producer, 30, number * 30)
                    await producer.send_offsets_to_transaction(
                        {Partition(TOPIC, 0): number}, GroupMetadata("readers")
                    )
                committed += 1
            except ProducerError as error:
                assert not error.fatal  # noqa: PT017 - an abortable error is allowed
            cluster.coordinate("writer", number % 3 + 1)
    assert committed >= 3
    found = await asyncio.to_thread(read_unchecked, cluster.bootstrap_servers, TOPIC)
    assert len(found) == len({each.value for each in found}) >= committed * 30
