"""Read a whole topic back with other clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple, cast

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

FETCH_WAIT_MS = 10
"""Time after which a broker answers that a partition has ended: half a second by default, for each topic read."""


class Record(NamedTuple):
    """A record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    log_append_time: bool


def read_with_librdkafka(
    bootstrap_servers: str, topic: str, *, isolation_level: str = "read_uncommitted", timeout_s: float = 30
) -> list[Record]:
    """Return every record that *topic* holds at the call, in order of partition and offset.

    Aborted ones are among them, and those of open transactions, unless the *isolation_level* is `read_committed`.

    Raises:
        TimeoutError: they did not all arrive within *timeout_s*; the cause says why.
        KafkaException: there is no such topic, or the broker refused.
    """
    deadline = time.monotonic() + timeout_s
    with closing(_librdkafka(bootstrap_servers, isolation_level)) as consumer:
        return sorted(_read(consumer, topic, _bounds(consumer, topic, deadline), deadline))


def stream_with_librdkafka(
    bootstrap_servers: str, topic: str, *, isolation_level: str = "read_uncommitted", timeout_s: float = 30
) -> Iterator[Record]:
    """Yield the records of `read_with_librdkafka` in the same order, one partition after the other: for large topics.

    Raises:
        TimeoutError: the records did not all arrive within *timeout_s*.
        KafkaException: the topic does not exist, or the broker refused.
    """
    deadline = time.monotonic() + timeout_s
    with closing(_librdkafka(bootstrap_servers, isolation_level)) as consumer:
        for index, bounds in sorted(_bounds(consumer, topic, deadline).items()):
            yield from _read(consumer, topic, {index: bounds}, deadline)


def _librdkafka(bootstrap_servers: str, isolation_level: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "readback",  # never joined: partitions are assigned by hand
            "enable.auto.commit": False,
            "enable.partition.eof": True,  # the end may be a control record, which no consumer is shown
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "check.crcs": True,
            "isolation.level": isolation_level,
            "log_level": 0,
        }
    )


def _read(
    consumer: Consumer, topic: str, bounds: dict[int, tuple[int, int]], deadline: float
) -> Iterator[Record]:
    """Yield the records between the *bounds* of each partition as they arrive."""
    consumer.assign([TopicPartition(topic, index, start) for index, (start, _) in bounds.items()])
    unread = {index for index, (start, end) in bounds.items() if start < end}
    while unread:
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions {sorted(unread)} of {topic} were not read to the end in time")
        # consume() alone would wait for a thousand messages, or to the end of its timeout
        if (
            first := consumer.poll(0.1)
        ) is None:  # a message without a value is false, because its length is 0
            continue
        for message in [first, *consumer.consume(num_messages=1_000, timeout=0)]:
            record = from_librdkafka(message)
            if record.partition not in bounds:
                continue  # of the partition before
            end = bounds[record.partition][1]
            if message.error() is None and record.offset < end:
                yield record
            if record.offset >= end - 1:
                unread.discard(record.partition)


def await_records(
    bootstrap_servers: str,
    topic: str,
    arrived: Callable[[list[Record]], bool],
    *,
    isolation_level: str = "read_uncommitted",
    timeout_s: float = 30,
) -> list[Record]:
    """Read *topic* again and again until the records have *arrived*: of those sent with acks=0, nobody tells when.

    Nor of committed ones: brokers write the markers of a commit when they have answered it.

    Raises:
        TimeoutError: they did not all arrive within *timeout_s*.
    """
    deadline = time.monotonic() + timeout_s
    while not arrived(
        records := read_with_librdkafka(bootstrap_servers, topic, isolation_level=isolation_level)
    ):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all has arrived in {topic}, only {len(records)} records")
    return records


async def read_with_aiokafka(bootstrap_servers: str, topic: str, *, timeout_s: float = 30) -> list[Record]:
    """Return the same through aiokafka, a client that shares no code with the other one.

    Raises:
        TimeoutError: the records did not all arrive within *timeout_s*.
    """
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    async with asyncio.timeout(timeout_s), consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        records: list[Record] = []
        while unread := [
            partition for partition, end in ends.items() if await consumer.position(partition) < end
        ]:
            fetched = await consumer.getmany(*unread, timeout_ms=100)
            for partition, batch in fetched.items():
                records += [_from_aiokafka(record) for record in batch if record.offset < ends[partition]]
        return sorted(records)


def _bounds(consumer: Consumer, topic: str, deadline: float) -> dict[int, tuple[int, int]]:
    """Return the first and the end offset of each partition; while a new leader is elected, ask again."""
    while True:
        try:
            return _ask_bounds(consumer, topic)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            if time.monotonic() > deadline:
                raise TimeoutError(f"the partitions of {topic} did not tell their offsets in time") from error
            consumer.poll(0.05)


def _ask_bounds(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    found = consumer.list_topics(topic, timeout=1).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return {
        index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=1)
        for index in found.partitions
    }


def from_librdkafka(message: Message) -> Record:
    """Convert a record, or the event that a partition was read to its end (an offset without a record)."""
    if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    timestamp_type, timestamp_ms = message.timestamp()
    return Record(
        partition,
        offset,
        message.key(),
        message.value(),
        tuple(cast("list[tuple[str, bytes | None]]", message.headers() or [])),
        timestamp_ms,
        timestamp_type == TIMESTAMP_LOG_APPEND_TIME,
    )


def _from_aiokafka(record: ConsumerRecord) -> Record:
    return Record(
        record.partition,
        record.offset,
        record.key,
        record.value,
        tuple(record.headers),
        record.timestamp,
        record.timestamp_type == 1,
    )
