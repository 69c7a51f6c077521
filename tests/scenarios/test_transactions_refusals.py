"""Transactions that go on without the records that a broker refuses for their content."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aioproducer import Producer, ProducerConfig, ProducerError, SendManyError
from aioproducer.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, NotLeaderOrFollower
from aioproducer.testing import Cluster
from tests.scenarios.rig import cluster, scenario

in_each_version = pytest.mark.parametrize("version", [1, 2], ids=["TV1", "TV2"])


@asynccontextmanager
async def passing(opened: Cluster, *, passes: bool = True, **options: object) -> AsyncIterator[Producer]:
    """A transactional producer; *passes* lets its transactions go on after refusals."""
    servers = opened.bootstrap_servers
    config = ProducerConfig.from_mapping(
        {"bootstrap_servers": servers, "transactional_id": "tx", "batch_size": "200", **options}
    )
    producer = Producer.from_config(config)
    await producer._start(passes_refusals=passes)
    try:
        yield producer
    finally:
        await producer.close()


async def refused(
    producer: Producer, values: list[bytes], keys: list[bytes | None]
) -> dict[int, ProducerError]:
    """Send records to both partitions, and return the failures by position."""
    partitions = [number % 2 for number in range(len(values))]
    with pytest.raises(SendManyError) as raised:
        await producer.send_many("kept", values, keys=keys, partitions=partitions)
    return dict(raised.value.result.failures)


def committed(opened: Cluster, topic: str = "kept") -> list[bytes]:
    return sorted(
        record.value or b""
        for partition in (0, 1)
        for record in opened.records(topic, partition, isolation_level="read_committed")
    )


@in_each_version
@pytest.mark.parametrize("every", [2, 7, 100], ids=["many", "few", "one"])
@scenario
async def test_transaction_commits_records_that_are_not_refused(version: int, every: int) -> None:
    """In each of two transactions, records behind a refused one get its sequences."""
    async with cluster(transaction_version=version) as opened:
        opened.create_topic("kept", 2, compacted=True)
        async with passing(opened) as producer:
            expected: list[bytes] = []
            for number in range(2):
                values = [b"%d-%03d" % (number, each) for each in range(100)]
                keys = [None if each % every == 0 else b"k" for each in range(100)]
                async with producer.transaction():
                    failures = await refused(producer, values, keys)
                    await producer.send("kept", b"letter", b"k", partition=0)
                assert sorted(failures) == [each for each in range(100) if each % every == 0]
                assert all(error._is_of_record for error in failures.values())
                assert {type(error) for error in failures.values()} == {InvalidRecord}
                expected += [value for value, key in zip(values, keys, strict=True) if key]
        assert committed(opened) == sorted([*expected, b"letter", b"letter"])
        for partition in (0, 1):
            values = [each.value or b"" for each in opened.records("kept", partition)]
            in_order = [value for value in values if value != b"letter"]
            assert in_order == sorted(in_order)


@in_each_version
@scenario
async def test_transaction_passes_records_over_the_topics_limit(version: int) -> None:
    async with cluster(transaction_version=version) as opened:
        opened.create_topic("kept", 2, message_max_bytes=400)
        async with passing(opened, batch_size="2000") as producer:
            for number in range(2):
                values = [b"%d-%02d" % (number, each) + b"x" * (500 * (each % 9 == 4)) for each in range(40)]
                async with producer.transaction():
                    failures = await refused(producer, values, [b"k"] * 40)
                assert sorted(failures) == list(range(4, 40, 9))
                assert {type(error) for error in failures.values()} == {MessageTooLarge}
                assert all(error._is_of_record for error in failures.values())
        assert len(committed(opened)) == 2 * (40 - 4)


@in_each_version
@pytest.mark.parametrize("moment", ["before", "after"])
@scenario
async def test_transaction_fails_when_a_refused_batch_may_be_written(version: int, moment: str) -> None:
    """A batch without an answer keeps its sequence, so that its transaction cannot go on without its records."""
    async with cluster(transaction_version=version) as opened:
        opened.create_topic("kept", 2)
        async with passing(opened) as producer:
            await producer.begin_transaction()
            opened.on("produce").close(before_append=moment == "before")
            opened.on("produce", times=None).answer(InvalidTimestamp)
            with pytest.raises(InvalidTimestamp) as raised:
                await producer.send("kept", b"v", partition=0)
            assert raised.value.possibly_persisted
            with pytest.raises(ProducerError):
                await producer.commit_transaction()
            await producer.abort_transaction()
        assert committed(opened) == []


@in_each_version
@scenario
async def test_transaction_fails_otherwise_and_names_the_record(version: int) -> None:
    async with cluster(transaction_version=version) as opened:
        opened.create_topic("kept", 2, compacted=True)
        async with passing(opened, passes=False) as producer:
            await producer.begin_transaction()
            failures = await refused(producer, [b"v"] * 4, [b"k", b"k", b"k", None])
            assert [number for number, error in failures.items() if error._is_of_record] == [3]
            assert {number for number, error in failures.items() if error.abortable} == set(failures)
            with pytest.raises(ProducerError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("kept", b"later", b"k", partition=1)
        assert committed(opened) == [b"later"]


@scenario
async def test_refusal_without_record_indexes_blames_no_record() -> None:
    """Some brokers name no record (before KIP-467): records beside the bad one must not pass for bad."""
    async with cluster() as opened:
        opened.create_topic("kept", 2)
        async with passing(opened) as producer:
            await producer.begin_transaction()
            opened.on("produce", times=None).answer(InvalidRecord)
            failures = await refused(producer, [b"v"] * 4, [b"k"] * 4)
            assert not any(error._is_of_record for error in failures.values())
            await producer.abort_transaction()


def fault(opened: Cluster, chance: random.Random) -> None:
    """Have one of the next produce requests fail."""
    rule = opened.on("produce", topic="kept", after=chance.randrange(6))
    kind = chance.randrange(3)
    if kind == 2:
        rule.answer(NotLeaderOrFollower)
    else:
        rule.close(before_append=kind == 0)


@pytest.mark.parametrize("seed", range(12))
@scenario
async def test_committed_records_are_those_acknowledged_in_order(seed: int) -> None:
    """Whatever the faults and refusals: a transaction that commits has each acknowledged record once."""
    chance = random.Random(seed)
    async with cluster(transaction_version=1 + seed % 2) as opened:
        opened.create_topic("kept", 2, compacted=True, message_max_bytes=600)
        expected: list[bytes] = []
        async with passing(opened, batch_size=chance.choice(["100", "400", "5000"])) as producer:
            for number in range(4):
                await producer.begin_transaction()
                for _ in range(chance.randrange(3)):
                    fault(opened, chance)
                values = [b"%d-%02d" % (number, each) + b"x" * (700 * (each % 20 == 9)) for each in range(60)]
                keys = [None if chance.random() < 0.2 else b"k" for _ in values]
                try:
                    failures = await refused(producer, values, keys)
                    await producer.commit_transaction()
                except ProducerError:  # a refused batch may have been written
                    await producer.abort_transaction()
                    continue
                good = [each for each, key in enumerate(keys) if key and each % 20 != 9]
                assert [each for each in range(60) if each not in failures] == good
                expected += [values[each] for each in good]
        for partition in (0, 1):
            records = opened.records("kept", partition, isolation_level="read_committed")
            mine = [value for value in expected if int(value[2:4]) % 2 == partition]
            assert [each.value for each in records] == mine
