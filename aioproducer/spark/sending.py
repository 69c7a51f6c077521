"""Rows on their way: read in Spark's thread, sent on the event loop, some pieces at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from aioproducer.arrow.arrow_schema import Columns
from aioproducer.arrow.batches import IN_FLIGHT, pieces, send_batch
from aioproducer.arrow.result import Outcome
from aioproducer.errors.send_many import OffsetRange
from aioproducer.intake.convoy import Convoy
from aioproducer.producer import Producer
from aioproducer.spark.bad_rows import sieve
from aioproducer.spark.messages import BadRows
from aioproducer.spark.worker import Worker
from aioproducer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent and acknowledged, and what could not be sent."""

    rows: int
    bytes: int
    """Of keys and values."""
    offsets: Mapping[TopicPartition, OffsetRange]
    """Where records are, dead letters among them."""
    bad: BadRows | None


class Sending:
    """One attempt to send the rows of a task.

    Spark's rows come through a socket, which blocks: so the thread that calls reads them, and the event loop is on another.
    """

    def __init__(self, producer: Producer, host: Worker, columns: Columns, dead_letters: str | None) -> None:
        self._producer = producer
        self._host = host
        self._columns = columns
        self._dead_letters = dead_letters
        self._convoy = Convoy()
        self._in_flight: deque[Future[Outcome]] = deque()
        self._outcome = Outcome()
        self._bad: BadRows | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Sent:
        """Send all rows; return once each is acknowledged.

        Raises: SendTableError: one has failed; those behind it may not even have been read. What reading raises.
        """
        row = 0
        for piece in chain.from_iterable(pieces(batch, self._columns) for batch in batches):
            while self._in_flight and (len(self._in_flight) >= IN_FLIGHT or self._in_flight[0].done()):
                self._outcome.add(self._in_flight.popleft().result())
            if self._outcome.failed:
                break
            numbers = range(row, row + piece.num_rows)
            if self._dead_letters is None:
                self._start(piece, self._columns, numbers)
            else:
                self._sieve(piece, numbers, self._dead_letters)
            row += piece.num_rows
        for each in self._in_flight:
            self._outcome.add(each.result())
        result = self._outcome.result()
        return Sent(result.rows, result.bytes, result.offsets, self._bad)

    def _start(self, piece: pa.RecordBatch, columns: Columns, numbers: Sequence[int]) -> None:
        async def send() -> Outcome:
            return await send_batch(self._producer, piece, columns, convoy=self._convoy, numbers=numbers)

        self._in_flight.append(self._host.submit(send()))

    def _sieve(self, piece: pa.RecordBatch, numbers: range, dead_letters: str) -> None:
        """Start sending what can be sent of *piece*, and letters for the rest."""
        sieved = sieve(
            piece,
            self._columns,
            numbers,
            partitions_of=self._partitions_of,
            settings=self._producer.config.batching_settings(),
        )
        if sieved.good.num_rows:
            self._start(sieved.good, self._columns, sieved.numbers)
        if sieved.letters is not None:
            known = self._bad or BadRows(0, dead_letters, sieved.reason)
            self._bad = BadRows(known.rows + sieved.letters.num_rows, known.topic, known.reason)
            self._start_letters(sieved.letters, sieved.bad, dead_letters)

    def _start_letters(self, letters: pa.RecordBatch, numbers: Sequence[int], topic: str) -> None:
        columns = Columns(value="value", key="key", headers="headers", topic=topic)

        async def send() -> Outcome:
            outcome = await send_batch(self._producer, letters, columns, convoy=self._convoy, numbers=numbers)
            outcome.rows = outcome.bytes = 0  # they are counted by themselves
            return outcome

        self._in_flight.append(self._host.submit(send()))

    def _partitions_of(self, topic: str) -> int:
        return len(self._host.submit(self._producer.partitions_for(topic)).result())
