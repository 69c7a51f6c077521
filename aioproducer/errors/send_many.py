"""The result of a `send_many` call, and its error."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from aioproducer.errors.base import ProducerError
from aioproducer.types import RecordMetadata


class DeliveredRun(NamedTuple):
    """Consecutive records of one batch, all from one call."""

    positions: Sequence[int]
    """Positions of the records in the call, ascending."""
    partition: int
    base_offset: int
    """Offset of the first record; -1 if unknown."""
    timestamps_ms: Sequence[int]
    log_append_time: bool


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of acknowledged records of one partition. Records of other calls may lie between the offsets."""

    first: int
    """Lowest offset; -1 if all offsets are unknown."""
    last: int
    """Highest offset; -1 if all offsets are unknown."""
    count: int
    """Number of records, including records with unknown offsets."""

    def joined(self, other: OffsetRange) -> OffsetRange:
        """Return the range of the records of this range and of *other*."""
        first = min(self.first, other.first)
        if first < 0:
            first = max(self.first, other.first)
        return OffsetRange(first, max(self.last, other.last), self.count + other.count)


class SendManyResult:
    """The outcome of one `send_many` call, stored per batch and computed per record on access.

    `len(result)` is the number of records. Iteration yields the `RecordMetadata` or the `ProducerError` of each record,
    by position.
    """

    __slots__ = ("_failures", "_runs", "_total", "_unfolded", "topic")

    def __init__(self, topic: str, total: int) -> None:
        self.topic: str = topic
        self._total = total
        self._runs: list[DeliveredRun] = []
        self._failures: dict[int, ProducerError] = {}
        self._unfolded: tuple[array[int], array[int]] | None = None

    def __len__(self) -> int:
        return self._total

    def __repr__(self) -> str:
        return (
            f"<SendManyResult topic={self.topic!r} delivered={self.delivered} failed={len(self._failures)}>"
        )

    def __iter__(self) -> Iterator[RecordMetadata | ProducerError]:
        for position in range(self._total):
            yield self._failures.get(position) or self._metadata(position)

    @property
    def delivered(self) -> int:
        """Number of acknowledged records."""
        return sum(len(run.positions) for run in self._runs)

    @property
    def failures(self) -> Mapping[int, ProducerError]:
        """Errors of the failed records by position, in ascending order."""
        return MappingProxyType(dict(sorted(self._failures.items())))

    def partition(self, position: int) -> int:
        """Return the partition of the record at *position*.

        Raises: the error of a failed record; IndexError.
        """
        return self._metadata(self._checked(position)).partition

    def offset(self, position: int) -> int:
        """Return the offset of the record at *position*; -1 if the offset is unknown.

        Raises: the error of a failed record; IndexError.
        """
        return self._metadata(self._checked(position)).offset

    def offset_ranges(self) -> dict[int, OffsetRange]:
        """Return the offsets of the acknowledged records by partition, computed per batch."""
        ranges: dict[int, OffsetRange] = {}
        for run in self._runs:
            count, first = len(run.positions), run.base_offset
            more = OffsetRange(first, first + count - 1 if first >= 0 else -1, count)
            known = ranges.get(run.partition)
            ranges[run.partition] = more if known is None else known.joined(more)
        return ranges

    def add_delivered(self, run: DeliveredRun) -> None:
        """Add the acknowledged records of *run*."""
        self._runs.append(run)
        self._unfolded = None

    def add_failed(self, position: int, error: ProducerError) -> None:
        """Add the failure of the record at *position*."""
        self._failures[position] = error

    def raise_failures(self) -> None:
        """Raise SendManyError if any record failed."""
        if not self._failures:
            return
        first = min(self._failures)
        error = self._failures[first]
        message = (
            f"{len(self._failures):,} of {self._total:,} records for {self.topic!r} failed; "
            f"the first, at position {first}: {type(error).__name__}: {error}"
        )
        failures = self._failures.values()
        raised = SendManyError(
            message,
            result=self,
            possibly_persisted=any(failure.possibly_persisted for failure in failures),
            retriable=any(failure.retriable for failure in failures),
        )
        raised.fatal = any(failure.fatal for failure in failures)
        raised.abortable = not raised.fatal and any(failure.abortable for failure in failures)
        raise raised from error

    def _checked(self, position: int) -> int:
        if not -self._total <= position < self._total:
            raise IndexError(f"position {position} is outside the {self._total} records of this call")
        position %= self._total
        if position in self._failures:
            raise self._failures[position]
        return position

    def _metadata(self, position: int) -> RecordMetadata:
        run_of, index_of = self._unfold()
        run = self._runs[run_of[position]]
        index = index_of[position]
        offset = run.base_offset + index if run.base_offset >= 0 else -1
        return RecordMetadata(
            self.topic, run.partition, offset, run.timestamps_ms[index], run.log_append_time
        )

    def _unfold(self) -> tuple[array[int], array[int]]:
        """Return the number of the run, and the index in the run, of each position."""
        if self._unfolded is None:
            run_of, index_of = array("q", bytes(8 * self._total)), array("q", bytes(8 * self._total))
            for number, run in enumerate(self._runs):
                for index, position in enumerate(run.positions):
                    run_of[position] = number
                    index_of[position] = index
            self._unfolded = run_of, index_of
        return self._unfolded


class SendManyError(ProducerError):
    """Some records of a `send_many` call failed. `result` has the errors, and the offsets of the other records.

    `possibly_persisted`, `retriable` and `fatal` are True if they are True for any failed record. `abortable` is True
    if it is True for any failed record and `fatal` is False.
    """

    def __init__(
        self,
        message: str,
        *,
        result: SendManyResult,
        possibly_persisted: bool = False,
        retriable: bool = False,
    ) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted)
        self.retriable = retriable
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy with the result as a keyword argument."""
        return partial(type(self), result=self.result), self.args, self.__dict__
