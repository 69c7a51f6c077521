"""Transactions of other clients, and the records that their consumers see."""

from __future__ import annotations

import time
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from aioproducer.testing import ThreadedCluster
from aioproducer.testing.state import CommittedOffset

pytestmark = [
    pytest.mark.kafka_cluster(brokers=2, topics={"orders": 2}),
    pytest.mark.slow,
]

MARKERS_WAIT_S = 20.0
END = "end"
"""The value of the last record: consumers read up to it."""


def librdkafka(cluster: ThreadedCluster, **options: Any) -> dict[str, Any]:
    """Return a configuration; in names of *options*, `_` is a dot."""
    settings = {name.replace("_", "."): value for name, value in options.items()}
    return {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0} | settings


def write_with_librdkafka(cluster: ThreadedCluster) -> None:
    """Commit one transaction, abort one, and commit another."""
    producer = confluent_kafka.Producer(librdkafka(cluster, transactional_id="tx"))
    producer.init_transactions(MARKERS_WAIT_S)
    for value in ("one", "aborted", END):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", value, partition=partition)
        producer.flush(MARKERS_WAIT_S)
        if value == "aborted":
            producer.abort_transaction(MARKERS_WAIT_S)
        else:
            producer.commit_transaction(MARKERS_WAIT_S)


async def write_with_aiokafka(cluster: ThreadedCluster) -> None:
    """Do the same."""
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id="tx"
    ) as producer:
        for value in ("one", "aborted", END):
            await producer.begin_transaction()
            for partition in (0, 1):
                await producer.send_and_wait("orders", value.encode(), partition=partition)
            if value == "aborted":
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()


def read_with_librdkafka(cluster: ThreadedCluster, isolation_level: str) -> list[str]:
    consumer = confluent_kafka.Consumer(
        librdkafka(cluster, group_id="any", enable_auto_commit=False, isolation_level=isolation_level)
    )
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, confluent_kafka.OFFSET_BEGINNING)])
    values: list[str] = []
    deadline = time.monotonic() + MARKERS_WAIT_S
    while END not in values and time.monotonic() < deadline:
        for message in consumer.consume(10, timeout=0.2):
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
    consumer.close()
    return values


async def read_with_aiokafka(cluster: ThreadedCluster, isolation_level: str) -> list[str]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation_level,
    )
    await consumer.start()
    try:
        consumer.assign([aiokafka.TopicPartition("orders", 0)])
        values: list[str] = []
        while END not in values:
            values.append((await consumer.getone()).value.decode())
    finally:
        await consumer.stop()
    return values


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("client", ["librdkafka", "aiokafka"])
async def test_consumers_see_what_was_committed(
    kafka_cluster: ThreadedCluster, client: str, version: int
) -> None:
    kafka_cluster.transaction_version = version
    if client == "librdkafka":
        write_with_librdkafka(kafka_cluster)
    else:
        await write_with_aiokafka(kafka_cluster)
    for isolation_level, values in (
        ("read_committed", ["one", END]),
        ("read_uncommitted", ["one", "aborted", END]),
    ):
        assert read_with_librdkafka(kafka_cluster, isolation_level) == values
        assert await read_with_aiokafka(kafka_cluster, isolation_level) == values
    committed = kafka_cluster.records("orders", 0, isolation_level="read_committed")
    assert [record.value for record in committed] == [b"one", END.encode()]
    assert kafka_cluster.transaction_state("tx") == "CompleteCommit"


def test_librdkafka_commits_offsets_with_a_transaction(kafka_cluster: ThreadedCluster) -> None:
    producer = confluent_kafka.Producer(librdkafka(kafka_cluster, transactional_id="tx"))
    consumer = confluent_kafka.Consumer(librdkafka(kafka_cluster, group_id="readers"))
    producer.init_transactions(MARKERS_WAIT_S)
    producer.begin_transaction()
    producer.produce("orders", "made of it", partition=0)
    producer.send_offsets_to_transaction(
        [confluent_kafka.TopicPartition("orders", 1, 7)], consumer.consumer_group_metadata(), MARKERS_WAIT_S
    )
    assert kafka_cluster.committed_offset("readers", "orders", 1) is None
    producer.commit_transaction(MARKERS_WAIT_S)
    assert kafka_cluster.committed_offset("readers", "orders", 1) == CommittedOffset(7, metadata="")
    (read,) = consumer.committed([confluent_kafka.TopicPartition("orders", 1)], timeout=MARKERS_WAIT_S)
    assert read.offset == 7
    consumer.close()


def test_librdkafka_is_fenced_by_its_successor(kafka_cluster: ThreadedCluster) -> None:
    first, second = (
        confluent_kafka.Producer(librdkafka(kafka_cluster, transactional_id="tx")) for _ in range(2)
    )
    first.init_transactions(MARKERS_WAIT_S)
    first.begin_transaction()
    first.produce("orders", "aborted", partition=0)
    first.flush(MARKERS_WAIT_S)
    second.init_transactions(MARKERS_WAIT_S)
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        first.commit_transaction(MARKERS_WAIT_S)
    assert fenced.value.args[0].fatal()
    assert kafka_cluster.records("orders", 0, isolation_level="read_committed") == []
