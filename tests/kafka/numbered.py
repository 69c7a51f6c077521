"""A stream of numbered records: sent at an even pace, to be found once, in order, and all of them."""

from __future__ import annotations

import asyncio
from typing import Final

from aioproducer import Producer, RecordMetadata
from tests.kafka.apache.secured import SecuredKafka
from tests.kafka.readback import await_records

PARTITIONS: Final = 3
AT_ONCE: Final = 100


async def send_numbered(producer: Producer, topic: str, count: int, *, per_s: float) -> None:
    """Send so many records, about so many in a second; raise the first error of any."""
    loop = asyncio.get_running_loop()
    began_at, sent = loop.time(), []
    for first in range(0, count, AT_ONCE):
        sent += [
            await producer.enqueue(topic, b"%d" % number, partition=number % PARTITIONS)
            for number in range(first, min(first + AT_ONCE, count))
        ]
        # the pace of the load; nothing is waited for
        await asyncio.sleep(max(0.0, began_at + len(sent) / per_s - loop.time()))
    await asyncio.gather(*sent)


async def send_numbered_until(producer: Producer, topic: str, over: asyncio.Event, *, per_s: float) -> int:
    """Send records until it is *over*; return how many. Raise the first error of any."""
    sent: list[asyncio.Future[RecordMetadata]] = []
    while not over.is_set():
        sent.append(await producer.enqueue(topic, b"%d" % len(sent), partition=len(sent) % PARTITIONS))
        await asyncio.sleep(1 / per_s)  # the pace of the load
    await asyncio.gather(*sent)
    return len(sent)


def assert_all_once_in_order(kafka: SecuredKafka, topic: str, count: int) -> None:
    """Look at what another client finds."""
    log = await_records(kafka.kafka.bootstrap_servers, topic, lambda found: len(found) >= count)
    for partition in range(PARTITIONS):
        found = [int(each.value or b"") for each in log if each.partition == partition]
        assert found == list(range(partition, count, PARTITIONS))


def assert_some_once_in_order(kafka: SecuredKafka, topic: str, count: int) -> None:
    """Look for doubles and for what is out of its turn only; half of them are there, at least."""
    log = await_records(kafka.kafka.bootstrap_servers, topic, lambda found: len(found) >= count // 2)
    for partition in range(PARTITIONS):
        found = [int(each.value or b"") for each in log if each.partition == partition]
        assert found == sorted(set(found))
