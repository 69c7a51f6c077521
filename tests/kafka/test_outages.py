"""A broker restarts in mid-stream, in order or as after a power cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain, count
from typing import Any

import pytest

from aioproducer import ConnectionFailed, Producer, RecordMetadata
from aioproducer._core.batching.batch import Batch
from aioproducer._core.net.connection import Connection
from aioproducer._core.sender.requests import ResponseHandler
from tests.checker import Called, check_order, check_records
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.load_checker import logs_of
from tests.kafka.readback import Record, await_records, read_with_librdkafka

PARTITIONS = 3
WINDOW = 3_000
SMALL_BATCHES = 1_000  # bytes: so that many are queued, and five in flight, whenever a broker goes away


class Stream:
    """Numbered records, sent to the partitions in turn, and their outcomes."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.sent: list[RecordMetadata] = []
        self._numbers = count()

    async def send(self) -> None:
        """Send WINDOW records without waiting in between, and wait for all of them."""
        futures = [
            await self.producer.enqueue(self.topic, b"%07d" % number, partition=number % PARTITIONS)
            for number in (next(self._numbers) for _ in range(WINDOW))
        ]
        self.sent += await asyncio.gather(*futures)

    async def send_until(self, done: asyncio.Future[None]) -> None:
        while not done.done():
            await self.send()

    @property
    def numbers(self) -> list[list[int]]:
        """The numbers sent to each partition."""
        return [list(range(partition, len(self.sent), PARTITIONS)) for partition in range(PARTITIONS)]

    @property
    def last_window(self) -> set[int]:
        return set(range(len(self.sent))[-WINDOW:])


def numbers_in(log: list[Record]) -> list[list[int]]:
    """Return the numbers found in each partition."""
    return [
        [int(each.value or b"") for each in log if each.partition == partition]
        for partition in range(PARTITIONS)
    ]


def assert_exactly_once(stream: Stream, log: list[Record]) -> None:
    """All records are stored once, in order, at their acknowledged offsets."""
    called = [Called(b"%07d" % number, where) for number, where in enumerate(stream.sent)]
    logs = logs_of(stream.topic, log)
    findings = check_records(called, logs, idempotent=True)
    check_order([each.value for each in called], logs, findings)
    findings.check()


def power_cut(kafka: ApacheKafka) -> None:
    kafka.kill()
    kafka.restart()


@pytest.mark.parametrize("restart", [ApacheKafka.restart, power_cut], ids=["in-order", "power-cut"])
async def test_restart_harms_a_stream_only_as_its_acks_allow(
    spare_kafka: ApacheKafka, request: pytest.FixtureRequest, restart: Callable[[ApacheKafka], None]
) -> None:
    servers, case = spare_kafka.bootstrap_servers, request.node.callspec.id
    for kind in ("idempotent", "plain", "unacknowledged"):
        spare_kafka.create_topic(f"{kind}-{case}", PARTITIONS)
    async with (
        Producer(servers, batch_size=SMALL_BATCHES) as one,
        Producer(servers, batch_size=SMALL_BATCHES, acks=1) as two,
        Producer(servers, batch_size=SMALL_BATCHES, acks=0) as three,
    ):
        streams = idempotent, plain, unacknowledged = (
            Stream(one, f"idempotent-{case}"),
            Stream(two, f"plain-{case}"),
            Stream(three, f"unacknowledged-{case}"),
        )
        await asyncio.gather(*(stream.send() for stream in streams))
        restarting = asyncio.ensure_future(asyncio.to_thread(restart, spare_kafka))
        await asyncio.gather(*(stream.send_until(restarting) for stream in streams))
        await restarting
        await asyncio.gather(*(stream.send() for stream in streams))

    assert_exactly_once(idempotent, read_with_librdkafka(servers, idempotent.topic))

    # acks=1, not idempotent: all records in order; retried records may be stored twice
    log = read_with_librdkafka(servers, plain.topic)
    assert [list(dict.fromkeys(numbers)) for numbers in numbers_in(log)] == plain.numbers

    # acks=0: only the order is guaranteed, and the producer continues
    assert {each.offset for each in unacknowledged.sent} == {-1}
    log = await_records(
        servers,
        unacknowledged.topic,
        lambda log: unacknowledged.last_window.issubset(chain(*numbers_in(log))),
    )
    assert numbers_in(log) == [sorted(set(numbers)) for numbers in numbers_in(log)]


@pytest.mark.parametrize("count", [1, 4])
async def test_records_stored_before_a_restart_are_not_stored_twice(
    spare_kafka: ApacheKafka, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """All answers were lost, and the snapshot of the leader has only the last batch, so it denies the others."""
    topic = f"forgotten-{count}"
    spare_kafka.create_topic(topic, 1)
    take, lost = ResponseHandler.take, asyncio.Event()
    batches_lost: list[Batch] = []

    def lose(
        handler: ResponseHandler, connection: Connection, batches: Sequence[Batch], *answer: Any
    ) -> None:
        if lost.is_set() or batches[0].columns.values[0] == b"first":
            take(handler, connection, batches, *answer)
            return
        batches_lost.extend(batches)
        handler.lost(connection, batches, ConnectionFailed("the answer got lost", written=True))
        if len(batches_lost) == count:
            lost.set()

    monkeypatch.setattr(ResponseHandler, "take", lose)
    values = [b"%d" % number for number in range(count)]
    # No record is retried before the broker has stopped.
    async with Producer(
        spare_kafka.bootstrap_servers,
        batch_size=0,
        retry_backoff_ms=2_000,
        retry_backoff_max_ms=2_000,
    ) as producer:
        await producer.send(topic, b"first")
        sending = [producer.send_nowait(topic, value) for value in values]
        await lost.wait()
        spare_kafka.shut_down()
        await asyncio.to_thread(spare_kafka.restart)
        sent = await asyncio.gather(*sending)
        await producer.send(topic, b"last")
    assert all(where.offset in (-1, offset) for offset, where in enumerate(sent, 1))
    log = read_with_librdkafka(spare_kafka.bootstrap_servers, topic)
    assert [each.value for each in log] == [b"first", *values, b"last"]
