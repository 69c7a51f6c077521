"""A steady load on one topic: numbered records and their outcomes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from types import TracebackType
from typing import Final, Self

from aioproducer import Producer, ProducerError, RecordMetadata

RECORDS_AT_ONCE: Final = 40
EVERY_S: Final = 0.16
RECORDS_PER_S: Final = 250
"""At most: pauses are as long as the event loop makes them."""

TIMEOUT_S: Final = 40
"""More than a delivery timeout: whoever waits longer for an outcome waits in vain."""


@dataclass(slots=True, eq=False)
class Sent:
    """One record."""

    number: int
    value: bytes
    asked_for: bool
    """Sent by `Load.send`, whose caller looks at the outcome."""
    called_at: float
    resolved_at: float = math.inf
    outcome: RecordMetadata | ProducerError | None = None

    @property
    def place(self) -> tuple[int, int] | None:
        """Partition and offset of the record if it was acknowledged."""
        return self.outcome[1:3] if isinstance(self.outcome, RecordMetadata) else None

    @property
    def error(self) -> ProducerError | None:
        """Why it failed, if it did."""
        return self.outcome if isinstance(self.outcome, ProducerError) else None


class Load:
    """Runs inside `async with`; at its end every record has an outcome.

    Args:
        producer: started.
        topic: exists.
        partitions: records go to so many in turn; None leaves it to the partitioner.
        value_size: of each value, in bytes.
    """

    def __init__(self, producer: Producer, topic: str, partitions: int | None, value_size: int) -> None:
        self.producer = producer
        self.topic = topic
        self.sent: list[Sent] = []
        self.fresh_from = 0
        """Records with smaller numbers were sent before the topic was deleted."""
        self._partition_locks: Iterator[int | None] = cycle(
            [None] if partitions is None else range(partitions)
        )
        self._value_size = value_size
        self._unresolved = 0
        self._changed = asyncio.Event()
        self._enough = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._enough = True
        await self._task
        if error is None:
            await self.until(lambda: not self._unresolved)

    async def send(self, partition: int, *, size: int | None = None, timeout_s: float | None = None) -> Sent:
        """Send one record between the others and wait for its outcome."""
        sent = self._next(size or self._value_size, asked_for=True)
        try:
            outcome: RecordMetadata | ProducerError = await self.producer.send(
                self.topic, sent.value, partition=partition, timeout_s=timeout_s
            )
        except ProducerError as error:
            outcome = error
        self._resolve(sent, outcome)
        return sent

    async def acknowledged_by(self, partitions: int) -> None:
        """Wait until each of *partitions* partitions has acknowledged a record sent after this call."""
        start, expected = len(self.sent), set(range(partitions))
        await self.until(lambda: {sent.place[0] for sent in self.sent[start:] if sent.place} >= expected)

    async def piled_up(self, seconds: float) -> None:
        """Wait until so many records have no outcome as are sent in so many seconds."""
        await self.until(lambda: self._unresolved >= seconds * RECORDS_PER_S)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for something that can only happen when a record is sent or resolved."""
        async with asyncio.timeout(TIMEOUT_S):
            while not happened():
                self._changed.clear()
                await self._changed.wait()

    async def _run(self) -> None:
        while not self._enough:
            for _ in range(RECORDS_AT_ONCE):
                await self._enqueue(next(self._partition_locks))
            await asyncio.sleep(EVERY_S)  # the pace of the load; nothing is waited for

    async def _enqueue(self, partition: int | None) -> None:
        sent = self._next(self._value_size, asked_for=False)
        try:
            future = await self.producer.enqueue(self.topic, sent.value, partition=partition)
        except ProducerError as error:
            self._resolve(sent, error)
        else:
            future.add_done_callback(lambda future: self._resolve(sent, outcome_of(future)))

    def _next(self, size: int, *, asked_for: bool) -> Sent:
        number = len(self.sent)
        sent = Sent(number, (b"%07d" % number).ljust(size, b"."), asked_for, time.monotonic())
        self.sent.append(sent)
        self._unresolved += 1
        self._changed.set()
        return sent

    def _resolve(self, sent: Sent, outcome: RecordMetadata | ProducerError) -> None:
        sent.outcome = outcome
        sent.resolved_at = time.monotonic()
        self._unresolved -= 1
        self._changed.set()


def outcome_of(future: asyncio.Future[RecordMetadata]) -> RecordMetadata | ProducerError:
    """Return the outcome of a done Future; other errors are raised."""
    error = future.exception()
    if error is None:
        return future.result()
    assert isinstance(error, ProducerError), error
    return error
