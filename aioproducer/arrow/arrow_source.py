"""The source of RecordBatches: a table, a reader, or an iterable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa

from aioproducer._core.worker_threads import WorkerThreads
from aioproducer.arrow.arrow_schema import Columns
from aioproducer.arrow.batches import PIECE_ROWS, pieces

_EXPECTED: Final = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, an iterable of RecordBatches,"
    " or what has __arrow_c_stream__"
)
_END: Final = object()


class Source:
    """The columns of a user's data, piece by piece; what may block is asked in a thread."""

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
        """Return *data* as a source, its columns checked if its schema is known before it is read.

        Raises: TypeError, ValueError: it is nothing of the kind, or its columns are not what they should be.
        """
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        elif hasattr(data, "__arrow_c_stream__") and not isinstance(data, (pa.Table, pa.RecordBatchReader)):
            data = await _reader().run(pa.RecordBatchReader.from_stream, data)  # may run a query
        return cls(data, columns)

    async def piece(self) -> pa.RecordBatch | None:
        """Return the next piece, or None after the last one.

        Cancelled while a thread reads, it does not wait for that.

        Raises: what reading does; TypeError, ValueError if the columns are not what they should be.
        """
        while (piece := next(self._pieces, None)) is None:
            batch = await self._batch()
            if batch is None:
                return None
            self._pieces = pieces(batch, self._columns)
        return piece

    async def _batch(self) -> pa.RecordBatch | None:
        ask = partial(next, self._batches, _END)
        batch = await self._thread.run(ask) if self._blocks else ask()
        if batch is _END:
            self._blocks = False
            self._thread.shutdown()
            return None
        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(f"data must be {_EXPECTED}; this one has a {type(batch).__name__} in it")
        self._check(batch.schema)
        return batch.select(self._columns.names)

    def _check(self, schema: pa.Schema) -> None:
        if schema != self._known:
            self._columns.check(schema)
            self._known = schema


def _slices(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield all rows, many at a time also where the table's chunks are small."""
    for start in range(0, table.num_rows, PIECE_ROWS):
        yield from table.slice(start, PIECE_ROWS).combine_chunks().to_batches()


def _reader() -> WorkerThreads:
    """Return a thread for one source: a source that blocks for long delays no other source."""
    return WorkerThreads(1, "aioproducer reads Arrow")
