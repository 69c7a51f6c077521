"""Sending of a task's rows: Spark's thread reads the rows, and the event loop sends the rows in pieces."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from aioproducer._core.intake.many import OrderedCalls
from aioproducer._core.metrics import Traffic
from aioproducer.arrow.arrow_columns import Columns
from aioproducer.arrow.batches import (
    IN_FLIGHT,
    PIECE_BYTES,
    RowFailure,
    RowsOutcome,
    bytes_of,
    pieces,
    send_batch,
)
from aioproducer.errors import ProducerError, RecordTooLarge
from aioproducer.errors.send_many import OffsetRange
from aioproducer.producer import Producer
from aioproducer.spark.bad_rows import TimeWindow, WindowOf, dead_letters_of, rows_outside_limits, split_rows
from aioproducer.spark.messages import LISTED, BadRows
from aioproducer.spark.rate_limit import RateLimiter
from aioproducer.spark.worker import Worker
from aioproducer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Sent:
    """Acknowledged rows, and rows that could not be sent."""

    rows: int
    bytes: int
    """Size of keys and values, in bytes."""
    offsets: Mapping[TopicPartition, OffsetRange]
    """Offsets of the records, including dead letters."""
    bad: BadRows | None
    unchecked: tuple[str, ...] = ()
    """Topic, and the reason why its time limits could not be read."""
    traffic: Traffic = field(default=Traffic())
    """Growth of the producer's totals while the producer sent these rows."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of a `TaskReport` about these rows."""
        offsets: dict[str, array[int]] = {}
        if len(self.offsets) <= LISTED:
            for (topic, partition), found in self.offsets.items():
                offsets.setdefault(topic, array("q")).extend((partition, found.first, found.last))
        equal = {name: getattr(self, name) for name in ("rows", "bytes", "bad", "unchecked", "traffic")}
        return {**equal, "partitions": len(self.offsets), "offsets": offsets}


class _Piece(NamedTuple):
    """Rows in flight."""

    rows: pa.RecordBatch
    columns: Columns
    numbers: Sequence[int]
    sending: Future[RowsOutcome]


class Sending:
    """One attempt to send the rows of a task.

    The calling thread reads Spark's rows from a blocking socket. The event loop runs on another thread.
    """

    def __init__(
        self,
        producer: Producer,
        host: Worker,
        columns: Columns,
        dead_letters: str | None,
        window_of: WindowOf = lambda _topic: TimeWindow(),
        limiter: RateLimiter | None = None,
    ) -> None:
        self._producer = producer
        self._before = producer._traffic()  # noqa: SLF001 - of this package
        self._settings = producer.config.batching_settings()
        self._host = host
        self._columns = columns
        self._dead_letters = dead_letters
        self._ordered = OrderedCalls()
        self._window = window_of
        self._limiter = limiter
        self._piece_bytes = PIECE_BYTES if limiter is None else min(PIECE_BYTES, limiter.piece_bytes)
        self._unchecked: tuple[str, ...] = ()
        self._in_flight: deque[_Piece] = deque()
        self._outcome = RowsOutcome()
        self._bad: BadRows | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Sent:
        """Send all rows; return once every row is acknowledged.

        Raises: SendTableError if a row failed; later rows may be unread. The errors of reading *batches*.
        """
        row = 0
        for piece in chain.from_iterable(map(self._pieces, batches)):
            while self._in_flight and (
                len(self._in_flight) >= IN_FLIGHT or self._in_flight[0].sending.done()
            ):
                self._settle(self._in_flight.popleft())
            if self._outcome.failures:
                break
            numbers = range(row, row + piece.num_rows)
            if self._dead_letters is None:
                if late := rows_outside_limits(piece, self._columns, self._window_of):
                    failures = [
                        RowFailure(numbers[position], self._columns.topic, None, ValueError(reason))
                        for position, reason in late.items()
                    ]
                    self._outcome.add(RowsOutcome(failures=failures))
                    break
                self._start(piece, self._columns, numbers)
            else:
                self._send_valid(piece, numbers, self._dead_letters)
            row += piece.num_rows
        while self._in_flight:
            self._settle(self._in_flight.popleft())
        result = self._outcome.result()
        traffic = self._producer._traffic().since(self._before)  # noqa: SLF001 - of this package
        return Sent(result.rows, result.bytes, result.offsets, self._bad, self._unchecked, traffic)

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        # With dead letters, the limiter expects no batch, because some rows of a batch may not be sent.
        if self._limiter is not None and self._dead_letters is None:
            self._limiter.expect(bytes_of(batch, self._columns))
        return pieces(batch, self._columns, self._piece_bytes)

    def _start(self, piece: pa.RecordBatch, columns: Columns, numbers: Sequence[int]) -> None:
        if self._limiter is not None:
            self._limiter.wait(bytes_of(piece, columns))

        async def send() -> RowsOutcome:
            outcome = await send_batch(self._producer, piece, columns, ordered=self._ordered, numbers=numbers)
            if columns is not self._columns:
                outcome.rows = outcome.bytes = 0  # BadRows counts the dead letters
            return outcome

        self._in_flight.append(_Piece(piece, columns, numbers, self._host.submit(send())))

    def _settle(self, piece: _Piece) -> None:
        """Add the outcome of *piece*. With a topic of dead letters, rows that a broker refused for their content become letters."""
        outcome = piece.sending.result()
        dead_letters = self._dead_letters if piece.columns is self._columns else None
        if outcome.failures and dead_letters is not None and all(map(_is_refused, outcome.failures)):
            self._start_letters_of(piece, outcome, dead_letters)
            outcome.failures = []
        self._outcome.add(outcome)

    def _start_letters_of(self, piece: _Piece, outcome: RowsOutcome, dead_letters: str) -> None:
        position_of = {number: position for position, number in enumerate(piece.numbers)}
        errors = {position_of[each.row]: each.error for each in outcome.failures}
        reasons = {position: f"{type(error).__name__}: {error}" for position, error in errors.items()}
        large = {position for position, error in errors.items() if isinstance(error, RecordTooLarge)}
        letters = dead_letters_of(piece.rows, self._columns, reasons, large, self._settings)
        numbers = [each.row for each in outcome.failures]
        self._start_letters(letters, numbers, dead_letters, next(iter(reasons.values())))

    def _send_valid(self, piece: pa.RecordBatch, numbers: range, dead_letters: str) -> None:
        """Start sending the valid rows of *piece*, and letters for the other rows."""
        split = split_rows(
            piece,
            self._columns,
            numbers,
            partitions_of=self._partitions_of,
            window_of=self._window_of,
            settings=self._settings,
        )
        if split.good.num_rows:
            self._start(split.good, self._columns, split.numbers)
        if split.letters is not None:
            self._start_letters(split.letters, split.bad, dead_letters, split.reason)

    def _start_letters(
        self, letters: pa.RecordBatch, numbers: Sequence[int], topic: str, reason: str
    ) -> None:
        """Start sending *letters* of the rows with *numbers*; *reason* is the reason for the first letter."""
        known = self._bad or BadRows(0, topic, reason)
        self._bad = BadRows(known.rows + letters.num_rows, known.topic, known.reason)
        columns = Columns(value="value", key="key", headers="headers", topic=topic)
        self._start(letters, columns, numbers)

    def _window_of(self, topic: str) -> TimeWindow:
        window = self._window(topic)
        self._unchecked = self._unchecked or window.unchecked
        return window

    def _partitions_of(self, topic: str) -> int:
        return len(self._host.submit(self._producer.partitions_for(topic)).result())


def _is_refused(failure: RowFailure) -> bool:
    """Return True if a broker refused the row for its content, and the row is certainly not in the log."""
    error = failure.error
    return isinstance(error, ProducerError) and error._is_of_record and not error.possibly_persisted  # noqa: SLF001 - of this package
