"""Arrow columns in: a pyarrow Table, or any stream of RecordBatches, as records of a topic.

    result = await send_table(producer, "orders", table, value="payload", key="customer")

Whoever speaks the Arrow C stream interface can be sent as it is: polars, DuckDB, pandas.
"""

from __future__ import annotations

from aioproducer._core.extras import needs

try:
    import pyarrow  # noqa: F401, ICN001 - to say what to do if it is not there
except ImportError as _missing:
    raise ImportError(needs("aioproducer.arrow", "spark")) from _missing

from aioproducer.arrow.result import SendTableError as SendTableError, TableResult as TableResult
from aioproducer.arrow.send import send_table as send_table
from aioproducer.results import OffsetRange as OffsetRange

__all__ = ["OffsetRange", "SendTableError", "TableResult", "send_table"]
