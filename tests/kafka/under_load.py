"""An idempotent and a plain producer, both under load while a test does things to the brokers; then both are checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, Unpack

from aioproducer import Producer
from aioproducer.config import ProducerOptions
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.load import Load
from tests.kafka.load_checker import check_records
from tests.kafka.readback import read_with_librdkafka

PARTITIONS: Final = 3
REQUEST_TIMEOUT_S: Final = 2
DELIVERY_TIMEOUT_S: Final = 30

topic_numbers = count()


class Loads:
    """The two loads; each has a topic of its own."""

    def __init__(self, kafka: ApacheKafka, *loads: Load) -> None:
        self._kafka = kafka
        self._loads = loads

    def __iter__(self) -> Iterator[Load]:
        return iter(self._loads)

    async def acknowledged_by(self, partitions: int = PARTITIONS) -> None:
        """Wait until each of *partitions* partitions has acknowledged a record sent after this call."""
        await asyncio.gather(*(load.acknowledged_by(partitions) for load in self._loads))

    async def piled_up(self, seconds: float) -> None:
        """Wait until so many records have no outcome as are sent in so many seconds."""
        await asyncio.gather(*(load.piled_up(seconds) for load in self._loads))

    async def in_sync(self) -> None:
        """Wait until every replica is in sync."""
        for load in self._loads:
            await asyncio.to_thread(self._kafka.await_in_sync, load.topic)


@asynccontextmanager
async def under_load(
    kafka: ApacheKafka,
    *,
    by_partitioner: bool = False,
    value_size: int = 20,
    **options: Unpack[ProducerOptions],
) -> AsyncIterator[Loads]:
    """Run a body under load. After it, all records must be delivered, the brokers in sync and the checker content.

    When the body begins every partition has acknowledged something, and each of three brokers leads one of each topic.
    """
    topics = [f"load-{next(topic_numbers)}-{kind}" for kind in ("idempotent", "plain")]
    for topic in topics:
        kafka.create_topic(topic, PARTITIONS)
        kafka.await_in_sync(topic)
        assert {kafka.leader(topic, partition) for partition in range(PARTITIONS)} == {1, 2, 3}
    settings: ProducerOptions = {
        "batch_size": 300,  # so that several are in flight whenever something happens
        "request_timeout_ms": REQUEST_TIMEOUT_S * 1_000,
        "delivery_timeout_ms": DELIVERY_TIMEOUT_S * 1_000,
        **options,
    }
    not_idempotent: ProducerOptions = {**settings, "enable_idempotence": False}
    partitions = None if by_partitioner else PARTITIONS
    async with (
        Producer(kafka.bootstrap_servers, **settings) as idempotent,
        Producer(kafka.bootstrap_servers, **not_idempotent) as plain,
    ):
        async with (
            Load(idempotent, topics[0], partitions, value_size) as one,
            Load(plain, topics[1], partitions, value_size) as other,
        ):
            loads = Loads(kafka, one, other)
            await loads.acknowledged_by(PARTITIONS if partitions else 1)
            yield loads
        await loads.in_sync()
        for load in loads:
            for partition in range(PARTITIONS):
                assert (await load.send(partition)).place
    for load in loads:
        check_records(
            load, await asyncio.to_thread(read_with_librdkafka, kafka.bootstrap_servers, load.topic)
        )
