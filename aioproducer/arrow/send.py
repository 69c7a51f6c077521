"""`send_table`, which sends a table or a stream of RecordBatches to topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa

from aioproducer._core.intake.checks import check_timeout
from aioproducer._core.intake.many import OrderedCalls
from aioproducer._core.worker_threads import WorkerThreads
from aioproducer.arrow.arrow_columns import Columns
from aioproducer.arrow.batches import (
    IN_FLIGHT,
    PIECE_ROWS,
    RowFailure,
    RowsOutcome,
    TableResult,
    pieces,
    send_batch,
)
from aioproducer.producer import Producer

_EXPECTED: Final = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, an iterable of RecordBatches,"
    " or an object with __arrow_c_stream__"
)
_END: Final = object()


class Source:
    """Reader of the user's data, piece by piece. Data that may block is read in a thread."""

    def __init__(self, data: Any, columns: Columns) -> None:
        self._columns = columns
        self._thread = _reader()
        self._known: pa.Schema | None = None
        self._pieces: Iterator[pa.RecordBatch] = iter(())
        self._batches: Iterator[Any]
        if isinstance(data, pa.Table):
            self._check(data.schema)
            self._blocks, self._batches = False, _slices(data.select(columns.names))
            return
        if isinstance(data, pa.RecordBatchReader):
            self._check(data.schema)
        elif not isinstance(data, Iterable):
            raise TypeError(f"data must be {_EXPECTED}, not {type(data).__name__}")
        self._blocks, self._batches = not isinstance(data, (list, tuple)), iter(data)

    @classmethod
    async def open(cls, data: Any, columns: Columns) -> Source:
        """Return *data* as a source, with checked columns if the schema is known before the read.

        Raises: TypeError, ValueError: *data* has an unsupported type, or a column is invalid.
        """
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        elif hasattr(data, "__arrow_c_stream__") and not isinstance(data, (pa.Table, pa.RecordBatchReader)):
            data = await _reader().run(pa.RecordBatchReader.from_stream, data)  # the stream may run a query
        return cls(data, columns)

    async def piece(self) -> pa.RecordBatch | None:
        """Return the next piece, or None after the last piece.

        A cancelled call does not wait for the reading thread.

        Raises: the errors of the read; TypeError, ValueError if a column is invalid.
        """
        while (piece := next(self._pieces, None)) is None:
            batch = await self._batch()
            if batch is None:
                return None
            self._pieces = pieces(batch, self._columns)
        return piece

    async def _batch(self) -> pa.RecordBatch | None:
        read = partial(next, self._batches, _END)
        batch = await self._thread.run(read) if self._blocks else read()
        if batch is _END:
            self._blocks = False
            self._thread.shutdown()
            return None
        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(f"data must be {_EXPECTED}; it contains a {type(batch).__name__}")
        self._check(batch.schema)
        return batch.select(self._columns.names)

    def _check(self, schema: pa.Schema) -> None:
        if schema != self._known:
            self._columns.check(schema)
            self._known = schema


def _slices(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield all rows of *table* in large batches, even if *table* has small chunks."""
    for start in range(0, table.num_rows, PIECE_ROWS):
        yield from table.slice(start, PIECE_ROWS).combine_chunks().to_batches()


def _reader() -> WorkerThreads:
    """Return a thread for one source, so that a blocked source does not delay other sources."""
    return WorkerThreads(1, "aioproducer reads Arrow")


async def send_table(
    producer: Producer,
    topic: str | None,
    data: Any,
    *,
    value: str,
    key: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    timestamp: str | None = None,
    topic_column: str | None = None,
    timeout_s: float | None = None,
) -> TableResult:
    """Send the rows of *data* as records, and return once all records are acknowledged.

    Args:
        producer: a started producer without serializers.
        topic: the topic of all records; None if *topic_column* names a column of topics.
        data: a pyarrow Table, RecordBatch or RecordBatchReader, an iterable of RecordBatches, or anything with
            `__arrow_c_stream__`, such as a DataFrame of polars or pandas.
        value: the column of values, strings or bytes; a null is a tombstone.
        key: the column of keys, strings or bytes; a null means no key.
        headers: a column of lists of (key, value) structs, or of maps.
        partition: a column of integers; for a null, the partitioner chooses the partition.
        timestamp: a column of timestamps (UTC if the type has no time zone), or of int64 milliseconds since the
            epoch; a null means the current time.
        topic_column: a column of strings.
        timeout_s: time limit from the call to the acknowledgement of a row, in seconds.

    A RecordBatchReader or an iterator is read in a thread. Up to four pieces of at most 10,000 rows are in flight, and
    records of a partition keep the order of the rows. In addition to `buffer_memory` and the current batch, the call holds
    at most five pieces of 4 MiB of keys and values (or of one larger row).

    The first failure ends the read, and the call waits for the rows in flight. A cancelled call appends no more rows;
    appended rows are still sent.

    Raises:
        TypeError, ValueError: an argument is invalid, or a column is missing or has an unsupported type. No record was
            sent before this error, unless the schema of an iterable changes between batches.
        SendTableError: rows failed, for example because of a negative partition. The error has the failed and the
            acknowledged rows.
        ProducerClosed, WrongLoop: see `send_many`.
    """
    columns = Columns(
        value=value,
        key=key,
        headers=headers,
        partition=partition,
        timestamp=timestamp,
        topic=topic,
        topic_column=topic_column,
    )
    for part in ("value", "key"):
        if getattr(producer.config, f"{part}_serializer") is not None:
            raise ValueError(
                f"the producer has a {part}_serializer; columns are sent as they are: use one without"
            )
    sending = _Sending(producer, columns, check_timeout(timeout_s))
    await sending.run(await Source.open(data, columns))
    return sending.outcome.result()


class _Sending:
    """One call of `send_table`."""

    def __init__(self, producer: Producer, columns: Columns, timeout_s: float | None) -> None:
        self.outcome = RowsOutcome()
        self._producer = producer
        self._columns = columns
        self._ordered = OrderedCalls()
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else self._loop.time() + timeout_s
        self._row = 0
        self._in_flight: set[asyncio.Task[RowsOutcome]] = set()

    async def run(self, source: Source) -> None:
        """Send the rows of *source* up to the first failure, and wait for all rows in flight."""
        try:
            while (piece := await self._next(source)) is not None:
                self._start(piece)
            while self._in_flight:
                await self._settle(self._in_flight, None)
        except Exception as error:
            outcomes = await asyncio.gather(*self._in_flight, return_exceptions=True)
            for each in outcomes:
                if isinstance(each, RowsOutcome):
                    self.outcome.add(each)
            if self.outcome.rows:
                error.add_note(f"send_table: {self.outcome.rows:,} rows had been acknowledged before")
            raise
        finally:  # tasks are left only after a cancellation
            for task in self._in_flight:
                task.cancel()
            await asyncio.gather(*self._in_flight, return_exceptions=True)

    def _start(self, piece: pa.RecordBatch) -> None:
        self._in_flight.add(
            send_batch(
                self._producer,
                piece,
                self._columns,
                ordered=self._ordered,
                numbers=range(self._row, self._row + piece.num_rows),
                timeout_s=self._time_left(),
            )
        )
        self._row += piece.num_rows

    async def _next(self, source: Source) -> pa.RecordBatch | None:
        """Return the next piece once fewer than `IN_FLIGHT` pieces are in flight; None after the last piece or a failure."""
        reading = self._loop.create_task(source.piece())
        try:
            while not reading.done() or len(self._in_flight) == IN_FLIGHT:
                waits_for = self._in_flight if reading.done() else {reading, *self._in_flight}
                if not await self._settle(waits_for, self._time_left()):
                    self._fail_unsent()
                if self.outcome.failures:
                    return None
            return reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _settle(self, tasks: set[asyncio.Task[Any]], timeout_s: float | None) -> bool:
        """Wait until one of *tasks* is done, and add the outcomes of finished sends; return False after *timeout_s*."""
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done & self._in_flight:
            self.outcome.add(task.result())
            self._in_flight.discard(task)
        return bool(done)

    def _fail_unsent(self) -> None:
        assert self._deadline is not None
        assert self._timeout_s is not None
        engine = self._producer._engine  # noqa: SLF001 - of this package
        assert engine is not None
        topic = self._columns.topic
        error = engine.intake.not_appended(
            "not read and appended", topic, None, timeout_s=self._timeout_s, due_at=self._deadline
        )
        self.outcome.add(RowsOutcome(failures=[RowFailure(self._row, topic, None, error)]))

    def _time_left(self) -> float | None:
        return None if self._deadline is None else max(0, self._deadline - self._loop.time())
