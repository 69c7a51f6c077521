"""The producer on other releases of Apache Kafka, from 0.11 to the newest, with records read back by librdkafka."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Final, Literal

import pytest
from confluent_kafka import Consumer, TopicPartition as AtOffset

from aioproducer import (
    GroupMetadata,
    PreparedTransaction,
    Producer,
    ProducerFenced,
    RecordMetadata,
    TopicPartition,
    TransactionAdmin,
    TransactionOutcomeUnknown,
)
from aioproducer.errors import (
    AuthenticationFailed,
    CommitFailed,
    ConnectionFailed,
    UnsupportedCompressionType,
    UnsupportedVersion,
)
from tests.kafka.apache.releases import MECHANISMS, PASSWORDS, RELEASES, ReleasedKafka
from tests.kafka.readback import await_records, read_with_librdkafka
from tests.kafka.samples import SAMPLES, with_send, with_send_many

SHORT: Final = ["0.11", "4.4"]
TESTED: Final = [*RELEASES] if os.environ.get("BROKERS") == "all" else SHORT
"""Releases of `make test-brokers`, or the short form."""
PARTITIONS: Final = 3
numbers = itertools.count()


@pytest.fixture(scope="module", params=TESTED)
def kafka(request: pytest.FixtureRequest) -> Iterator[ReleasedKafka]:
    """One broker of a release; the broker creates topics on request."""
    with ReleasedKafka(RELEASES[request.param], properties={"num.partitions": PARTITIONS}) as kafka:
        yield kafka


@pytest.fixture
def release(kafka: ReleasedKafka) -> tuple[int, ...]:
    return kafka.release.number


@pytest.fixture
def topic(kafka: ReleasedKafka) -> str:
    """A topic without records; leaders refuse records with acks=0 until the topic is ready."""
    name = f"orders-{next(numbers)}"
    kafka.create_topic(name, PARTITIONS, replication=1)
    return name


@pytest.fixture
async def admin(kafka: ReleasedKafka) -> AsyncIterator[TransactionAdmin]:
    async with TransactionAdmin(kafka.bootstrap_servers) as admin:
        yield admin


def committed(kafka: ReleasedKafka, topic: str, expected: int) -> list[bytes]:
    """Return the sorted values that readers of committed records see, once *expected* have arrived."""
    records = await_records(
        kafka.bootstrap_servers,
        topic,
        lambda records: len(records) >= expected,
        isolation_level="read_committed",
    )
    return sorted(each.value or b"" for each in records)


def committed_offset(kafka: ReleasedKafka, group: str, topic: str) -> int:
    """Return the offset that *group* has committed for partition 0 of *topic*."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": 0}
    with closing(Consumer(settings)) as consumer:
        (found,) = consumer.committed([AtOffset(topic, 0)], timeout=20)
        return found.offset


def values(count: int) -> list[bytes]:
    return [b"%05d" % number for number in range(count)]


async def test_send_creates_its_topic(kafka: ReleasedKafka) -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        sent = await producer.send("created-by-a-send", b"value", b"key")
        assert await producer.partitions_for("created-by-a-send") == frozenset(range(PARTITIONS))
        cluster = await producer.cluster()
    assert list(cluster.brokers) == [1]
    (read,) = await asyncio.to_thread(read_with_librdkafka, kafka.bootstrap_servers, "created-by-a-send")
    assert (read.partition, read.offset, read.key, read.value) == (sent.partition, 0, b"key", b"value")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_are_read_back_unchanged(
    kafka: ReleasedKafka,
    release: tuple[int, ...],
    topic: str,
    codec: Literal["none", "gzip", "snappy", "lz4", "zstd"],
) -> None:
    async with Producer(kafka.bootstrap_servers, compression_type=codec) as producer:
        if codec == "zstd" and release < (2, 1):
            with pytest.raises(UnsupportedCompressionType):
                await producer.send(topic, b"value")
            return
        sent = [*await with_send(producer, topic, SAMPLES), *await with_send_many(producer, topic, SAMPLES)]
    written = [sample.as_read(where) for sample, where in zip(SAMPLES * 2, sent, strict=True)]
    assert await asyncio.to_thread(read_with_librdkafka, kafka.bootstrap_servers, topic) == sorted(written)


@pytest.mark.parametrize("acks", [0, 1])
async def test_records_are_read_back_with_fewer_acks(
    kafka: ReleasedKafka, topic: str, acks: Literal[0, 1]
) -> None:
    async with Producer(kafka.bootstrap_servers, acks=acks) as producer:
        _ = await producer.send_many(
            topic,
            [each.value for each in SAMPLES],
            keys=[each.key for each in SAMPLES],
            headers=[each.headers for each in SAMPLES],
            timestamps_ms=[each.timestamp_ms for each in SAMPLES],
            partitions=[0] * len(SAMPLES),
        )
    expected = [
        sample.as_read(RecordMetadata(topic, 0, offset, sample.timestamp_ms, log_append_time=False))
        for offset, sample in enumerate(SAMPLES)
    ]
    arrived = await asyncio.to_thread(
        await_records, kafka.bootstrap_servers, topic, lambda log: len(log) >= len(expected)
    )
    assert arrived == expected


@pytest.mark.skipif(TESTED == SHORT, reason="a restart takes 10 s: make test-brokers")
async def test_restart_neither_loses_nor_doubles_records(kafka: ReleasedKafka, topic: str) -> None:
    sent: list[bytes] = []
    restarted = asyncio.Event()

    async def send(producer: Producer) -> None:
        for number in itertools.count():
            if restarted.is_set() and number % 100 == 0:
                return
            value = b"%06d" % number
            _future = await producer.enqueue(topic, value, partition=0)
            sent.append(value)
            await asyncio.sleep(0.001)  # the pace of the load

    async with Producer(kafka.bootstrap_servers) as producer:
        sending = asyncio.create_task(send(producer))
        await asyncio.to_thread(kafka.restart)
        restarted.set()
        await sending
    log = await asyncio.to_thread(read_with_librdkafka, kafka.bootstrap_servers, topic)
    assert [each.value for each in log] == sent


async def test_transactions_commit_and_abort_with_offsets(kafka: ReleasedKafka, topic: str) -> None:
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as producer:
        for number, commit in enumerate((True, False, True)):
            await producer.begin_transaction()
            await producer.send_many(topic, [b"%d-%s" % (number, each) for each in values(200)])
            await producer.send_offsets_to_transaction({(topic, 0): number + 1}, f"group-{topic}")
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    expected = [b"%d-%s" % (number, each) for number in (0, 2) for each in values(200)]
    assert await asyncio.to_thread(committed, kafka, topic, 400) == expected
    assert len(await asyncio.to_thread(read_with_librdkafka, kafka.bootstrap_servers, topic)) == 600
    assert await asyncio.to_thread(committed_offset, kafka, f"group-{topic}", topic) == 3


async def test_group_metadata_is_checked_since_2_5(
    kafka: ReleasedKafka, release: tuple[int, ...], topic: str
) -> None:
    group = f"group-{topic}"
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": 0}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            await asyncio.to_thread(consumer.poll, 0.1)
        async with Producer(kafka.bootstrap_servers, transactional_id=topic) as producer:
            metadata = consumer.consumer_group_metadata()
            async with producer.transaction() as transaction:
                await producer.send(topic, b"value", partition=0)
                if release < (2, 5):
                    with pytest.raises(UnsupportedVersion, match="pass the group id"):
                        await transaction.send_offsets({(topic, 0): 7}, metadata)
                    metadata = group
                await transaction.send_offsets({(topic, 0): 7}, metadata)
            if release >= (2, 5):
                with pytest.raises(CommitFailed):
                    async with producer.transaction() as transaction:
                        await transaction.send_offsets(
                            {(topic, 0): 8}, GroupMetadata(group, generation_id=99, member_id="stranger")
                        )
        assert await asyncio.to_thread(committed_offset, kafka, group, topic) == 7
    assert await asyncio.to_thread(committed, kafka, topic, 1) == [b"value"]


@pytest.mark.parametrize("records", [0, 1, 200])
async def test_prepared_transaction_is_ended_elsewhere(
    kafka: ReleasedKafka, release: tuple[int, ...], topic: str, admin: TransactionAdmin, records: int
) -> None:
    prepared = []
    for name in "committed", "aborted":
        async with (
            Producer(kafka.bootstrap_servers, transactional_id=f"{topic}-{name}") as producer,
            producer.transaction() as transaction,
        ):
            if records:
                await producer.send_many(
                    topic, [b"%s-%s" % (name.encode(), each) for each in values(records)]
                )
            prepared.append(await transaction.prepare())
    for commit, each in zip((True, False), prepared, strict=True):
        end = admin.end(PreparedTransaction.parse(str(each)), commit=commit)
        if records or release >= (3, 0):
            await end
        else:  # such a broker has no request for the state of a transaction
            with pytest.raises(TransactionOutcomeUnknown):
                await end
    expected = [b"committed-%s" % each for each in values(records)]
    assert await asyncio.to_thread(committed, kafka, topic, records) == expected


async def test_newer_producer_and_admin_fence_older_producer(
    kafka: ReleasedKafka, topic: str, admin: TransactionAdmin
) -> None:
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as first:
        await first.begin_transaction()
        await first.send(topic, b"first")
        async with Producer(kafka.bootstrap_servers, transactional_id=topic) as second:
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
            async with second.transaction():
                await second.send(topic, b"second")
            await second.begin_transaction()
            await second.send(topic, b"third")
            await admin.fence(topic)
            with pytest.raises(ProducerFenced):
                await second.commit_transaction()
    assert await asyncio.to_thread(committed, kafka, topic, 1) == [b"second"]


async def test_transactions_are_listed_and_described_since_3_0(
    kafka: ReleasedKafka, release: tuple[int, ...], topic: str, admin: TransactionAdmin
) -> None:
    async with Producer(kafka.bootstrap_servers, transactional_id=topic) as producer, producer.transaction():
        await producer.send(topic, b"value", partition=0)
        if release < (3, 0):
            for call in admin.list(), admin.describe(topic):
                with pytest.raises(UnsupportedVersion):
                    await call
            return
        assert topic in [each.transactional_id for each in await admin.list(states=["Ongoing"])]
        assert topic not in [each.transactional_id for each in await admin.list(states=["Empty"])]
        described = (await admin.describe(topic))[topic]
        assert described is not None
        assert (described.state, described.partitions) == ("Ongoing", frozenset({TopicPartition(topic, 0)}))
        for since, filters in ((3, 8), {"longer_than_ms": 0}), ((4, 1), {"pattern": f"{topic}|x"}):
            if release < since:
                with pytest.raises(UnsupportedVersion):
                    await admin.list(**filters)
            else:
                assert topic in [each.transactional_id for each in await admin.list(**filters)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_login_succeeds_and_wrong_password_fails(
    kafka: ReleasedKafka,
    release: tuple[int, ...],
    topic: str,
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
) -> None:
    ((user, password),) = PASSWORDS.items()

    def producer(password: str) -> Producer:
        return Producer(
            kafka.at_sasl(),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=password,
        )

    async with producer(password) as logged_in:
        await logged_in.send(topic, b"value")
    assert len(await asyncio.to_thread(read_with_librdkafka, kafka.bootstrap_servers, topic)) == 1
    refused = AuthenticationFailed if release >= (1, 0) else ConnectionFailed
    with pytest.raises(refused, match=r"credentials|password"):
        async with producer("wrong"):
            pass
