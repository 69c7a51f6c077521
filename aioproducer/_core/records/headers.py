"""Record headers (KIP-82): a varint count, then name and nullable value of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple, Self, TypeAlias, overload

from aioproducer._core.wire.primitives import VARINTS, Memo, varint

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""The headers of one record, in order; names may repeat (KIP-82)."""

Values: TypeAlias = Sequence[bytes | None]


class HeaderColumn(NamedTuple):
    """One header of many records."""

    name: str
    value: bytes | None
    """What all records have; to be disregarded if there are `values`."""
    values: Values | None = None
    """One per record, where they differ."""

    @classmethod
    def holding(cls, name: str, values: Values) -> Self:
        """Return the header with these values, one per record; one for all, if they are the same."""
        first = values[0]
        is_shared = first == values[-1] and values.count(first) == len(values)
        return cls(name, first) if is_shared else cls(name, None, values)

    def part(self, pick: Callable[[Values], Values]) -> HeaderColumn:
        """Return the header of some of the records; *pick* takes their values out of those of all."""
        return self if self.values is None else HeaderColumn(self.name, None, pick(self.values))

    def of(self, index: int) -> bytes | None:
        """Return the value that the record at *index* has."""
        return self.value if self.values is None else self.values[index]

    def of_each(self, count: int) -> Values:
        """Return the values one by one, of *count* records."""
        return [self.value] * count if self.values is None else self.values


class HeaderColumns(Sequence[RecordHeaders]):
    """All the headers of many records, as columns; who wants those of a single record sees a sequence of pairs.

    For records that have the same names in the same order, as most have. A column per header takes the place of a tuple
    of pairs per record: each step on the way into a batch is then one operation at C speed per header, and neither it
    nor the garbage collector meets an object per record. A header that all records have the same value of, a content
    type perhaps, is not even a column.
    """

    __slots__ = ("_count", "columns")

    columns: list[HeaderColumn]
    """In the order that they have in each record."""

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
        """Return the headers of *count* of the records; *pick* takes their values out of those of all."""
        return type(self)([column.part(pick) for column in self.columns], count)

    def behind(self, common: RecordHeaders) -> Self:
        """Return the headers of the same records with those of *common* before them."""
        return type(self)(
            [*(HeaderColumn(name, value) for name, value in common), *self.columns], self._count
        )

    def owned(self) -> Self:
        """Return the same in lists of its own, which `extend` may add to."""
        return self.part(list, self._count)

    def truncate(self, count: int) -> None:
        """Keep the headers of the first *count* records. Columns may have different lengths before the call."""
        self.columns = [column.part(lambda values: list(values[:count])) for column in self.columns]
        self._count = count

    def extend(self, other: HeaderColumns) -> bool:
        """Add the headers of more records; False, and nothing has happened, if those have other names."""
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
"""A header's name with its length: programs use few names, again and again."""


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
    """Return the encoded headers of each of at least one record; the same object again is not encoded again."""
    blocks = []
    last = headers[0]
    block = encode_headers(last)
    for record_headers in headers:
        if record_headers is not last:
            last, block = record_headers, encode_headers(record_headers)
        blocks.append(block)
    return blocks


def as_columns(headers: Sequence[RecordHeaders]) -> HeaderColumns | None:
    """Return the headers of at least one record as columns; None if not all have the same names in the same order."""
    if isinstance(headers, HeaderColumns):
        return headers
    first, count = headers[0], len(headers)
    if first is headers[-1] and headers.count(first) == count:  # the same for all; quick where they are not
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
