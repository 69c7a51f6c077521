"""Decoding of record batches (magic 2) to records, for the in-process broker, the tools and the tests.

The bytes are untrusted: bytes that are no valid batches raise ProtocolError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from aioproducer._core.records.columns import RecordHeaders
from aioproducer._core.records.compression import Codec, decompress
from aioproducer._core.records.record_batch import (
    CHECKED_FROM,
    CODEC_MASK,
    CONTROL,
    HEADER,
    LENGTH,
    LENGTH_AT,
    LENGTH_PREFIX,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
)
from aioproducer._core.wire import BytesLike, crc32c, read_varlong
from aioproducer.errors import ProtocolError

_MIN_RECORD_BYTES = 7
"""Size of a record with length, attributes, two deltas, two nulls and a header count of one byte each."""

_INT64 = range(-(1 << 63), 1 << 63)


class DecodedRecord(NamedTuple):
    """A record in the log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedBatch:
    """A batch in the log; all times in milliseconds since the epoch."""

    base_offset: int
    leader_epoch: int
    attributes: int
    codec: Codec
    timestamp_type_log_append: bool
    """True if the broker set the time of all records, which is `max_timestamp`."""
    transactional: bool
    control: bool
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_offset: int
    """Last offset of the batch, also if compaction has removed the record at this offset."""
    records: list[DecodedRecord]


def decode_batches(
    data: BytesLike, *, limit: int, partial_ok: bool = False, compacted: bool = False
) -> Iterator[DecodedBatch]:
    """Yield the batches in *data* in order; *limit* is the maximum size of a decompressed batch, in bytes.

    With *partial_ok* an incomplete last batch, which brokers may send, is omitted. With *compacted* some or all records of a
    batch may be missing.

    Raises: ProtocolError for any other difference from a batch that a producer writes: another magic, a wrong
    CRC, offsets that do not count up by one, a wrong length or count, trailing bytes.
    """
    data = bytes(data)
    start = 0
    while start < len(data):
        stop = len(data) + 1  # the end is not known yet
        if len(data) - start >= LENGTH_PREFIX:
            (length,) = LENGTH.unpack_from(data, start + LENGTH_AT)
            if length < HEADER.size - LENGTH_PREFIX:
                raise ProtocolError(f"a record batch cannot have a length of {length}")
            stop = start + LENGTH_PREFIX + length
        if stop > len(data):
            if partial_ok:
                return
            raise ProtocolError("the data ends within a record batch")
        yield _decode_batch(data[start:stop], limit, compacted=compacted)
        start = stop


def _decode_batch(data: bytes, limit: int, *, compacted: bool) -> DecodedBatch:
    (
        base_offset, _, leader_epoch, magic, crc, attributes, last_offset_delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
    ) = HEADER.unpack_from(data)  # fmt: skip
    if magic != MAGIC:
        raise ProtocolError(f"record batches of magic {magic} cannot be read, only of {MAGIC}")
    actual = crc32c(memoryview(data)[CHECKED_FROM:])
    if crc != actual:
        raise ProtocolError(f"a record batch has the CRC {actual:#010x}, not {crc:#010x} as it says")
    as_written = count > 0 and last_offset_delta == count - 1
    if not as_written and not (compacted and 0 <= count <= last_offset_delta + 1):
        raise ProtocolError(
            f"a record batch of {count} records cannot have a last offset delta of {last_offset_delta}"
        )
    try:
        codec = Codec(attributes & CODEC_MASK)
    except ValueError:
        raise ProtocolError(f"compression type {attributes & CODEC_MASK} is not known") from None
    section = decompress(codec, data[HEADER.size :], limit=limit)
    records = _decode_records(section, count, base_offset, base_timestamp, last_offset_delta)
    if attributes & LOG_APPEND_TIME:
        records = [record._replace(timestamp_ms=max_timestamp) for record in records]
    return DecodedBatch(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        codec=codec,
        timestamp_type_log_append=bool(attributes & LOG_APPEND_TIME),
        transactional=bool(attributes & TRANSACTIONAL),
        control=bool(attributes & CONTROL),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        last_offset=base_offset + last_offset_delta,
        records=records,
    )


def _decode_records(
    section: bytes, count: int, base_offset: int, base_timestamp: int, last_delta: int
) -> list[DecodedRecord]:
    """Read *count* records; the offset delta of the last record is *last_delta*, or less in a compacted batch."""
    if count * _MIN_RECORD_BYTES > len(section):  # the count is checked before any record is created
        raise ProtocolError(f"{count} records do not fit into {len(section)} bytes")
    records = []
    pos, lowest, gaps = 0, 0, last_delta + 1 - count
    try:
        for index in range(count):
            length, pos = _read_number(section, pos)
            end = pos + length
            pos += 1  # the attributes of the record; Kafka defines no attribute
            timestamp_delta, pos = _read_number(section, pos)
            offset_delta, pos = _read_number(section, pos)
            key, pos = _read_field(section, pos)
            value, pos = _read_field(section, pos)
            headers, pos = _read_headers(section, pos)
            timestamp_ms = base_timestamp + timestamp_delta
            if pos != end or not lowest <= offset_delta <= index + gaps or timestamp_ms not in _INT64:
                raise ProtocolError(
                    f"record {index} is not {length} but {length + pos - end} bytes long, or has an impossible "
                    f"offset delta {offset_delta} or timestamp {timestamp_ms}"
                )
            lowest = offset_delta + 1
            records.append(DecodedRecord(base_offset + offset_delta, timestamp_ms, key, value, headers))
    except IndexError:
        raise ProtocolError(f"the data ends within record {len(records)} of {count}") from None
    if pos != len(section):
        raise ProtocolError(f"{len(section) - pos} bytes follow the {count} records of a batch")
    return records


def _read_headers(section: bytes, pos: int) -> tuple[RecordHeaders, int]:
    count, pos = _read_number(section, pos)
    if count == 0:
        return (), pos
    if not 0 < count <= len(section) - pos:
        raise ProtocolError(f"a record cannot have {count} headers")
    headers = []
    for _ in range(count):
        name, pos = _read_field(section, pos)
        value, pos = _read_field(section, pos)
        if name is None:
            raise ProtocolError("a header has no name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise ProtocolError(f"the name of a header is not UTF-8: {error}") from error
    return tuple(headers), pos


def _read_field(section: bytes, pos: int) -> tuple[bytes | None, int]:
    """Read nullable bytes after their length."""
    length, pos = _read_number(section, pos)
    if length == -1:
        return None, pos
    end = pos + length
    if length < 0 or end > len(section):
        raise ProtocolError(
            f"a field of {length} bytes does not fit into the {len(section) - pos} that are left"
        )
    return section[pos:end], end


def _read_number(section: bytes, pos: int) -> tuple[int, int]:
    """Read a varint or varlong. Reading one or two bytes, the usual size, costs half of `read_varlong`.

    Raises: IndexError if the section ends before *pos* or after the first byte; the ProtocolError of `read_varlong`.
    """
    zigzag = section[pos]
    if zigzag > 0x7F:
        if section[pos + 1] > 0x7F:
            return read_varlong(section, pos)
        zigzag = zigzag & 0x7F | section[pos + 1] << 7
        pos += 1
    return zigzag >> 1 ^ -(zigzag & 1), pos + 1
