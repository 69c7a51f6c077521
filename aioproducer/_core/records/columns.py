"""Columns of records: values and headers, bytes in the memory of Arrow arrays, and upper bounds of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate, repeat
from operator import add, itemgetter
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias, cast, overload

from aioproducer._core.acceleration import fastest
from aioproducer._core.wire import VARINTS, Memo, varint

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Headers of one record in order; names may repeat (KIP-82)."""

Values: TypeAlias = Sequence[bytes | None]


class HeaderColumn(NamedTuple):
    """One header of many records."""

    name: str
    value: bytes | None
    """Value of all records; unused if `values` is set."""
    values: Values | None = None
    """One value per record, or None if all records have the same value."""

    @classmethod
    def holding(cls, name: str, values: Values) -> Self:
        """Return the header with *values*, reduced to one value if all values are equal."""
        first = values[0]
        is_shared = first == values[-1] and values.count(first) == len(values)
        return cls(name, first) if is_shared else cls(name, None, values)

    def part(self, pick: Callable[[Values], Values]) -> HeaderColumn:
        """Return the header of some records; *pick* selects the values of these records."""
        return self if self.values is None else HeaderColumn(self.name, None, pick(self.values))

    def of(self, index: int) -> bytes | None:
        """Return the value of the record at *index*."""
        return self.value if self.values is None else self.values[index]

    def of_each(self, count: int) -> Values:
        """Return the value of each of *count* records."""
        return [self.value] * count if self.values is None else self.values


class HeaderColumns(Sequence[RecordHeaders]):
    """Headers of many records with the same names in the same order, as columns; a sequence of pairs per record.

    Each step of an append is one operation at C speed per header, without an object per record. A header with one
    value for all records, for example a content type, needs no column.
    """

    __slots__ = ("_count", "columns")

    columns: list[HeaderColumn]
    """Columns in the order of the headers in each record."""

    def __init__(self, columns: list[HeaderColumn], count: int) -> None:
        self.columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> RecordHeaders: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> RecordHeaders | Self:
        if isinstance(index, slice):
            return self.part(itemgetter(index), len(range(self._count)[index]))
        place = range(self._count)[index]
        return tuple([(each.name, each.of(place)) for each in self.columns])

    def __iter__(self) -> Iterator[RecordHeaders]:
        if not self.columns:
            return repeat((), self._count)
        return zip(
            *(zip(repeat(each.name), each.of_each(self._count)) for each in self.columns),
            strict=True,
        )

    def part(self, pick: Callable[[Values], Values], count: int) -> Self:
        """Return the headers of *count* records; *pick* selects the values of these records."""
        return type(self)([column.part(pick) for column in self.columns], count)

    def behind(self, common: RecordHeaders) -> Self:
        """Return the headers of each record, with the headers *common* in front."""
        return type(self)(
            [*(HeaderColumn(name, value) for name, value in common), *self.columns], self._count
        )

    def owned(self) -> Self:
        """Return a copy with lists of its own, for `extend`."""
        return self.part(list, self._count)

    def truncate(self, count: int) -> None:
        """Keep the headers of the first *count* records. Columns may have different lengths before the call."""
        self.columns = [column.part(lambda values: list(values[:count])) for column in self.columns]
        self._count = count

    def extend(self, other: HeaderColumns) -> bool:
        """Add *other*, headers of more records, and return True; return False without a change if header names differ."""
        if [each.name for each in self.columns] != [each.name for each in other.columns]:
            return False
        for place, (mine, more) in enumerate(zip(self.columns, other.columns, strict=True)):
            if mine.values is more.values is None and mine.value == more.value:
                continue
            values: list[bytes | None]
            values = mine.values if isinstance(mine.values, list) else list(mine.of_each(self._count))
            values.extend(more.of_each(len(other)))
            self.columns[place] = HeaderColumn(mine.name, None, values)
        self._count += len(other)
        return True


def _encode_name(name: str) -> bytes:
    raw = name.encode()
    return varint(len(raw)) + raw


NAMES = Memo(_encode_name)
"""Encoded header names with their lengths; programs use few names."""


def encode_value(value: bytes | None) -> bytes:
    """Return a header's encoded value."""
    return VARINTS[-1] if value is None else VARINTS[len(value)] + value


def encode_headers(headers: RecordHeaders) -> bytes:
    """Return the encoded headers of one record."""
    parts = [VARINTS[len(headers)]]
    for name, value in headers:
        if value is None:
            parts += NAMES[name], VARINTS[-1]
        else:
            parts += NAMES[name], VARINTS[len(value)], value
    return b"".join(parts)


def encode_each(headers: Sequence[RecordHeaders]) -> list[bytes]:
    """Return the encoded headers of each record, at least one; a repeated object is encoded once."""
    blocks = []
    last = headers[0]
    block = encode_headers(last)
    for record_headers in headers:
        if record_headers is not last:
            last, block = record_headers, encode_headers(record_headers)
        blocks.append(block)
    return blocks


def as_columns(headers: Sequence[RecordHeaders]) -> HeaderColumns | None:
    """Return the headers of at least one record as columns; None unless all records have the same names in order."""
    if isinstance(headers, HeaderColumns):
        return headers
    first, count = headers[0], len(headers)
    # If all records have equal headers, each column is one value.
    if first is headers[-1] and headers.count(first) == count:  # `is` fails fast if headers differ
        return HeaderColumns([HeaderColumn(name, value) for name, value in first], count)
    width = len(first)
    if list(map(len, headers)).count(width) != count:
        return None
    columns = []
    for pairs in zip(*headers, strict=True):
        names, values = zip(*pairs, strict=True)
        if names.count(names[0]) != count:
            return None
        columns.append(HeaderColumn(names[0], None, values))
    return HeaderColumns(columns, count)


BATCH_OVERHEAD = 61
"""Size of the header of a batch, in bytes."""

SMALL_PAYLOAD = 8000
"""Size of key, value and headers below which all lengths are varints of at most two bytes (up to 8,191)."""

RECORD_OVERHEAD = 14
"""Maximum overhead of a small record, in bytes.

    length 2 + attributes 1 + timestamp delta 3 + offset delta 3 + key length 2 + value length 2 + header count 1

The maximum holds if the payload is below `SMALL_PAYLOAD`, the record is one of the first 2**20 (1,048,576) of its
batch, and its timestamp is less than 2**20 ms (17 minutes) from the batch's first timestamp. The conditions on
position and timestamp avoid up to 9 more bytes.
"""

BOUND_SPARE = RECORD_OVERHEAD - 7
"""Largest difference between the upper bound of a small record and its exact size, which has at least 7 bytes of overhead."""

HEADER_OVERHEAD = 3
"""Overhead of a header of a small record, in bytes: a value length of 2, and a share of a longer header count.

The length of the name is counted with the name.
"""

HEADER_SIZES: Memo[str, int] = Memo(lambda name: len(NAMES[name]) + HEADER_OVERHEAD)
"""Size of a header in a small record without its value, by name."""

LARGE_RECORD_OVERHEAD = 36
"""Maximum overhead of any record, in bytes, at any timestamp and position.

    length 5 + attributes 1 + timestamp delta 10 + offset delta 5 + key length 5 + value length 5 + header count 5
"""

LARGE_HEADER_OVERHEAD = 5


def record_size_bound(value: bytes | None, key: bytes | None, headers: RecordHeaders) -> int:
    """Return an upper bound of the encoded size of a record, in bytes.

    For payloads below `SMALL_PAYLOAD`, the conditions of `RECORD_OVERHEAD` apply.

    Raises: UnicodeEncodeError (a ValueError) if the name of a header holds lone surrogates.
    """
    payload = (len(value) if value else 0) + (len(key) if key else 0)
    if headers:
        payload += _headers_payload(headers)
    return _bound(payload, len(headers))


def python_sizes(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[RecordHeaders] | None,
) -> list[int]:
    """Return the `record_size_bound` of each record. The columns have equal lengths."""
    if not values:
        return []
    fields = [values] if keys is None else [values, keys]
    share = 0  # bytes that the payload of every record has
    varying: list[list[int]] = []  # further bytes of each record
    header_counts: Iterable[int] = repeat(0)
    columns = as_columns(headers) if headers else None
    if columns is not None:
        fields += [header.values for header in columns.columns if header.values is not None]
        share = _shared_payload(columns)
        header_counts = repeat(len(columns.columns))
    elif headers:
        varying.append(list(map(_headers_payload, headers)))
        header_counts = map(len, headers)
    for lengths in map(_lengths, fields):
        if lengths[0] == lengths[-1] and lengths.count(lengths[0]) == len(lengths):
            share += lengths[0]
        else:
            varying.append(lengths)
    if not varying:
        return [_bound(share, next(iter(header_counts)))] * len(values)
    payloads = reduce(lambda left, right: list(map(add, left, right)), varying)
    if max(payloads) + share < SMALL_PAYLOAD:
        overhead = share + RECORD_OVERHEAD
        return [payload + overhead for payload in payloads]
    return [_bound(payload + share, count) for payload, count in zip(payloads, header_counts)]  # noqa: B905 - `repeat` is endless


sizes: Final = fastest("sizes", python_sizes)


def python_running_totals(sizes: Sequence[int]) -> Sequence[int]:
    """Return 0, and the running totals of *sizes*."""
    return list(accumulate(sizes, initial=0))


running_totals: Final = fastest("running_totals", python_running_totals)


def _bound(payload: int, header_count: int) -> int:
    if payload < SMALL_PAYLOAD:
        return payload + RECORD_OVERHEAD
    return payload + LARGE_RECORD_OVERHEAD + (LARGE_HEADER_OVERHEAD - HEADER_OVERHEAD) * header_count


def _lengths(column: Sequence[bytes | None]) -> list[int]:
    try:
        return list(map(len, cast("Sequence[bytes]", column)))
    except TypeError:  # the column has nulls
        return [len(data or b"") for data in column]


def _headers_payload(headers: RecordHeaders) -> int:
    payload = 0
    for name, value in headers:
        payload += HEADER_SIZES[name] + (len(value) if value else 0)
    return payload


def _shared_payload(columns: HeaderColumns) -> int:
    """Return the size of the part that the headers of all records share: names, and values in common."""
    return sum([HEADER_SIZES[name] + len(value or b"") for name, value, _ in columns.columns])


BytesColumn: Final[Any] = fastest("BytesColumn", tuple)
"""An immutable column of bytes or None; without the accelerator a tuple.

`BytesColumn(validity, offsets, data, is_large, start, count)` reads the buffers of Arrow's binary and string arrays. A row costs no
Python object before its record is encoded.
"""

READS_IN_PLACE: Final = BytesColumn is not tuple
"""True if a `BytesColumn` reads the memory of Arrow arrays; False if `BytesColumn` is a tuple."""

Sequence.register(BytesColumn)


class Records(Protocol):
    """Records of a batch: `RecordColumns`, or `RecordBuffer` of the accelerator, which encodes records at their append.

    `RecordColumns` documents the members. In a RecordBuffer, `size` is exact, and `held` is the capacity of the buffer.
    """

    def __len__(self) -> int: ...
    @property
    def values(self) -> Sequence[bytes | None]: ...
    @property
    def keys(self) -> Sequence[bytes | None] | None: ...
    @property
    def headers(self) -> Sequence[RecordHeaders] | None: ...
    @property
    def timestamps(self) -> Sequence[int]: ...
    @property
    def size(self) -> int: ...
    @property
    def held(self) -> int: ...
    def sizes(self) -> list[int]: ...
    def append(
        self, value: bytes | None, key: bytes | None, headers: RecordHeaders, timestamp_ms: int, /
    ) -> object: ...
    def extend(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[RecordHeaders] | None,
        timestamps: Sequence[int] | int,
        /,
    ) -> object: ...
    def truncate(self, count: int, /) -> None: ...
    def take(self, indices: Iterable[int], /) -> Self: ...


class RecordColumns:
    """Parts of records, one list per part; `encode_batch` encodes the records.

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
        """Upper bound of the size of the batch before compression, in bytes."""
        return BATCH_OVERHEAD + sum(self.sizes())

    @property
    def held(self) -> int:
        """Bytes of `buffer_memory` that the records use: equal to `size`."""
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
        """Add a record per value; *timestamps* is a column, or one time in ms for all records.

        Raises: ValueError, without a change, if the columns have different lengths.
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
        """Keep the first *count* records. Before the call, columns may have different lengths of at least *count*."""
        for column in (self.values, self.keys, self.timestamps):
            if column is not None:
                del column[count:]
        if isinstance(self.headers, HeaderColumns):
            self.headers.truncate(count)
        elif self.headers is not None:
            del self.headers[count:]

    def take(self, indices: Iterable[int]) -> RecordColumns:
        """Return a copy of the records at *indices*, in the order of *indices*."""
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
        """Return the headers as a list, converted if necessary."""
        if self.headers is None:
            self.headers = [()] * len(self.values)
        elif isinstance(self.headers, HeaderColumns):
            self.headers = list(self.headers)
        return self.headers


open_records: Final[Callable[[], Records]] = fastest("RecordBuffer", RecordColumns)
"""Returns empty records for a new batch."""
