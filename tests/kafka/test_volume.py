"""A hundred thousand records: none lost, duplicated or out of order, each at its acknowledged offset."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby
from operator import attrgetter

import pytest

from aioproducer import Producer, RecordMetadata
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import Record, read_with_librdkafka

TASKS = 10
RECORDS_PER_TASK = 10_000

Written = list[tuple[bytes, RecordMetadata]]


def value_of(task: int, number: int) -> bytes:
    return b"%02d %05d " % (task, number) + b"x" * (number % 150)


async def enqueue_all(producer: Producer, topic: str, task: int) -> Written:
    """Keys on every other record: sticky and keyed records share partitions."""
    # Debug mode notes for every Future where it was made, at ten times the cost.
    asyncio.get_running_loop().set_debug(False)
    values = [value_of(task, number) for number in range(RECORDS_PER_TASK)]
    futures = [
        await producer.enqueue(topic, value, b"key-%d" % (number % 97) if number % 2 else None)
        for number, value in enumerate(values)
    ]
    return list(zip(values, await asyncio.gather(*futures), strict=True))


async def send_many_all(producer: Producer, topic: str, task: int) -> Written:
    values = [value_of(task, number) for number in range(RECORDS_PER_TASK)]
    keys = [b"key-%d" % (number % 97) if number % 2 else None for number in range(RECORDS_PER_TASK)]
    result = await producer.send_many(topic, values, keys=keys)
    return [
        (value, sent) for value, sent in zip(values, result, strict=True) if isinstance(sent, RecordMetadata)
    ]


@pytest.mark.parametrize(("send_all", "idempotent"), [(enqueue_all, True), (send_many_all, False)])
async def test_100000_records_are_at_their_offsets_in_order(
    kafka: ApacheKafka,
    new_topic: NewTopic,
    send_all: Callable[[Producer, str, int], Awaitable[Written]],
    idempotent: bool,
) -> None:
    topic = new_topic(partitions=6)
    async with Producer(kafka.bootstrap_servers, enable_idempotence=idempotent) as producer:
        assert await producer.partitions_for(topic) == set(range(6))
        written = await asyncio.gather(*(send_all(producer, topic, task) for task in range(TASKS)))
    told = sorted((sent.partition, sent.offset, value) for task in written for value, sent in task)
    found = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert len(found) == TASKS * RECORDS_PER_TASK
    assert [(each.partition, each.offset, each.value) for each in found] == told
    for _, of_partition in groupby(found, key=attrgetter("partition")):
        assert_each_task_in_order(list(of_partition))


def assert_each_task_in_order(records: list[Record]) -> None:
    """A value begins with its task and its number, in digits: sorting by task must leave each task's order alone."""
    by_task = sorted((each.value or b"" for each in records), key=lambda value: value[:2])
    assert by_task == sorted(by_task)
