"""An exception that a signal handler raises inside a call that sends costs at most the record of that call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest

from aioproducer import Producer, RecordMetadata
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.checker import Called, check_order, check_records
from tests.interrupting import interrupt
from tests.scenarios.rig import TOPIC, cluster, scenario

PARTITIONS = 3
FAR_APART = 7
"""Bytecodes from one interruption to the next where all of them would take long."""

Send = Callable[[Producer, bytes], asyncio.Future[RecordMetadata]]


class Numbered:
    """Records with a number each; some calls are interrupted."""

    def __init__(self, producer: Producer, send: Send) -> None:
        self._producer = producer
        self._send = send
        self._numbers = count()
        self.futures: dict[bytes, asyncio.Future[RecordMetadata]] = {}
        self.interrupted: list[bytes] = []

    def send(self, records: int) -> None:
        for _ in range(records):
            value = b"%05d" % next(self._numbers)
            self.futures[value] = self._send(self._producer, value)

    def interrupt(self, at: int) -> bool:
        value = b"%05d" % next(self._numbers)
        self.interrupted.append(value)
        return interrupt(lambda: self._send(self._producer, value), at)

    def check(self, opened: Cluster) -> None:
        """Each record whose call returned is in the log once, in order, at its offset; no memory is lost."""
        told = {value: future.result() for value, future in self.futures.items()}
        called = [Called(value, outcome) for value, outcome in told.items()]
        logs = {
            (TOPIC, partition): [
                {each.offset: each.value or b"" for each in opened.records(TOPIC, partition)}
            ]
            for partition in range(PARTITIONS)
        }
        findings = check_records(
            [*called, *(Called(value, None) for value in self.interrupted)], logs, idempotent=True
        )
        check_order(sorted([*told, *self.interrupted]), logs, findings)
        findings.check()
        check_accounts(self._producer)


def check_accounts(producer: Producer) -> None:
    """Every counter equals the number of existing objects."""
    report = producer.metrics()["producer"]
    assert report["buffer_available_bytes"] == report["buffer_total_bytes"]
    assert (report["batches_unfinished"], report["calls_waiting"], len(producer)) == (0, 0, 0)


@asynccontextmanager
async def sending(
    send: Send, transaction_version: int = 2, **options: Any
) -> AsyncIterator[tuple[Numbered, Producer]]:
    """Open a cluster and a producer that is known to all leaders; in the end check all that was sent."""
    options |= {"delivery_timeout_ms": 4_000, "request_timeout_ms": 2_000}
    async with (
        cluster(brokers=2, partitions=PARTITIONS, transaction_version=transaction_version) as opened,
        Producer(opened.bootstrap_servers, **options) as producer,
    ):
        await producer.partitions_for(TOPIC)
        numbered = Numbered(producer, send)
        yield numbered, producer
        await producer.flush()
        numbered.check(opened)


def plain(producer: Producer, value: bytes) -> asyncio.Future[RecordMetadata]:
    return producer.send_nowait(TOPIC, value)


def keyed(producer: Producer, value: bytes) -> asyncio.Future[RecordMetadata]:
    return producer.send_nowait(TOPIC, value, key=b"key", headers=[("name", b"value")])


def mixed(producer: Producer, value: bytes) -> asyncio.Future[RecordMetadata]:
    """Every other record has a key, or headers, or a partition."""
    more: Sequence[dict[str, Any]] = (
        {},
        {"key": value},
        {"headers": {"number": value}},
        {"partition": 0},
        {"timestamp_ms": 1},
    )
    return producer.send_nowait(TOPIC, value, **more[int(value) % len(more)])


def large(producer: Producer, value: bytes) -> asyncio.Future[RecordMetadata]:
    """The record takes the general path, and a batch holds three such records."""
    return producer.send_nowait(TOPIC, value, key=b"k", headers=[("padding", bytes(4_000))])


@pytest.mark.parametrize(
    "options",
    [{}, {"linger_ms": 5, "batch_size": 300}, {"linger_ms": 0}, {"compression_type": "gzip", "linger_ms": 5}],
)
@for_each("before", [0, 2])
@for_each("send", [plain, keyed, mixed, large])
@scenario
async def test_records_of_other_calls_are_unaffected(
    send: Send, before: int, options: dict[str, Any]
) -> None:
    """Of one producer after the other call, at each bytecode; each time there are records before it and behind it."""
    async with sending(send, **options) as (numbered, producer):
        at, has_raised = 1, True
        while has_raised:
            numbered.send(before)
            has_raised = numbered.interrupt(at)
            numbered.send(3)
            await producer.flush()
            at += 1 if send is plain and not options else FAR_APART
        assert at > 20


@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("transaction_version", [0, 2])
@pytest.mark.parametrize("send", [plain, keyed])
@scenario
async def test_records_of_the_open_transaction_are_unaffected(send: Send, transaction_version: int) -> None:
    async with sending(send, transaction_version, transactional_id="interrupted") as (numbered, producer):
        at, has_raised = 1, True
        while has_raised:
            async with producer.transaction():
                has_raised = numbered.interrupt(at)
                numbered.send(3)
            at += FAR_APART
        assert at > 20


@scenario
async def test_topic_accepts_records_after_an_interrupted_first_one() -> None:
    async with cluster() as opened, Producer(opened.bootstrap_servers) as producer:
        for at in range(1, 10_000, FAR_APART):
            topic = f"topic-{at}"
            opened.create_topic(topic)
            await producer.partitions_for(topic)
            has_raised = interrupt(partial(producer.send_nowait, topic, b"interrupted"), at)
            futures = [producer.send_nowait(topic, value) for value in (b"1", b"2")]
            await producer.flush()
            values = [record.value for record in opened.records(topic, 0)]
            assert [values[future.result().offset] for future in futures] == [b"1", b"2"]
            if not has_raised:
                break
        assert at > 20
        check_accounts(producer)


@scenario
async def test_interrupted_purge_affects_no_later_record() -> None:
    async with cluster(partitions=2) as opened, Producer(opened.bootstrap_servers, linger_ms=5) as producer:
        await producer.send_many(TOPIC, [b"known"] * 2, partitions=[0, 1])
        at, has_raised = 1, True
        while has_raised:
            futures = [producer.send_nowait(TOPIC, b"value", partition=number % 2) for number in range(6)]
            has_raised = interrupt(producer.purge, at)
            later = [producer.send_nowait(TOPIC, b"later", partition=number % 2) for number in range(2)]
            await producer.flush()
            assert all(future.done() for future in futures)
            assert all(future.result().offset >= 0 for future in later)
            check_accounts(producer)
            at += FAR_APART
        assert at > 20
