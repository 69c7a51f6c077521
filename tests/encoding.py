"""Encoding of columns, typed as the tests use it."""

from __future__ import annotations

from typing import Any, cast

from aioproducer._core.records.columns import RecordColumns, Records
from aioproducer._core.records.record_batch import HEADER, encode_batch, records_section


def encode_records(columns: Records) -> bytes:
    """Return the uncompressed records section of a batch. Offsets count from 0, times from the time of the first record."""
    if not len(columns):
        return b""
    if not isinstance(columns, RecordColumns):
        return bytes(memoryview(cast("Any", columns))[HEADER.size :])
    return bytes(records_section(columns.values, columns.keys, columns.headers, columns.timestamps, 0))


def encode_columns(columns: RecordColumns, *args: Any, **named: Any) -> bytearray:
    """Return the batch of *columns*, which `encode_batch` always returns as a bytearray."""
    batch = encode_batch(columns, *args, **named)
    assert isinstance(batch, bytearray)
    return batch
