"""Sending of RecordBatches by `send_many`, for `send_table` and the Spark sink, and the result for the rows."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from aioproducer._core.intake.many import OrderedCalls
from aioproducer._core.records.columns import HeaderColumns
from aioproducer.arrow.arrow_columns import (
    BadValue,
    Columns,
    as_bytes,
    as_headers,
    as_partitions,
    as_texts,
    as_timestamps_ms,
    bytes_in,
    bytes_in_headers,
)
from aioproducer.errors import ProducerError, SendManyError
from aioproducer.errors.send_many import OffsetRange
from aioproducer.producer import Producer
from aioproducer.types import Headers, TopicPartition

_KEPT: Final = 100
"""Maximum number of failures that an error keeps: the failures of the first rows."""


@dataclass(frozen=True, slots=True)
class TableResult:
    """The acknowledged rows of a `send_table` call."""

    rows: int
    bytes: int
    """Size of keys and values before compression, in bytes."""
    offsets: Mapping[TopicPartition, OffsetRange]
    """Offsets of the records by `TopicPartition`; a tuple (topic, partition) works as a key."""


class RowFailure(NamedTuple):
    """A row that was not acknowledged."""

    row: int
    """Index of the row in the whole input, from 0."""
    topic: str | None
    partition: int | None
    """Requested partition; None if the partitioner chooses the partition."""
    error: Exception


class SendTableError(ProducerError):
    """Rows of a `send_table` call failed; later rows may be unread.

    `row`, `topic` and `partition` (None if unknown) describe the first failed row; its error is the `__cause__`.
    `failures` maps the first hundred failed rows to their errors. `result` has the acknowledged rows.
    `possibly_persisted` and `retriable` are True if they are True for any failed row.
    """

    def __init__(
        self,
        message: str,
        *,
        first: RowFailure,
        failures: Mapping[int, Exception],
        result: TableResult,
        possibly_persisted: bool = False,
        retriable: bool = False,
    ) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted)
        self._first = first
        self.row: int = first.row
        self.topic: str | None = first.topic
        self.partition: int | None = first.partition
        self.failures = failures
        self.result = result
        self.retriable = retriable

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy with keyword arguments."""
        named = partial(type(self), first=self._first, failures=self.failures, result=self.result)
        return named, self.args, self.__dict__


@dataclass(slots=True)
class RowsOutcome:
    """Outcome of some rows. The outcomes of several batches can be added."""

    rows: int = 0
    """Number of acknowledged rows."""
    bytes: int = 0
    """Size of the keys and values of acknowledged rows, in bytes."""
    offsets: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    failures: list[RowFailure] = field(default_factory=list)
    """Failed rows; `add` sorts the failures by row."""

    def add(self, other: RowsOutcome) -> None:
        """Add the outcome of other rows."""
        self.rows += other.rows
        self.bytes += other.bytes
        for where, more in other.offsets.items():
            known = self.offsets.get(where)
            self.offsets[where] = more if known is None else known.joined(more)
        if other.failures:
            self.failures = sorted([*self.failures, *other.failures], key=attrgetter("row"))

    def result(self) -> TableResult:
        """Return the acknowledged rows.

        Raises: SendTableError if any row failed.
        """
        result = TableResult(self.rows, self.bytes, dict(self.offsets))
        if not self.failures:
            return result
        # If a broker refuses some rows of a batch, a transaction fails all rows: the refused rows have the reason.
        refused = (each for each in self.failures if getattr(each.error, "_is_of_record", False))
        first = next(refused, self.failures[0])
        errors = {each.row: each.error for each in self.failures}
        others = f"; {len(errors) - 1:,} more rows failed" if len(errors) > 1 else ""
        raise SendTableError(
            f"row {first.row:,}{_place(first)}: {type(first.error).__name__}: {first.error}"
            f"{others}; {self.rows:,} were acknowledged",
            first=first,
            failures=dict(islice(errors.items(), _KEPT)),
            result=result,
            possibly_persisted=any(getattr(each, "possibly_persisted", False) for each in errors.values()),
            retriable=any(getattr(each, "retriable", False) for each in errors.values()),
        ) from first.error


def _place(failure: RowFailure) -> str:
    if failure.topic is None:
        return ""
    partition = "" if failure.partition is None else f", partition {failure.partition}"
    return f" (topic {failure.topic!r}{partition})"


IN_FLIGHT: Final = 4
"""Maximum number of pieces in flight. While one piece waits for acknowledgements, later pieces are appended."""
PIECE_ROWS: Final = 10_000
PIECE_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of the keys, values and headers of a piece, in bytes.

The maximum bounds the memory beside `buffer_memory`, and the time that a piece waits for earlier pieces."""


def pieces(
    batch: pa.RecordBatch, columns: Columns, piece_bytes: int = PIECE_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield *batch*, which has the *columns*, in pieces of at most `PIECE_ROWS` rows and *piece_bytes*, or of one row."""
    for start in range(0, batch.num_rows, PIECE_ROWS):
        yield from _halved(batch.slice(start, PIECE_ROWS), columns, piece_bytes)


def _halved(batch: pa.RecordBatch, columns: Columns, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 1 or bytes_of(batch, columns) <= piece_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half), columns, piece_bytes)
    yield from _halved(batch.slice(half), columns, piece_bytes)


def bytes_of(batch: pa.RecordBatch, columns: Columns) -> int:
    """Return the bytes of keys, values and headers in *batch*, which has the *columns*."""
    headers = 0 if columns.headers is None else bytes_in_headers(batch.column(columns.headers))
    return _bytes_of(batch, columns) + headers


def send_batch(
    producer: Producer,
    batch: pa.RecordBatch,
    columns: Columns,
    *,
    ordered: OrderedCalls,
    numbers: Sequence[int],
    timeout_s: float | None = None,
) -> asyncio.Task[RowsOutcome]:
    """Start sending the rows of *batch*, which has the *columns*. The task returns the outcome of the rows.

    Records of a partition are appended in the order of the `send_batch` calls with the same *ordered*. The
    outcome has each failed row, by its number in *numbers*. If *batch* has an invalid value, no row is sent. Cancelling
    the task stops the appending and the waiting; appended records are still sent.

    The task raises: ProducerClosed, WrongLoop.
    """
    loop = asyncio.get_running_loop()
    try:
        groups = _by_topic(_rows(batch, columns, numbers), columns, batch)
    except BadValue as error:
        failure = RowFailure(numbers[error.position], columns.topic, None, ValueError(str(error)))
        return loop.create_task(_joined([], RowsOutcome(failures=[failure])))
    # the calls start before the return, so the calls of later batches wait behind them
    calls = [
        loop.create_task(_send_rows(producer, ordered, topic, rows, timeout_s)) for topic, rows in groups
    ]
    return loop.create_task(_joined(calls, RowsOutcome()))


class _Rows(NamedTuple):
    """Columns for `send_many`, with the row numbers of the input."""

    numbers: Sequence[int]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    partitions: Sequence[int | None] | None
    timestamps_ms: Sequence[int | None] | None
    bytes: int

    def take(self, positions: Sequence[int]) -> _Rows:
        """Return the rows at *positions*."""

        def part(column: Any) -> Any:
            if isinstance(column, HeaderColumns):
                return column.part(part, len(positions))
            return None if column is None else [column[position] for position in positions]

        return _Rows._make([*map(part, self[:-1]), sum(map(self.size, positions))])

    def size(self, position: int) -> int:
        """Return the size of the key and value at *position*."""
        return len(self.values[position] or b"") + len((self.keys and self.keys[position]) or b"")

    def partition(self, position: int) -> int | None:
        """Return the requested partition at *position*."""
        return None if self.partitions is None else self.partitions[position]


def _bytes_of(batch: pa.RecordBatch, columns: Columns) -> int:
    return sum(bytes_in(batch.column(name)) for name in (columns.value, columns.key) if name is not None)


def _rows(batch: pa.RecordBatch, columns: Columns, numbers: Sequence[int]) -> _Rows:
    """Return *batch* as lists. Raises: BadValue."""
    headers, partition, timestamp = columns.headers, columns.partition, columns.timestamp
    keys = None if columns.key is None else batch.column(columns.key)
    return _Rows(
        numbers,
        as_bytes(batch.column(columns.value)),
        # without keys, `send_many` chooses no partition per row
        None if keys is None or keys.null_count == len(keys) else as_bytes(keys),
        None if headers is None else as_headers(headers, batch.column(headers)),
        None if partition is None else as_partitions(partition, batch.column(partition)),
        None if timestamp is None else as_timestamps_ms(timestamp, batch.column(timestamp)),
        _bytes_of(batch, columns),
    )


def _by_topic(rows: _Rows, columns: Columns, batch: pa.RecordBatch) -> list[tuple[str, _Rows]]:
    """Return *rows* grouped by topic, each group in input order. Raises: BadValue."""
    if columns.topic is not None:
        return [(columns.topic, rows)]
    topics, codes = as_texts(batch.column(columns.topic_column))
    if None in codes:
        raise BadValue(f"column {columns.topic_column!r}: there is no topic (null)", codes.index(None))
    if len(topics) == 1:
        return [(topics[0], rows)]
    positions: defaultdict[int, list[int]] = defaultdict(list)
    for position, code in enumerate(codes):
        positions[code].append(position)
    return [(topics[code], rows.take(of_topic)) for code, of_topic in positions.items()]


async def _send_rows(
    producer: Producer, ordered: OrderedCalls, topic: str, rows: _Rows, timeout_s: float | None
) -> RowsOutcome:
    try:
        result = await producer._send_in(  # noqa: SLF001 - of this package
            ordered,
            topic,
            rows.values,
            keys=rows.keys,
            headers=rows.headers,
            partitions=rows.partitions,
            timestamps_ms=rows.timestamps_ms,
            timeout_s=timeout_s,
        )
    except SendManyError as error:
        result = error.result
    except ValueError as error:  # `send_many` appended no record
        return RowsOutcome(failures=[await _refused(producer, topic, rows, error)])
    ranges = result.offset_ranges()
    return RowsOutcome(
        result.delivered,
        rows.bytes - sum(map(rows.size, result.failures)),
        {TopicPartition(topic, partition): offsets for partition, offsets in ranges.items()},
        [
            RowFailure(rows.numbers[position], topic, rows.partition(position), failure)
            for position, failure in result.failures.items()
        ],
    )


async def _refused(producer: Producer, topic: str, rows: _Rows, error: ValueError) -> RowFailure:
    """Return the failed row for *error*, which `send_many` raised for an illegal topic or a missing partition."""
    with suppress(ValueError, ProducerError):
        count = len(await producer.partitions_for(topic))
        for row, partition in zip(rows.numbers, rows.partitions or (), strict=False):
            if partition is not None and partition >= count:
                missing = ValueError(f"there is no partition {partition}: {topic!r} has {count}, from 0")
                return RowFailure(row, topic, partition, missing)
    return RowFailure(rows.numbers[0], topic, None, error)


async def _joined(calls: Sequence[asyncio.Task[RowsOutcome]], outcome: RowsOutcome) -> RowsOutcome:
    """Return the sum of *outcome* and the outcomes of *calls*."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for each in outcomes:
        if isinstance(each, BaseException):
            raise each
        outcome.add(each)
    return outcome
