"""Adding records to the buffer or columns of the open batch, and charging their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aioproducer.batching.batch import Batch
from aioproducer.batching.memory_budget import MemoryBudget
from aioproducer.records.record_batch import RecordColumns
from aioproducer.types import Headers

if TYPE_CHECKING:
    from aioproducer.batching.bulk import Rows


def put_record(
    memory: MemoryBudget,
    batch: Batch,
    value: bytes | None,
    key: bytes | None,
    headers: Headers,
    timestamp_ms: int,
) -> None:
    """Append a record to the RecordBuffer of *batch*, and charge the growth of the buffer to *memory*."""
    batch.size = size = batch.columns.append(value, key, headers, timestamp_ms, batch.limit, memory.free)
    if size > batch.held:
        charge(memory, batch)


def put_rows(memory: MemoryBudget, batch: Batch, rows: Rows, size: int, limit: int) -> None:
    """Append *rows* of at most *size* bytes to *batch*, whose limit is *limit* bytes."""
    columns = batch.columns
    parts = rows.values, rows.keys, rows.headers, rows.timestamps_ms
    if isinstance(columns, RecordColumns):
        memory.free -= size
        batch.size = batch.held = batch.size + size
        columns.extend(*parts)
    else:
        batch.size = columns.extend(*parts, limit, memory.free)
        if batch.size > batch.held:
            charge(memory, batch)


def charge(memory: MemoryBudget, batch: Batch) -> None:
    """Charge the growth of the RecordBuffer of *batch* to *memory*."""
    held = batch.columns.held
    memory.free -= held - batch.held
    batch.held = held


def trim(memory: MemoryBudget, batch: Batch, recount: Callable[[], None]) -> None:
    """Return the spare memory of the sealed *batch*; call *recount* after an interruption."""
    if batch.held == batch.size:
        return
    try:
        memory.give_back(batch.trim())
    except BaseException:  # raised by a signal handler between the batch's and the budget's change
        recount()
        raise
