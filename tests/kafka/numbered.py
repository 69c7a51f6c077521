"""A stream of numbered records: sent at an even rate, then read back and checked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from aioproducer import Producer, RecordMetadata
from tests.kafka.apache.secured import SecuredKafka
from tests.kafka.readback import Record, await_records

PARTITIONS: Final = 3
AT_ONCE: Final = 100


async def send_numbered(producer: Producer, topic: str, count: int, *, per_s: float) -> None:
    """Send *count* records, about *per_s* per second. Raises: the first error of a record."""
    loop = asyncio.get_running_loop()
    began_at, sent = loop.time(), []
    for first in range(0, count, AT_ONCE):
        sent += [
            await producer.enqueue(topic, b"%d" % number, partition=number % PARTITIONS)
            for number in range(first, min(first + AT_ONCE, count))
        ]
        # the rate of the load
        await asyncio.sleep(max(0.0, began_at + len(sent) / per_s - loop.time()))
    await asyncio.gather(*sent)


async def send_numbered_until(producer: Producer, topic: str, over: asyncio.Event, *, per_s: float) -> int:
    """Send records until *over* is set; return the number of records. Raises: the first error of a record."""
    sent: list[asyncio.Future[RecordMetadata]] = []
    while not over.is_set():
        sent.append(await producer.enqueue(topic, b"%d" % len(sent), partition=len(sent) % PARTITIONS))
        await asyncio.sleep(1 / per_s)  # the rate of the load
    await asyncio.gather(*sent)
    return len(sent)


def assert_once_in_order(records: Iterable[Record], count: int) -> None:
    """Check that *records* are the numbers below *count*, each once, in order."""
    for partition, found in _numbers(records):
        assert found == list(range(partition, count, PARTITIONS))


def assert_all_once_in_order(kafka: SecuredKafka, topic: str, count: int) -> None:
    """Read *topic* by another client, and check that each number is there once, in order."""
    assert_once_in_order(
        await_records(kafka.kafka.bootstrap_servers, topic, lambda found: len(found) >= count), count
    )


def assert_some_once_in_order(kafka: SecuredKafka, topic: str, count: int) -> None:
    """Read *topic* by another client, and check that at least half of the numbers are there, none twice, in order."""
    log = await_records(kafka.kafka.bootstrap_servers, topic, lambda found: len(found) >= count // 2)
    for _, found in _numbers(log):
        assert found == sorted(set(found))


def _numbers(records: Iterable[Record]) -> list[tuple[int, list[int]]]:
    """Return each partition with its numbers, in the order of *records*."""
    kept = list(records)
    return [
        (partition, [int(each.value or b"") for each in kept if each.partition == partition])
        for partition in range(PARTITIONS)
    ]
