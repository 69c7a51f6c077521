"""A steady load, and the outcome of each of its records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from aioproducer import Producer, ProducerError, RecordMetadata

TOPIC = "load"

RecordFuture = asyncio.Future[RecordMetadata]


@dataclass(slots=True, eq=False)
class Sent:
    """One call, and its outcome. Times are those of the loop."""

    partition: int
    number: int
    """Counts the calls for the partition."""
    value: bytes
    """What it is recognised by, wherever it turns up."""
    called_at: float
    outcome: RecordMetadata | ProducerError | None = None
    resolved_at: float = float("inf")

    def __str__(self) -> str:
        return f"{self.partition}/{self.number}"

    @property
    def delivered(self) -> RecordMetadata | None:
        """Metadata of the record if it was delivered."""
        return self.outcome if isinstance(self.outcome, RecordMetadata) else None

    @property
    def error(self) -> ProducerError | None:
        """Error of the record if it failed."""
        return self.outcome if isinstance(self.outcome, ProducerError) else None

    def settle(self, outcome: RecordMetadata | ProducerError, when: float) -> None:
        """Note the outcome; there is only one."""
        assert self.outcome is None, f"{self} was resolved twice: {self.outcome!r}, then {outcome!r}"
        self.outcome, self.resolved_at = outcome, when


@dataclass(slots=True)
class Load:
    """Sends *burst* records to each of *partitions* at a time, and remembers every call.

    A waiting call delays later calls for its partition; the load catches up afterwards.
    """

    producer: Producer
    partitions: int
    burst: int
    pause_s: float
    """Between two bursts."""
    value_bytes: int
    sent: list[list[Sent]] = field(default_factory=list)
    """By partition, in the order of the calls."""

    def __iter__(self) -> Iterator[Sent]:
        return (each for of_partition in self.sent for each in of_partition)

    async def run(self, enough: asyncio.Event) -> None:
        """Make calls until *enough* is set; their Futures may be resolved later."""
        async with asyncio.TaskGroup() as group:
            for partition in range(self.partitions):
                _ = group.create_task(self._run(partition, enough), name=f"load {partition}")

    async def send(self, partition: int) -> Sent:
        """Make one more call, and return it with its outcome."""
        sent, future = await self._enqueue(partition)
        if future is not None:
            await asyncio.wait([future])
        return sent

    async def call(self, partition: int) -> Sent:
        """Await one `send`, as a task does that continues after the acknowledgement."""
        sent = self._note(partition)
        try:
            outcome: RecordMetadata | ProducerError = await self.producer.send(
                TOPIC, sent.value, partition=partition
            )
        except ProducerError as error:
            outcome = error
        sent.settle(outcome, asyncio.get_running_loop().time())
        return sent

    def send_nowait(self, partition: int) -> None:
        """Make one call that may not wait."""
        sent = self._note(partition)
        try:
            future = self.producer.send_nowait(TOPIC, sent.value, partition=partition)
        except ProducerError as error:
            sent.settle(error, asyncio.get_running_loop().time())
        else:
            future.add_done_callback(partial(_settled, sent))

    async def _run(self, partition: int, enough: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        due_at = loop.time()
        while not enough.is_set():
            for _ in range(self.burst):
                await self._enqueue(partition)
            due_at += self.pause_s
            await asyncio.sleep(max(0.0, due_at - loop.time()))

    async def _enqueue(self, partition: int) -> tuple[Sent, RecordFuture | None]:
        loop = asyncio.get_running_loop()
        sent = self._note(partition)
        try:
            future = await self.producer.enqueue(TOPIC, sent.value, partition=partition)
        except ProducerError as error:
            sent.settle(error, loop.time())
            return sent, None
        future.add_done_callback(partial(_settled, sent))
        return sent, future

    def _note(self, partition: int) -> Sent:
        while len(self.sent) <= partition:
            self.sent.append([])
        number = len(self.sent[partition])
        value = (b"%d/%d/" % (partition, number)).ljust(self.value_bytes, b".")
        sent = Sent(partition, number, value, called_at=asyncio.get_running_loop().time())
        self.sent[partition].append(sent)
        return sent


def _settled(sent: Sent, future: RecordFuture) -> None:
    error = future.exception()
    assert error is None or isinstance(error, ProducerError), error
    sent.settle(future.result() if error is None else error, asyncio.get_running_loop().time())
