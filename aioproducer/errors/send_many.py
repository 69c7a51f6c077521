"""The outcome of a `send_many` call, and the error that carries it."""

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
    """Consecutive records of one batch that came from one call."""

    positions: Sequence[int]
    """Where they were in the call, ascending."""
    partition: int
    base_offset: int
    """The first one's offset, or -1."""
    timestamps_ms: Sequence[int]
    log_append_time: bool


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Where acknowledged records of one partition are; those of others may lie between them."""

    first: int
    """The lowest offset; -1 if none is known."""
    last: int
    """The highest one."""
    count: int
    """How many records, those of unknown offsets too."""

    def joined(self, other: OffsetRange) -> OffsetRange:
        """Return the range of both."""
        first = min(self.first, other.first)
        if first < 0:
            first = max(self.first, other.first)
        return OffsetRange(first, max(self.last, other.last), self.count + other.count)


class SendManyResult:
    """The outcome of one `send_many` call, kept per batch and unfolded per record when asked.

    `len(result)` is the number of values given. Iterating yields, per position, the record's
    `RecordMetadata` or the `ProducerError` that it failed with.
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
        """How many records were acknowledged."""
        return sum(len(run.positions) for run in self._runs)

    @property
    def failures(self) -> Mapping[int, ProducerError]:
        """The failed records by position, in order."""
        return MappingProxyType(dict(sorted(self._failures.items())))

    def partition(self, position: int) -> int:
        """Return the partition of the record at *position*.

        Raises: the record's error if it failed; IndexError.
        """
        return self._metadata(self._checked(position)).partition

    def offset(self, position: int) -> int:
        """Return the offset of the record at *position*; -1 if it was delivered at an unknown one.

        Raises: the record's error if it failed; IndexError.
        """
        return self._metadata(self._checked(position)).offset

    def offset_ranges(self) -> dict[int, OffsetRange]:
        """Return where the acknowledged records are, by partition, without a look at each of them."""
        ranges: dict[int, OffsetRange] = {}
        for run in self._runs:
            count, first = len(run.positions), run.base_offset
            more = OffsetRange(first, first + count - 1 if first >= 0 else -1, count)
            known = ranges.get(run.partition)
            ranges[run.partition] = more if known is None else known.joined(more)
        return ranges

    def add_delivered(self, run: DeliveredRun) -> None:
        """Note that the records of *run* were acknowledged."""
        self._runs.append(run)
        self._unfolded = None

    def add_failed(self, position: int, error: ProducerError) -> None:
        """Note that the record at *position* failed."""
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
        """Return, per position, the number of its run and its index in that run."""
        if self._unfolded is None:
            run_of, index_of = array("q", bytes(8 * self._total)), array("q", bytes(8 * self._total))
            for number, run in enumerate(self._runs):
                for index, position in enumerate(run.positions):
                    run_of[position] = number
                    index_of[position] = index
            self._unfolded = run_of, index_of
        return self._unfolded


class SendManyError(ProducerError):
    """Some records of a `send_many` call failed; `result` tells which, why, and where the others are.

    `possibly_persisted`, `retriable` and `fatal` are each true if true of any failed record; so is `abortable`, unless
    it is `fatal`.
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
        """Pickle and copy: the class takes its result by name only."""
        return partial(type(self), result=self.result), self.args, self.__dict__
