"""Numbered records for the brokers of other projects: sent at a pace that leaves time for faults, then checked."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from aioproducer import Producer, ProducerOptions
from tests.kafka.readback import Record, from_librdkafka

TOPIC: Final = "orders"
PARTITIONS: Final = 3
RECORDS: Final = 600
SOON: Final[ProducerOptions] = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50}
FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, PRODUCE = 10, 22, 24, 26, 0
CONNECTION_LOST: Final = -195
"""Code of librdkafka for a closed connection; here it stands for a fault without a response."""
TRANSACTION_FAULTS: Final = [
    *((FIND_COORDINATOR, code) for code in (CONNECTION_LOST, 15)),
    *((INIT_PRODUCER_ID, code) for code in (CONNECTION_LOST, 7, 14, 15, 16, 51)),
    *((ADD_PARTITIONS, code) for code in (CONNECTION_LOST, 14, 15, 16, 51)),
    *((END_TXN, code) for code in (CONNECTION_LOST, 7, 14, 15, 16, 51)),
    *((PRODUCE, code) for code in (CONNECTION_LOST, 6, 7)),
]
"""API keys of the requests of a transaction, each with the error codes that brokers answer."""
TRANSACTIONAL: Final[ProducerOptions] = {**SOON, "transactional_id": "writer"}


async def send_numbered(producer: Producer, count: int = RECORDS, first: int = 0) -> None:
    """Send *count* numbers to the partitions in turn, and wait for all acknowledgements."""
    futures = []
    for number in range(first, first + count):
        futures.append(await producer.enqueue(TOPIC, b"%d" % number, partition=number % PARTITIONS))
        if number % 20 == 0:
            await asyncio.sleep(0.01)
    await asyncio.gather(*futures)


def read_unchecked(bootstrap_servers: str, topic: str, *, timeout_s: float = 10) -> list[Record]:
    """Return all records of *topic* in the order of the partitions, up to the end that Fetch reports.

    Checksums are not verified, because librdkafka's mock writes control records without one, and watermarks are not
    requested, because Tansu reports an early end.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "readback", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[Record] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + timeout_s
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only partitions {ended} were read to the end"
        for message in consumer.consume(RECORDS, 0.1):
            if message.error():
                ended.add(message.partition())
            else:
                found.append(from_librdkafka(message))
    consumer.close()
    return sorted(found)
