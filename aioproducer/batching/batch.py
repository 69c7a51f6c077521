"""A batch: the records of one partition that travel, succeed and fail together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aioproducer.batching.acknowledgement import Acknowledgement
from aioproducer.batching.failure import Failure
from aioproducer.batching.runs import AwaitedRun, Delivered, FutureRun, Run, Waiter
from aioproducer.batching.state import LEGAL, RESOLVED, BatchState
from aioproducer.errors import ProducerError
from aioproducer.idempotence.sequences import Stamp
from aioproducer.records.columns import RecordColumns
from aioproducer.records.sizes import BATCH_OVERHEAD, sizes
from aioproducer.types import RecordMetadata

if TYPE_CHECKING:
    from aioproducer.batching.queues import PartitionQueue

Order = tuple[int, ...]
"""Where a batch stands among its partition's: `(5,) < (5, 0) < (5, 1) < (6,)`, so that the children of
a split batch stand where it stood."""

RecordFuture = asyncio.Future[RecordMetadata]


class Batch:
    """Records as columns, the runs of who waits for them, and where the batch is in its life."""

    __slots__ = (
        "_resolved",
        "attempts",
        "columns",
        "created_at",
        "deadline",
        "due",
        "encoded",
        "encoded_stamp",
        "gaps_told",
        "last_error",
        "order",
        "queue",
        "retries",
        "retry_at",
        "runs",
        "size",
        "stamp",
        "stamped_before",
        "state",
        "successors",
        "torn",
        "unanswered",
        "uncertain",
        "waiters",
        "waits",
    )

    def __init__(
        self,
        queue: PartitionQueue,
        order: Order,
        *,
        created_at: float,
        deadline: float,
        columns: RecordColumns | None = None,
        runs: list[Run] | None = None,
        state: BatchState = BatchState.OPEN,
    ) -> None:
        self.queue: PartitionQueue = queue
        self.order: Order = order
        self.columns: RecordColumns = RecordColumns() if columns is None else columns
        self.runs: list[Run] = [] if runs is None else runs
        self.waits: type[RecordFuture | Acknowledgement] | None = None
        """What the last run is of, if a single record may join it: the append path does so without a call."""
        self.waiters: list[Any] = []
        """Those of the last run then."""
        self.size: int = BATCH_OVERHEAD
        """Upper bound of the encoded size before compression; what the batch holds of the byte budget."""
        self.state: BatchState = state
        self.due: bool = False
        """Whether it need not wait for more records."""
        self.created_at: float = created_at
        self.deadline: float = deadline
        self.attempts: int = 0
        """How often it was drained, by itself or as part of a batch that was split."""
        self.retries: int = 0
        """How often it was put back to be sent again; a split is no retry."""
        self.retry_at: float = 0.0
        self.stamp: Stamp | None = None
        """The sequence it holds; None before the first drain, and after the broker refused it for its sequence."""
        self.stamped_before: int = 0
        """How many batches of its partition got a sequence before it."""
        self.encoded: bytearray | None = None
        """What is written; kept for resending, made at the first drain."""
        self.encoded_stamp: Stamp | None = None
        """The sequence in `encoded`."""
        self.unanswered: bool = False
        """Whether it was handed to a socket and its answer is still to come."""
        self.uncertain: bool = False
        """Whether an attempt may have reached the log. Sticky: a later refusal says nothing of an earlier attempt."""
        self.torn: bool = False
        """Whether it is a part of a batch that may be in the log whole: there the leader does not recognise it."""
        self.gaps_told: int = 0
        """How often in a row the broker has missed one before it, which may indeed not be in the log."""
        self.last_error: ProducerError | None = None
        self.successors: Sequence[Batch] = ()
        """The batches that took over its records."""
        self._resolved: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        return f"<Batch {self.queue} {self.order} {self.state.name} records={len(self)} stamp={self.stamp}>"

    def move(self, to: BatchState) -> None:
        """Enter *to*, or raise AssertionError: an illegal move is our bug, never the user's."""
        if to not in LEGAL[self.state]:
            # not an assert statement: it has to survive python -O
            raise AssertionError(f"batch may not go {self.state.name} -> {to.name}")
        self.state = to
        if self._resolved is not None and to in RESOLVED and not self._resolved.done():
            self._resolved.set_result(None)

    @property
    def possibly_persisted(self) -> bool:
        """Whether it may be in the log."""
        return self.uncertain or self.unanswered

    def add_waiter(self, waiter: RecordFuture | Acknowledgement) -> None:
        """Let *waiter* wait for the record just appended; begins a run of its kind if need be."""
        if type(waiter) is not self.waits:
            self.waits, self.waiters = type(waiter), []
            self.runs.append(
                AwaitedRun(self.waiters)
                if issubclass(self.waits, Acknowledgement)
                else FutureRun(self.waiters)
            )
        self.waiters.append(waiter)

    def add_run(self, run: Run) -> None:
        """Let *run* wait for the records just appended."""
        self.runs.append(run)
        self.waits = None

    def resolve(self, base_offset: int, log_append_time_ms: int) -> None:
        """Tell every waiter where its record is; *log_append_time_ms* is -1 for create time."""
        log_append = log_append_time_ms >= 0
        timestamps = [log_append_time_ms] * len(self) if log_append else self.columns.timestamps
        topic, partition = self.queue.topic, self.queue.partition
        delivered = Delivered(topic, partition, base_offset, timestamps, log_append)
        if len(self.runs) == 1:
            self.runs[0].deliver(delivered)
            return
        start = 0
        for run in self.runs:
            stop = start + len(run)
            run.deliver(delivered.slice(start, stop))
            start = stop

    def indices_of(self, waiter: Waiter) -> list[int]:
        """Return which records *waiter* waits for."""
        indices: list[int] = []
        start = 0
        for run in self.runs:
            indices.extend(start + index for index in run.indices_of(waiter))
            start += len(run)
        return indices

    def holds(self, waiter: Waiter) -> bool:
        """Whether *waiter* waits for any of its records."""
        return any(run.indices_of(waiter) for run in self.runs)

    def detach(self, waiter: Waiter, failure: Failure) -> None:
        """Tell *waiter* that its records failed, and it alone: they stay in the batch."""
        for run in self.runs:
            run.detach(waiter, failure)

    def drop(self, indices: Sequence[int]) -> list[Run]:
        """Take the records at *indices* (ascending) out, as if they had never been appended; return their runs."""
        dropped, gone = self.take_runs(indices), set(indices)
        kept = [index for index in range(len(self)) if index not in gone]
        self.runs = self.take_runs(kept)
        self.waits = None
        self.columns = self.columns.take(kept)
        columns = self.columns
        self.size = BATCH_OVERHEAD + sum(sizes(columns.values, columns.keys, columns.headers))
        return dropped

    def take_runs(self, indices: Sequence[int]) -> list[Run]:
        """Return runs for the records at *indices* (ascending) only."""
        taken: list[Run] = []
        start = position = 0
        for run in self.runs:
            stop = start + len(run)
            local: list[int] = []
            while position < len(indices) and indices[position] < stop:
                local.append(indices[position] - start)
                position += 1
            if local:
                taken.append(run.take(local))
            start = stop
        return taken

    async def wait_resolved(self) -> None:
        """Wait until every record in it is acknowledged or has failed. Cancelling only stops the waiting."""
        if self.state not in RESOLVED:
            if self._resolved is None:
                self._resolved = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._resolved)
        for successor in self.successors:
            await successor.wait_resolved()


class Appended(NamedTuple):
    """A record that has found its place."""

    future: RecordFuture
    batch: Batch
