"""The two ways to send that the demo measures. Every number is taken from the run itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from aioproducer.cli.demo.events import Events
from aioproducer.producer import Producer
from aioproducer.types import RecordMetadata

TASKS: Final = 256
"""How many tasks wait for an acknowledgement at a time, as in a service with as many requests at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One part of the run, from the first call to the last acknowledgement."""

    seconds: float
    batches: int
    bytes_before_compression: int
    bytes_sent: int
    acknowledged: list[RecordMetadata] = field(repr=False)
    """In the order of the events."""
    latencies_s: Sequence[float] = field(default=(), repr=False)
    """How long each call took, from the shortest to the longest."""

    @property
    def records(self) -> int:
        """How many were sent, all of them acknowledged."""
        return len(self.acknowledged)

    @property
    def compression_ratio(self) -> float:
        """How many times smaller the batches were than what was in them."""
        return self.bytes_before_compression / self.bytes_sent

    def latency_s(self, share: float) -> float:
        """Return what *share* (above 0, up to 1) of the calls did not exceed."""
        return self.latencies_s[math.ceil(share * len(self.latencies_s)) - 1]


async def send_one_by_one(producer: Producer, topic: str, events: Events, *, tasks: int = TASKS) -> Measured:
    """Let *tasks* tasks take turns: each sends the next event, and waits until it is acknowledged.

    Raises: ProducerError, the first one; the other tasks are cancelled then.
    """
    turns = enumerate(zip(events.keys, events.values, strict=True))
    acknowledged: dict[int, RecordMetadata] = {}
    latencies_s: list[float] = []

    async def take_turns() -> None:
        for index, (key, value) in turns:
            began = perf_counter()
            acknowledged[index] = await producer.send(topic, value, key)
            latencies_s.append(perf_counter() - began)

    watch = _Watch(producer)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(take_turns())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    watch.stop()
    return watch.measured([acknowledged[index] for index in range(len(events))], sorted(latencies_s))


async def send_in_bulk(producer: Producer, topic: str, events: Events) -> Measured:
    """Send *events* with one call. Raises: SendManyError."""
    watch = _Watch(producer)
    result = await producer.send_many(topic, events.values, keys=events.keys)
    watch.stop()
    return watch.measured([each for each in result if isinstance(each, RecordMetadata)])


class _Watch:
    """Takes the time, and what the producer counts meanwhile."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._before = producer.metrics()["producer"]
        self._began = perf_counter()
        self._seconds = 0.0

    def stop(self) -> None:
        self._seconds = perf_counter() - self._began

    def measured(self, acknowledged: list[RecordMetadata], latencies_s: Sequence[float] = ()) -> Measured:
        after = self._producer.metrics()["producer"]

        def counted(name: str) -> int:
            return int(after[name] - self._before[name])

        return Measured(
            seconds=self._seconds,
            batches=counted("batches_delivered"),
            bytes_before_compression=counted("bytes_before_compression"),
            bytes_sent=counted("bytes_delivered"),
            acknowledged=acknowledged,
            latencies_s=latencies_s,
        )
