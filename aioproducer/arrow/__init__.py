"""Sending of Arrow data: the rows of a pyarrow Table, or of a stream of RecordBatches, as records.

    result = await send_table(producer, "orders", table, value="payload", key="customer")

`send_table` also accepts objects with the Arrow C stream interface: polars, DuckDB, pandas.
"""

from __future__ import annotations

from aioproducer._core.extras import needs

try:
    import pyarrow  # noqa: F401, ICN001 - checks that the extra is installed
except ImportError as _missing:
    raise ImportError(needs("aioproducer.arrow", "spark")) from _missing

from aioproducer.arrow.batches import SendTableError as SendTableError, TableResult as TableResult
from aioproducer.arrow.send import send_table as send_table
from aioproducer.results import OffsetRange as OffsetRange

__all__ = ["OffsetRange", "SendTableError", "TableResult", "send_table"]
