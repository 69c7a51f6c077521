"""The headers of many records that have the same names in the same order, as most have.

A column per header takes the place of a tuple of pairs per record: each step on the way into a batch is then one
operation at C speed per header, and neither it nor the garbage collector meets an object per record. A header
that all records have the same value of, a content type perhaps, is not even a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple, Self, TypeAlias, overload

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
    """All the headers of many records, as columns; who wants those of a single record sees a sequence of pairs."""

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
