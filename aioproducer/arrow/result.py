"""The result of `send_table`: rows that were delivered, and rows that failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from aioproducer.errors import ProducerError
from aioproducer.errors.send_many import OffsetRange
from aioproducer.types import TopicPartition

_KEPT: Final = 100
"""Maximum number of failures that an error keeps: those of the first rows."""
_row_of: Final = attrgetter("row")


@dataclass(frozen=True, slots=True)
class TableResult:
    """The acknowledged rows of a `send_table` call."""

    rows: int
    bytes: int
    """Size of keys and values before compression."""
    offsets: Mapping[TopicPartition, OffsetRange]
    """Offsets of the records by `TopicPartition`; a tuple (topic, partition) works as a key."""


class RowFailure(NamedTuple):
    """A row that was not acknowledged."""

    row: int
    """Index of the row in the whole input, from 0."""
    topic: str | None
    partition: int | None
    """None if the partitioner chooses the partition."""
    error: Exception


class SendTableError(ProducerError):
    """Rows of a `send_table` call failed; later rows may be unread.

    `row`, `topic` and `partition` (None if unknown) describe the first failed row; its error is the `__cause__`.
    `failures` maps the first hundred failed rows to their errors. `result` has the acknowledged rows.
    `possibly_persisted` and `retriable` are True if they are True for any failed row.
    """

    def __init__(
        self,
        message: str,
        *,
        first: RowFailure,
        failures: Mapping[int, Exception],
        result: TableResult,
        possibly_persisted: bool = False,
        retriable: bool = False,
    ) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted)
        self._first = first
        self.row: int = first.row
        self.topic: str | None = first.topic
        self.partition: int | None = first.partition
        self.failures = failures
        self.result = result
        self.retriable = retriable

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy with keyword arguments."""
        named = partial(type(self), first=self._first, failures=self.failures, result=self.result)
        return named, self.args, self.__dict__


@dataclass(slots=True)
class RowsOutcome:
    """Outcome of some rows. The outcomes of several batches can be added."""

    rows: int = 0
    """Number of acknowledged rows."""
    bytes: int = 0
    """Size of the keys and values of acknowledged rows, in bytes."""
    offsets: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    failures: list[RowFailure] = field(default_factory=list)
    """Failures in the order of their rows."""
    failed: int = 0
    """Number of failed rows."""
    possibly_persisted: bool = False
    """True if any failed row may be in the log."""
    retriable: bool = False
    """True if a retry of any failed row may succeed."""

    @classmethod
    def of_failures(cls, failures: list[RowFailure]) -> RowsOutcome:
        """Return the outcome of failed rows."""
        errors = [each.error for each in failures]
        return cls(
            failures=sorted(failures, key=_row_of),
            failed=len(failures),
            possibly_persisted=any(getattr(error, "possibly_persisted", False) for error in errors),
            retriable=any(getattr(error, "retriable", False) for error in errors),
        )

    def add(self, other: RowsOutcome) -> None:
        """Add the outcome of other rows."""
        self.rows += other.rows
        self.bytes += other.bytes
        for where, more in other.offsets.items():
            known = self.offsets.get(where)
            self.offsets[where] = more if known is None else known.joined(more)
        if other.failures:
            self.failures = sorted([*self.failures, *other.failures], key=_row_of)
        self.failed += other.failed
        self.possibly_persisted |= other.possibly_persisted
        self.retriable |= other.retriable

    def result(self) -> TableResult:
        """Return the acknowledged rows.

        Raises: SendTableError if any row failed.
        """
        result = TableResult(self.rows, self.bytes, dict(self.offsets))
        if not self.failures:
            return result
        # If a broker refuses some rows of a batch, a transaction fails all rows: the refused rows have the reason.
        refused = (each for each in self.failures if getattr(each.error, "_is_of_record", False))
        first = next(refused, self.failures[0])
        others = f"; {self.failed - 1:,} more rows failed" if self.failed > 1 else ""
        raise SendTableError(
            f"row {first.row:,}{_place(first)}: {type(first.error).__name__}: {first.error}"
            f"{others}; {self.rows:,} were acknowledged",
            first=first,
            failures={each.row: each.error for each in self.failures[:_KEPT]},
            result=result,
            possibly_persisted=self.possibly_persisted,
            retriable=self.retriable,
        ) from first.error


def _place(failure: RowFailure) -> str:
    if failure.topic is None:
        return ""
    partition = "" if failure.partition is None else f", partition {failure.partition}"
    return f" (topic {failure.topic!r}{partition})"
