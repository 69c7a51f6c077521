"""Rows of a `send_many` call, and waiters of its records. The first `send_many` call imports this module."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any, Final

from aioproducer._core.acceleration import fastest
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.waiters import Delivered, Failure, Waiter
from aioproducer._core.records.columns import HeaderColumns
from aioproducer.errors.send_many import DeliveredRun, SendManyResult
from aioproducer.types import Headers


def python_split_columns(
    columns: Sequence[Sequence[Any]], chosen: Sequence[Hashable]
) -> dict[Any, list[Sequence[Any]]]:
    """Return the rows of all *columns* for each value in *chosen*, which has one value per row."""
    indices: defaultdict[Any, list[int]] = defaultdict(list)
    deque(map(list.append, map(indices.__getitem__, chosen), count()), maxlen=0)  # `deque` loops in C
    split = {}
    for each, rows in indices.items():
        pick = itemgetter(*rows) if len(rows) > 1 else partial(_only, rows[0])
        split[each] = [pick(column) for column in columns]
    return split


def _only(row: int, column: Sequence[Any]) -> Sequence[Any]:
    return (column[row],)


def _next_of(parts: Iterator[Sequence[Any]], _: Sequence[Any]) -> Sequence[Any]:
    return next(parts)


split_columns: Final = fastest("split_columns", python_split_columns)


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one `send_many` call, in columns of equal length. A column without any value is None."""

    topic: str
    positions: Sequence[int]
    """Positions of the records in the call, ascending."""
    values: Sequence[Any]
    keys: Sequence[Any] | None
    headers: Sequence[Headers] | None
    timestamps_ms: Sequence[int] | int
    """One timestamp per record, or one for all records."""
    partitions: Sequence[int | None] | int | None
    """One partition per record, or one for all records. None leaves the choice to the partitioner."""
    sizes: Sequence[int] = ()
    """Upper bounds of the encoded sizes, in bytes; empty until they are computed."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def columns(self) -> tuple[Any, ...]:
        """Values, keys, headers and timestamps."""
        return self.values, self.keys, self.headers, self.timestamps_ms

    def slice(self, start: int, stop: int) -> Rows:
        """Return the rows from *start* up to *stop*."""
        return self._each(lambda column: column[start:stop])

    def take(self, indices: Sequence[int]) -> Rows:
        """Return the rows at *indices*."""
        pick = itemgetter(*indices) if len(indices) > 1 else None
        return self._each(pick or (lambda column: [column[index] for index in indices]))

    def by_partition(self, chosen: Sequence[int]) -> dict[int, Rows]:
        """Return the rows by partition, in the order of first rows per partition; *chosen* has each row's partition."""
        columns: list[Sequence[Any]] = []

        def collect(column: Sequence[Any]) -> Sequence[Any]:
            columns.append(column)
            return column

        self._each(collect)
        by_partition = {}
        for partition, parts in split_columns(columns, chosen).items():
            by_partition[partition] = self._each(partial(_next_of, iter(parts)))  # `parts` match `columns`
        return by_partition

    def partition(self, index: int) -> int | None:
        """Return the given partition of the row at *index*; None leaves the choice to the partitioner."""
        return self.partitions[index] if isinstance(self.partitions, Sequence) else self.partitions

    def highest_partition(self) -> int | None:
        """Return the highest given partition; None if no row has a partition."""
        if isinstance(self.partitions, int) or self.partitions is None:
            return self.partitions
        return max(set(self.partitions) - {None}, default=None)  # type: ignore[type-var] # the set has no None

    def _each(self, part: Callable[[Sequence[Any]], Sequence[Any]]) -> Rows:
        values, headers = part(self.values), self.headers
        if isinstance(headers, HeaderColumns):
            headers = headers.part(part, len(values))
        elif headers is not None:
            headers = part(headers)
        return Rows(  # `replace` costs a third more time, and every batch needs a slice of the rows
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


class SendManyCall:
    """A `send_many` call: its result, and the wait for its records."""

    __slots__ = ("_done", "_outstanding", "live", "partitions", "result")

    def __init__(self, topic: str, total: int, loop: asyncio.AbstractEventLoop) -> None:
        self.result: SendManyResult = SendManyResult(topic, total)
        self.partitions: set[int] = set()
        """Partitions of the appended records."""
        self.live: dict[CallWaiters, None] = {}
        """Waiters of records without an outcome, in the order of the values."""
        self._outstanding = total
        self._done: asyncio.Future[None] = loop.create_future()
        if total == 0:
            self._done.set_result(None)

    def delivered(self, run: DeliveredRun) -> None:
        """Note the records of *run* as acknowledged."""
        self.result.add_delivered(run)
        self._count_down(len(run.positions))

    def failed(self, positions: Sequence[int], failure: Failure) -> None:
        """Note the records at *positions* as failed."""
        for position in positions:
            self.result.add_failed(position, failure.error())
        self._count_down(len(positions))

    def waiters(self, positions: Sequence[int], batch: Batch) -> CallWaiters:
        """Return the waiters for the records at *positions*, which the caller appends to *batch* next."""
        waiters = CallWaiters(self, positions, batch, len(batch.columns))
        self.live[waiters] = None
        return waiters

    async def wait(self) -> None:
        """Wait until every record is settled. A cancellation only stops the wait."""
        await asyncio.shield(self._done)

    def _count_down(self, count: int) -> None:
        self._outstanding -= count
        # An empty DeliveredRun may arrive after the last record is settled.
        if self._outstanding <= 0 and not self._done.done():
            self._done.set_result(None)


class CallWaiters:
    """Waiters of consecutive records of one `send_many` call in a batch."""

    __slots__ = ("batch", "call", "positions", "start")

    def __init__(
        self, call: SendManyCall | None, positions: Sequence[int], batch: Batch | None = None, start: int = 0
    ) -> None:
        self.call = call
        """`send_many` call of the records; None once the call has their outcome or has stopped waiting."""
        self.positions: Sequence[int] = positions
        self.batch = batch
        """Batch of the records; None once *call* is None, so that no reference cycle keeps the batch alive."""
        self.start: int = start
        """Place of the first record in the batch, valid until the first drain of the batch."""

    def __len__(self) -> int:
        return len(self.positions)

    def resolve(self, delivered: Delivered) -> None:
        """Add the acknowledged records to the call's result."""
        _, partition, base, timestamps, log_append = delivered
        if self.call is not None:
            self.call.delivered(DeliveredRun(self.positions, partition, base, timestamps, log_append))
            self._drop_call(self.call)

    def fail(self, failure: Failure) -> None:
        """Add each record to the call's failures; later outcomes are ignored."""
        if self.call is not None:
            self.call.failed(self.positions, failure)
            self._drop_call(self.call)

    def take(self, indices: Sequence[int]) -> CallWaiters:
        """Return waiters for the positions at *indices*. Once all positions are taken, these `CallWaiters` are unused."""
        taken = CallWaiters(self.call, [self.positions[index] for index in indices], self.batch)
        if self.call is not None:
            self.call.live.pop(self, None)
            self.call.live[taken] = None
        return taken

    def indices_of(self, waiter: Waiter) -> Sequence[int]:
        """Return the indices of all records if *waiter* is the call of the records, else an empty sequence."""
        return range(len(self.positions)) if self.call is waiter else ()

    @property
    def all_waiters_expired(self) -> bool:
        """True if the call has stopped waiting."""
        return self.call is None

    def _drop_call(self, call: SendManyCall) -> None:
        call.live.pop(self, None)
        self.call = self.batch = None
