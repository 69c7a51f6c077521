"""Record batches to append, right ones and wrong ones."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.records.columns import RecordColumns
from aioproducer._core.records.compression import Codec, compressor
from aioproducer._core.records.record_batch import CHECKED_FROM, CRC, CRC_AT, HEADER, TRANSACTIONAL
from aioproducer._core.wire import crc32c
from aioproducer.testing.log import BatchHeader
from tests.encoding import encode_columns


def batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
    timestamps: Sequence[int] = (),
    keys: Sequence[bytes | None] | None = None,
    transactional: bool = False,
) -> bytearray:
    """Return a batch of *values*, or of one record if there are none; timestamps default to 0."""
    columns = RecordColumns()
    values = values or (b"value",)
    columns.extend(values, keys, None, timestamps or 0)
    return encode_columns(
        columns,
        codec | TRANSACTIONAL if transactional else codec,
        compress=None if codec is Codec.NONE else compressor(codec, None),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def with_header(data: bytearray, **changes: int) -> bytearray:
    """Return *data* with other values in its header, and a CRC that fits unless that is among them."""
    header = BatchHeader._make(HEADER.unpack_from(data))._replace(**changes)
    changed = bytearray(data)
    HEADER.pack_into(changed, 0, *header)
    if "crc" not in changes:
        CRC.pack_into(changed, CRC_AT, crc32c(bytes(changed[CHECKED_FROM:])))
    return changed
