"""Record batches, magic 2 (KIP-98): records as columns or encoded in a buffer, and the bytes of a whole batch.

A batch is a header of 61 bytes, and the records (`interleave.py`):

    at  0  base offset int64      at 17  crc uint32 (CRC-32C of all that follows it)   at 43  producer id int64
    at  8  length int32 (of all   at 21  attributes int16                              at 51  producer epoch int16
           that follows it)       at 23  last offset delta int32                       at 53  base sequence int32
    at 12  leader epoch int32     at 27  base timestamp int64 (ms)                     at 57  record count int32
    at 16  magic int8             at 35  max timestamp int64 (ms)                      at 61  records

All big-endian. Source: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final, Protocol, Self, TypeAlias, cast, overload

from aioproducer._core.acceleration import fastest
from aioproducer._core.records.compression import Compress
from aioproducer._core.records.headers import HeaderColumns, RecordHeaders
from aioproducer._core.records.interleave import records_section
from aioproducer._core.records.sizes import BATCH_OVERHEAD, sizes
from aioproducer._core.wire.crc32c import crc32c

MAGIC = 2

HEADER = Struct(">qiibIhiqqqhii")
"""All the fields, in the order of their positions."""

LENGTH_AT = 8
"""Position of the length, by which readers skip a batch."""
LENGTH_PREFIX = 12
"""Size of base offset and length, which the length does not count."""
CRC_AT = 17
CHECKED_FROM = 21
"""First position covered by the CRC; a broker changes only earlier fields."""
IDENTITY_AT = 43

LENGTH = Struct(">i")
CRC = Struct(">I")
IDENTITY = Struct(">qhi")
"""Producer id, producer epoch and base sequence (KIP-98)."""

_UNTRACKED_BYTES = 400
"""A batch of a record or two is copied: the garbage collector visits both objects of a view, and no bytearray."""
_COPIED_BYTES = 4096
"""Size in bytes below which copying is cheaper than a view."""
_KEEP_GIL = 0
"""Mode of `crc32c`. By default `crc32c` releases the GIL from 32 KiB on: then a thread waits up to 5 ms for a check of 50 µs."""

CODEC_MASK = 0b111
LOG_APPEND_TIME = 0b1000
TRANSACTIONAL = 0b1_0000
CONTROL = 0b10_0000


Encoded: TypeAlias = bytearray | memoryview
"""A whole batch; a large one is a view of the memory of its RecordBuffer."""


class Records(Protocol):
    """Records of a batch: `RecordColumns`, or `RecordBuffer` of the accelerator, which encodes records at their append."""

    def __len__(self) -> int: ...

    @property
    def values(self) -> Sequence[bytes | None]:
        """Value of each record."""

    @property
    def keys(self) -> Sequence[bytes | None] | None:
        """Key of each record; None if no record has a key."""

    @property
    def headers(self) -> Sequence[RecordHeaders] | None:
        """Headers of each record; None if no record has headers."""

    @property
    def timestamps(self) -> Sequence[int]:
        """Timestamp of each record, in milliseconds since the epoch."""

    @property
    def size(self) -> int:
        """Bytes that count for the limit of the batch: exact for a buffer, an upper bound for columns."""

    @property
    def held(self) -> int:
        """Bytes of `buffer_memory`: the capacity of a buffer, the size of columns."""

    def sizes(self) -> list[int]:
        """Return the size of each record in bytes, as counted by `size`."""

    def append(
        self, value: bytes | None, key: bytes | None, headers: RecordHeaders, timestamp_ms: int, /
    ) -> object:
        """Add one record."""

    def extend(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[RecordHeaders] | None,
        timestamps: Sequence[int] | int,
        /,
    ) -> object:
        """Add a record per value; an exception leaves the records unchanged."""

    def truncate(self, count: int, /) -> None:
        """Keep the first *count* records."""

    def take(self, indices: Iterable[int], /) -> Self:
        """Return the records at *indices*, in that order."""


class RecordColumns:
    """Parts of records, one list per part; `encode_batch` encodes them.

    With columns in place of one object per record, an append costs two list appends, the encoder works on whole columns
    at C speed, and a part that no record has costs nothing. The lists are public and have equal lengths. While `keys` and
    `headers` are None, a record without key and headers may be appended to `values` and `timestamps` directly.

    All parts are immutable (`bytes`, `str`, tuples): the intake copies mutable buffers.
    """

    __slots__ = ("headers", "keys", "timestamps", "values")

    values: list[bytes | None]
    keys: list[bytes | None] | None
    """None while no record has a key."""
    headers: list[RecordHeaders] | HeaderColumns | None
    """None while no record has headers; HeaderColumns while all rows have the same names.

    A repeated tuple is encoded once.
    """
    timestamps: list[int]
    """Timestamp of each record, in milliseconds since the epoch."""

    def __init__(self) -> None:
        self.values = []
        self.keys = None
        self.headers = None
        self.timestamps = []

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        """Upper bound of the size of the batch before compression."""
        return BATCH_OVERHEAD + sum(self.sizes())

    @property
    def held(self) -> int:
        """Bytes of `buffer_memory`: equal to `size`."""
        return self.size

    def sizes(self) -> list[int]:
        """Return an upper bound of the encoded size of each record."""
        return sizes(self.values, self.keys, self.headers)

    def append(
        self, value: bytes | None, key: bytes | None, headers: RecordHeaders, timestamp_ms: int
    ) -> None:
        """Add one record."""
        keys, of_each = self.keys, self.headers
        if keys is not None:
            keys.append(key)
        elif key is not None:
            self.keys = [None] * len(self.values)
            self.keys.append(key)
        if type(of_each) is list:
            of_each.append(headers)
        elif headers or of_each is not None:
            self._header_list().append(headers)
        self.values.append(value)
        self.timestamps.append(timestamp_ms)

    def extend(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[RecordHeaders] | None,
        timestamps: Sequence[int] | int,
    ) -> None:
        """Add a record per value; *timestamps* is a column too, or one time in ms for all of them.

        Raises: ValueError, and nothing is added, if the columns are not of equal length.
        """
        count = len(values)
        stamps = [timestamps] * count if isinstance(timestamps, int) else timestamps
        for column in (keys, headers, stamps):
            if column is not None and len(column) != count:
                raise ValueError(f"columns of {count} and {len(column)} records cannot be put together")
        if keys is not None or self.keys is not None:
            if self.keys is None:
                self.keys = [None] * len(self.values)
            self.keys.extend([None] * count if keys is None else keys)
        if headers is not None or self.headers is not None:
            self._extend_headers([()] * count if headers is None else headers)
        self.values.extend(values)
        self.timestamps.extend(stamps)

    def truncate(self, count: int) -> None:
        """Keep the first *count* records. Columns may have different lengths before the call, each at least *count*."""
        for column in (self.values, self.keys, self.timestamps):
            if column is not None:
                del column[count:]
        if isinstance(self.headers, HeaderColumns):
            self.headers.truncate(count)
        elif self.headers is not None:
            del self.headers[count:]

    def take(self, indices: Iterable[int]) -> RecordColumns:
        """Return the records at *indices*, in that order, as columns of their own."""
        chosen = list(indices)
        part = RecordColumns()
        part.values = [self.values[index] for index in chosen]
        part.keys = None if self.keys is None else [self.keys[index] for index in chosen]
        if isinstance(self.headers, HeaderColumns):
            part.headers = self.headers.part(lambda values: [values[index] for index in chosen], len(chosen))
        elif self.headers is not None:
            part.headers = [self.headers[index] for index in chosen]
        part.timestamps = [self.timestamps[index] for index in chosen]
        return part

    def _extend_headers(self, headers: Sequence[RecordHeaders]) -> None:
        if isinstance(headers, HeaderColumns):
            if not self.values:
                self.headers = headers.owned()
                return
            if isinstance(self.headers, HeaderColumns) and self.headers.extend(headers):
                return
        self._header_list().extend(headers)

    def _header_list(self) -> list[RecordHeaders]:
        """Make the headers a list, if they are not, to which those of any record may be added."""
        if self.headers is None:
            self.headers = [()] * len(self.values)
        elif isinstance(self.headers, HeaderColumns):
            self.headers = list(self.headers)
        return self.headers


open_records: Final[Callable[[], Records]] = fastest("RecordBuffer", RecordColumns)
"""Returns empty records for a new batch."""

BUFFERED: Final = open_records is not RecordColumns
"""True if `open_records` makes a RecordBuffer."""


def encode_records(columns: Records) -> bytes:
    """Return the records section of a batch, uncompressed; offsets count from 0, times from the first record's."""
    if not len(columns):
        return b""
    return bytes(
        _section(columns, 0)
        if isinstance(columns, RecordColumns)
        else memoryview(cast("Any", columns))[HEADER.size :]
    )


@overload
def encode_batch(
    columns: RecordColumns,
    attributes: int = ...,
    compress: Compress | None = ...,
    producer_id: int = ...,
    producer_epoch: int = ...,
    base_sequence: int = ...,
) -> bytearray: ...
@overload
def encode_batch(
    columns: Records,
    attributes: int = ...,
    compress: Compress | None = ...,
    producer_id: int = ...,
    producer_epoch: int = ...,
    base_sequence: int = ...,
) -> Encoded: ...
def encode_batch(
    columns: Records,
    attributes: int = 0,
    compress: Compress | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> Encoded:
    """Return a whole batch: header, records (through *compress*, if given, which is what is among *attributes*), CRC.

    The base offset is 0 and the leader epoch -1: the broker sets them. The base timestamp is the first record's;
    others may be earlier. Compressed is sent even if it turns out larger, as the JVM producer does.

    Without *compress*, a large batch is a view of the memory of its RecordBuffer, which takes no records as long as the
    view exists.

    *attributes* is a Codec, with TRANSACTIONAL or without. The arguments have an order for who does this for each batch:
    names take as long as a tenth of it. Safe to call from any thread, as long as nobody changes *columns* meanwhile.

    Raises: ValueError if there are no records.
    """
    if compress is None and not isinstance(columns, RecordColumns):
        buffer: Any = columns
        encoded: Encoded = buffer.encode(attributes, producer_id, producer_epoch, base_sequence, crc32c)
        return encoded
    count = len(columns)
    if not count:
        raise ValueError("a batch has at least one record")
    batch: Encoded
    records: Encoded
    if isinstance(columns, RecordColumns):
        batch = records = _section(columns, HEADER.size if compress is None else 0)
        timestamps = columns.timestamps
        # Where batches are many they have one record, most often.
        first_ms, last_ms = timestamps[0], max(timestamps) if count > 1 else timestamps[0]
    else:
        buffer = columns
        batch = memoryview(buffer) if buffer.size > _UNTRACKED_BYTES else bytearray(buffer)
        records = batch[HEADER.size :]
        first_ms, last_ms = buffer.span
    if compress is not None:
        batch = bytearray(HEADER.size)
        batch += compress(records)
    HEADER.pack_into(
        batch, 0,
        0, len(batch) - LENGTH_PREFIX, -1, MAGIC, 0, attributes, count - 1,
        first_ms, last_ms, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    # As `_set_crc`, without its frame.
    if len(batch) < _COPIED_BYTES:
        CRC.pack_into(batch, CRC_AT, crc32c(batch[CHECKED_FROM:]))
    else:
        CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:], 0, _KEEP_GIL))
    return batch


def set_sequence(batch: Encoded, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Give an encoded batch another producer id, epoch and base sequence, in place; the records stay as they are."""
    IDENTITY.pack_into(batch, IDENTITY_AT, producer_id, epoch, base_sequence)
    _set_crc(batch)


def _section(columns: RecordColumns, room: int) -> bytearray:
    return records_section(columns.values, columns.keys, columns.headers, columns.timestamps, room)


def _set_crc(batch: Encoded) -> None:
    if len(batch) < _COPIED_BYTES:
        CRC.pack_into(batch, CRC_AT, crc32c(batch[CHECKED_FROM:]))
    else:
        CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:], 0, _KEEP_GIL))
