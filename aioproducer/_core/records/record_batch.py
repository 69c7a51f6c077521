"""Encoding of a batch. The records section is a list of byte strings, which are joined once.

Encoding one record after the other costs a dozen interpreter steps per record. Instead, this module interleaves
*strands*. A strand is a list with the same part of every record, made by one `map` over a column. A slice assignment
puts the strand between the other strands:

    strand    length  attributes, timestamp delta  offset delta  key length  value length  value  header count
    record 0  d6 01   00 00                        00            01          c8 01         ...    00
    record 1  d6 01   00 00                        02            01          c8 01         ...    00

Few strands make records cheap:

- A part that is the same in all records (null keys, no headers, one timestamp, equal lengths) is *glue*: the part
  is added to a neighbouring strand. The glue at the end of a record, usually the zero for no headers, is added to the
  length of the next record, and is named *lead*.
- Lengths with their glue come from memos: a look-up costs a tenth of the encoding of a varint.
- If all records have one size and one timestamp, only the offset deltas differ. The strand before the first column
  of data is then a cached row of an earlier batch, so value-only records have two strands.

Time in µs per record of 100 bytes, with 146 records per batch and CPython 3.11 (in parentheses: the fastest loop over
records): values of one size 0.07 (0.25), values of any size 0.15 (0.25); with a key of 16 bytes 0.13 (0.45), with a key
of any size 0.29 (0.45); with a key and two headers of the same names 0.38 to 0.71.

Source of the format: https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from operator import add
from struct import Struct
from typing import Any, Final, TypeAlias

from aioproducer._core.acceleration import fastest
from aioproducer._core.records.columns import (
    NAMES,
    RecordColumns,
    RecordHeaders,
    Records,
    as_columns,
    encode_each,
    encode_value,
)
from aioproducer._core.records.compression import Compress
from aioproducer._core.wire import FIELD_SIZES, VARINTS, Memo, crc32c, field_size, varint, varints_after

_NULL = varint(-1)
_NO_HEADERS = varint(0)
_FIRST = b"\0\0\0"
"""Attributes, timestamp delta and offset delta of the first record."""
_STAMPS = varints_after(b"\0")
"""Attributes of a record, which are always 0, and its timestamp delta."""

_OFFSET_WIDTHS = (
    (0, 1 << 6, 1),
    (1 << 6, 1 << 13, 2),
    (1 << 13, 1 << 20, 3),
    (1 << 20, 1 << 27, 4),
    (1 << 27, 1 << 31, 5),
)
"""Ranges of offset deltas (first, end) with the size of their varints in bytes."""

_ROW_COUNTS = range(8, 4097)
_ROW_TAIL = 12
"""Numbers of records, and maximum tail in bytes, of batches that use `_head_row`. The two limits bound the cache."""

_Varying: TypeAlias = tuple[list[int], Callable[[int], int]]
"""A number per record, and the function from number to bytes: `int` for sizes, `field_size` for lengths."""


def python_records_section(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[RecordHeaders] | None,
    timestamps: Sequence[int],
    room: int,
) -> bytearray:
    """Return *room* zeros followed by the records section of the columns (at least one record)."""
    parts = interleave(values, keys, headers, timestamps)
    parts[0] = bytes(room) + parts[0]
    return bytearray().join(parts)  # the join is the only copy of the records


records_section: Final = fastest("records_section", python_records_section)


def interleave(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[RecordHeaders] | None,
    timestamps: Sequence[int],
) -> list[bytes]:
    """Return the parts of the records section of the columns (at least one record), in order."""
    if len(values) == 1:
        return [_only_record(values, keys, headers)]
    loom = _Loom(len(values))
    if keys is None:
        loom.add_glue(_NULL)
    else:
        loom.add_field(keys)
    loom.add_field(values)
    if headers is None:
        loom.add_glue(_NO_HEADERS)
    else:
        loom.add_headers(headers)
    return loom.finish(timestamps)


def _only_record(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[RecordHeaders] | None,
) -> bytes:
    """Return the only record of a batch, encoded without a loom, which would cost four times as much."""
    parts = [_FIRST]
    for column in (keys, values):
        data = None if column is None else column[0]
        parts += (_NULL,) if data is None else (VARINTS[len(data)], data)
    parts += [_NO_HEADERS] if headers is None else encode_each(headers)
    record = b"".join(parts)
    return VARINTS[len(record)] + record


class _Loom:
    """Collector of the strands of a batch, from left to right, starting behind the offset delta.

    The parts before the offset delta, such as the record's length, are known only at the end.
    """

    __slots__ = ("_count", "_fixed_size", "_glue", "_strands", "_tail", "_varying")

    def __init__(self, count: int) -> None:
        self._count = count
        self._strands: list[Sequence[bytes]] = []
        self._glue = b""  # glue for the next strand
        self._tail: bytes | None = None  # the glue between the offset delta and the first strand, once known
        self._fixed_size = 0  # size of the equal parts of a record, in bytes
        self._varying: list[_Varying] = []  # sizes of the other parts of each record

    def add_glue(self, data: bytes) -> None:
        """Add a part that is equal in all records."""
        self._glue += data
        self._fixed_size += len(data)

    def add_field(self, column: Sequence[bytes | None]) -> None:
        """Add a nullable field: its lengths and its bytes."""
        lengths, data = _measure(column)
        first = lengths[0]
        if first == lengths[-1] and lengths.count(first) == self._count:
            self.add_glue(VARINTS[first])
            if first > 0:
                self._add_strand(data)
                self._fixed_size += first
            return
        self._varying.append((lengths, field_size))
        if len(self._glue) == 1:  # the byte is mostly a null key, which the memo includes
            prefix, self._glue = self._glue, b""
        else:
            prefix = b""
        self._add_strand(list(map(varints_after(prefix).__getitem__, lengths)))
        self._add_strand(data)

    def add_headers(self, headers: Sequence[RecordHeaders]) -> None:
        """Add the headers: if names agree, a column per name, or glue for equal values; else a block per record."""
        columns = as_columns(headers)
        if columns is not None:
            self.add_glue(VARINTS[len(columns.columns)])
            for name, value, values in columns.columns:
                self.add_glue(NAMES[name])
                if values is None:
                    self.add_glue(encode_value(value))
                else:
                    self.add_field(values)
        else:
            blocks = encode_each(headers)
            self._add_strand(blocks)
            self._varying.append((list(map(len, blocks)), int))

    def finish(self, timestamps: Sequence[int]) -> list[bytes]:
        """Prepend the strands before the fields, and interleave all strands."""
        lead = self._glue if len(self._glue) == 1 else b""
        if not lead:
            self._set_glue()
        strands = self._heads(lead, timestamps) + self._strands
        step = len(strands)
        parts = [lead] * (self._count * step + 1)
        for position, strand in enumerate(strands):
            parts[position:-1:step] = strand
        parts[0] = parts[0].removeprefix(lead)  # no lead precedes the first record
        return parts

    def _add_strand(self, strand: Sequence[bytes]) -> None:
        self._set_glue()
        self._strands.append(strand)

    def _set_glue(self) -> None:
        """Fix the position of the glue: as the tail, or as a strand."""
        if self._tail is None:
            self._tail = self._glue
        elif self._glue:
            self._strands.append([self._glue] * self._count)
        self._glue = b""

    def _heads(self, lead: bytes, timestamps: Sequence[int]) -> list[Sequence[bytes]]:
        """Return the strands before the fields, including the strand of the tail."""
        count, base, tail = self._count, timestamps[0], self._tail or b""
        heads: list[Sequence[bytes]]
        if timestamps.count(base) == count:
            stamp = _STAMPS[0]
            self._fixed_size += len(stamp)
            if not self._varying and count in _ROW_COUNTS and len(tail) <= _ROW_TAIL:
                return [_head_row(lead, self._fixed_size, tail, _rounded(count))[:count]]
            heads = [self._lengths(lead, stamp)]
        else:
            stamps = list(map(_STAMPS.__getitem__, [timestamp - base for timestamp in timestamps]))
            sizes = list(map(len, stamps))
            if sizes.count(2) == count:  # usually all timestamps are within 63 ms of the first
                self._fixed_size += 2
            else:
                self._varying.append((sizes, int))
            heads = [self._lengths(lead, b""), stamps]
        heads.append(_offset_deltas(_rounded(count))[:count])
        if tail:
            heads.append([tail] * count)
        return heads

    def _lengths(self, lead: bytes, stamp: bytes) -> list[bytes]:
        """Return the strand of the record lengths, between the glues *lead* and *stamp*."""
        strand: list[bytes] = []
        numbers, size_of = self._varying_sizes()
        widths = iter(_OFFSET_WIDTHS)
        while len(strand) < self._count:
            start, stop, width = next(widths)
            size = self._fixed_size + width
            if numbers:
                strand += map(_lengths_memo(lead, size, size_of, stamp).__getitem__, numbers[start:stop])
            else:
                strand += [lead + VARINTS[size] + stamp] * (min(stop, self._count) - start)
        return strand

    def _varying_sizes(self) -> tuple[list[int], Callable[[int], int]]:
        """Return one number per record, and the function from number to size; no numbers if all sizes are equal."""
        if not self._varying:
            return [], int
        if len(self._varying) == 1:
            return self._varying[0]  # a memo of lengths saves a look-up per record
        sizes = [
            numbers if size_of is int else map(FIELD_SIZES.__getitem__, numbers)
            for numbers, size_of in self._varying
        ]
        return list(reduce(lambda left, right: map(add, left, right), sizes)), int


def _measure(column: Sequence[bytes | None]) -> tuple[list[int], Sequence[bytes]]:
    """Return the lengths, -1 for a null, and the bytes."""
    try:
        return list(map(len, column)), column  # type: ignore[arg-type, return-value]
    except TypeError:  # the column has nulls
        return [-1 if data is None else len(data) for data in column], [data or b"" for data in column]


def _rounded(count: int) -> int:
    """Return the next power of two, so that cached rows serve batches of similar sizes."""
    return 1 << max(6, (count - 1).bit_length())


@lru_cache(maxsize=8)
def _offset_deltas(count: int) -> list[bytes]:
    return list(map(varint, range(count)))


@lru_cache(maxsize=32)
def _head_row(lead: bytes, fixed_size: int, tail: bytes, count: int) -> list[bytes]:
    stamp = _STAMPS[0]
    return [lead + VARINTS[fixed_size + len(delta)] + stamp + delta + tail for delta in _offset_deltas(count)]


@lru_cache(maxsize=16)
def _lengths_memo(
    lead: bytes, fixed_size: int, size_of: Callable[[int], int], stamp: bytes
) -> Memo[int, bytes]:
    return Memo(lambda number: lead + varint(fixed_size + size_of(number)) + stamp)


MAGIC = 2

HEADER = Struct(">qiibIhiqqqhii")
"""All fields of the header, in order of position."""

LENGTH_AT = 8
"""Position of the length, by which readers skip a batch."""
LENGTH_PREFIX = 12
"""Size of the fields base offset and length in bytes; the value of the length field excludes this prefix."""
CRC_AT = 17
CHECKED_FROM = 21
"""First position covered by the CRC; a broker changes only earlier fields."""
IDENTITY_AT = 43

LENGTH = Struct(">i")
CRC = Struct(">I")
IDENTITY = Struct(">qhi")
"""Producer id, producer epoch and base sequence (KIP-98)."""

_COPIED_BYTES = 4096
"""Size in bytes below which copying is cheaper than a view."""
_KEEP_GIL = 0
"""Mode in which `crc32c` keeps the GIL. Releasing the GIL costs a thread up to 5 ms for a check of 50 µs (32 KiB)."""

CODEC_MASK = 0b111
LOG_APPEND_TIME = 0b1000
TRANSACTIONAL = 0b1_0000
CONTROL = 0b10_0000


Encoded: TypeAlias = bytearray | memoryview
"""A whole batch; a large batch is a view of the memory of its RecordBuffer."""


def encode_batch(
    columns: Records,
    attributes: int = 0,
    compress: Compress | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> Encoded:
    """Return a whole batch: header, records and CRC. *compress* belongs to the codec in *attributes*.

    The base offset is 0 and the leader epoch -1, because the broker sets these two fields. The base timestamp is the
    time of the first record; other records may be earlier. As in the JVM producer, a batch may grow by compression.

    Without *compress*, a large batch is a view of the memory of its RecordBuffer, which accepts no records while the
    view exists.

    *attributes* is a Codec, with or without TRANSACTIONAL. Arguments are passed by position, because names cost 10 %.
    Any thread may call `encode_batch` while no other thread changes *columns*.

    Raises: ValueError without records.
    """
    buffer: Any = columns
    if compress is None and not isinstance(columns, RecordColumns):
        encoded: Encoded = buffer.encode(attributes, producer_id, producer_epoch, base_sequence, crc32c)
        return encoded
    count = len(columns)
    if not count:
        raise ValueError("a batch has at least one record")
    records: Encoded
    if isinstance(columns, RecordColumns):
        records = _section(columns, HEADER.size if compress is None else 0)
        timestamps = columns.timestamps
        # Small batches mostly have one record, which needs no max().
        first_ms, last_ms = timestamps[0], max(timestamps) if count > 1 else timestamps[0]
    else:
        records = memoryview(buffer)[HEADER.size :]
        first_ms, last_ms = buffer.span
    if compress is None:
        batch = records
    else:
        batch = bytearray(HEADER.size)
        batch += compress(records)
    HEADER.pack_into(
        batch, 0,
        0, len(batch) - LENGTH_PREFIX, -1, MAGIC, 0, attributes, count - 1,
        first_ms, last_ms, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    # The next lines are `_set_crc` without its frame.
    if len(batch) < _COPIED_BYTES:
        CRC.pack_into(batch, CRC_AT, crc32c(batch[CHECKED_FROM:]))
    else:
        CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:], 0, _KEEP_GIL))
    return batch


def set_sequence(batch: Encoded, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Set producer id, epoch and base sequence of an encoded batch in place."""
    IDENTITY.pack_into(batch, IDENTITY_AT, producer_id, epoch, base_sequence)
    _set_crc(batch)


def _section(columns: RecordColumns, room: int) -> bytearray:
    return records_section(columns.values, columns.keys, columns.headers, columns.timestamps, room)


def _set_crc(batch: Encoded) -> None:
    if len(batch) < _COPIED_BYTES:
        CRC.pack_into(batch, CRC_AT, crc32c(batch[CHECKED_FROM:]))
    else:
        CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:], 0, _KEEP_GIL))
