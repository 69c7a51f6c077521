"""Record batches, magic 2, from columns (KIP-98): the form in which a producer sends its records."""

from __future__ import annotations

from collections.abc import Callable

from aioproducer.records.compression import Codec
from aioproducer.records.interleave import records_section
from aioproducer.records.layout import (
    CHECKED_FROM,
    CRC,
    CRC_AT,
    HEADER,
    IDENTITY,
    IDENTITY_AT,
    LENGTH_PREFIX,
    MAGIC,
    TRANSACTIONAL,
)
from aioproducer.records.record_columns import RecordColumns
from aioproducer.wire.crc32c import crc32c


def encode_records(columns: RecordColumns) -> bytes:
    """Return the records section of a batch, uncompressed; offsets count from 0, times from the first record's."""
    return bytes(_section(columns, room=0)) if columns.values else b""


def encode_batch(
    columns: RecordColumns,
    *,
    codec: Codec = Codec.NONE,
    compress: Callable[[bytes], bytes] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Return a whole batch: header, records (through *compress*, if given, which is what *codec* names), CRC.

    The base offset is 0 and the leader epoch -1: the broker sets them. The base timestamp is the first record's;
    others may be earlier. Compressed is sent even if it turns out larger, as the JVM producer does.

    Safe to call from any thread, as long as nobody changes *columns* meanwhile.

    Raises: ValueError if there are no records.
    """
    if not columns.values:
        raise ValueError("a batch has at least one record")
    if compress is None:
        batch = _section(columns, room=HEADER.size)
    else:
        batch = bytearray(HEADER.size)
        batch += compress(bytes(_section(columns, room=0)))
    count, timestamps = len(columns), columns.timestamps
    attributes = codec | TRANSACTIONAL if transactional else codec
    HEADER.pack_into(
        batch, 0,
        0, len(batch) - LENGTH_PREFIX, -1, MAGIC, 0, attributes, count - 1,
        timestamps[0], max(timestamps), producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    _set_crc(batch)
    return batch


def set_sequence(batch: bytearray, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Give an encoded batch another producer id, epoch and base sequence, in place; the records stay as they are."""
    IDENTITY.pack_into(batch, IDENTITY_AT, producer_id, epoch, base_sequence)
    _set_crc(batch)


def _section(columns: RecordColumns, room: int) -> bytearray:
    return records_section(columns.values, columns.keys, columns.headers, columns.timestamps, room)


def _set_crc(batch: bytearray) -> None:
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
