"""Many records on their way into batches, as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from aioproducer.records.header_columns import HeaderColumns
from aioproducer.types import Headers


@dataclass(frozen=True, slots=True)
class Rows:
    """Some records of one call; columns of equal length, None where no record has any."""

    topic: str
    positions: Sequence[int]
    """Where in the call they are, ascending."""
    values: Sequence[Any]
    keys: Sequence[Any] | None
    headers: Sequence[Headers] | None
    timestamps_ms: Sequence[int] | int
    """One each, or one for all."""
    partitions: Sequence[int | None] | int | None
    """One each (None where the partitioner chooses), one for all, or None for the partitioner."""
    sizes: Sequence[int] = ()
    """Upper bounds of the encoded sizes, once they are known."""

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int) -> Rows:
        """Return the rows from *start* up to *stop*."""
        return self._each(lambda column: column[start:stop])

    def take(self, indices: Sequence[int]) -> Rows:
        """Return the rows at *indices*."""
        pick = itemgetter(*indices) if len(indices) > 1 else None
        return self._each(pick or (lambda column: [column[index] for index in indices]))

    def partition(self, index: int) -> int | None:
        """Return the partition that the row at *index* asks for."""
        return self.partitions[index] if isinstance(self.partitions, Sequence) else self.partitions

    def highest_partition(self) -> int | None:
        """Return the highest partition that is asked for by number."""
        if isinstance(self.partitions, int) or self.partitions is None:
            return self.partitions
        return max(set(self.partitions) - {None}, default=None)  # type: ignore[type-var] # None is not among them

    def _each(self, part: Callable[[Sequence[Any]], Sequence[Any]]) -> Rows:
        values, headers = part(self.values), self.headers
        if isinstance(headers, HeaderColumns):
            headers = headers.part(part, len(values))
        elif headers is not None:
            headers = part(headers)
        return Rows(  # not `replace`, which takes a third longer: there is a slice for every batch
            self.topic,
            part(self.positions),
            values,
            None if self.keys is None else part(self.keys),
            headers,
            self.timestamps_ms if isinstance(self.timestamps_ms, int) else part(self.timestamps_ms),
            self.partitions
            if self.partitions is None or isinstance(self.partitions, int)
            else part(self.partitions),
            part(self.sizes) if self.sizes else (),
        )
