"""A batch: records of one partition that are sent and settled together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Any, Final, TypeAlias

from aioproducer._core.acceleration import BatchFields, new_tuple, untracking
from aioproducer._core.batching.batch_state import RESOLVED, After, BatchEvent, BatchState
from aioproducer._core.batching.waiters import Delivered, Kind, Waiter, Waiters
from aioproducer._core.idempotence import BatchSequence, Persistence
from aioproducer._core.records.columns import BATCH_OVERHEAD, RecordColumns, Records
from aioproducer._core.records.record_batch import Encoded
from aioproducer.errors import BrokerError, ProducerError
from aioproducer.types import RecordMetadata, TopicPartition

Order = tuple[int, ...]
"""Position of a batch in its partition. `(5,) < (5, 0) < (5, 1) < (6,)`: parts keep the position of a split batch."""

RecordFuture = asyncio.Future[RecordMetadata]

Place: TypeAlias = "tuple[Batch, int]"
"""A batch, and the index of a record in it; the index is valid until the first drain."""

_SEALED = BatchState.SEALED
"""State of a sealed batch as a global: before Python 3.12, looking up a member of an Enum costs more than a call."""
_SEAL, _DRAIN, _ACKNOWLEDGE = After(BatchEvent.SEAL), After(BatchEvent.DRAIN), After(BatchEvent.ACKNOWLEDGE)
_RETRY, _RENUMBER, _SPLIT = After(BatchEvent.RETRY), After(BatchEvent.RENUMBER), After(BatchEvent.SPLIT)
_EXPIRE, _FAIL = After(BatchEvent.EXPIRE), After(BatchEvent.FAIL)


_new_persistence: Final = untracking(Persistence)


class Batch(BatchFields):
    """Records of one partition, their waiters, and the state of the batch.

    Only methods of the batch write fields of the batch, one method per event, with two exceptions: the append path fills an
    open batch without a call per record, and `persistence` is notified when the batch is written or answered.
    """

    __slots__ = (
        "_resolved",
        "attempts",
        "created_at",
        "deadline",
        "encoded",
        "encoded_sequence",
        "joins_until",
        "last_error",
        "numbered_before",
        "order",
        "persistence",
        "plain_kind",
        "rate",
        "ready",
        "retries",
        "retry_at",
        "sequence",
        "state",
        "stretches",
        "successors",
        "topic_partition",
        "withdrawn",
    )

    def __init__(  # noqa: PLR0917 - by position: names would cost a dict per batch
        self,
        topic_partition: TopicPartition,
        order: Order,
        created_at: float,
        deadline: float,
        limit: int = 0,
        rate: float = 1.0,
        joins_until: float = inf,
        ready: bool = False,  # noqa: FBT001, FBT002 - by position: names would cost a dict
        columns: Records | None = None,
        *,
        stretches: list[Waiters] | None = None,
        state: BatchState = BatchState.OPEN,
    ) -> None:
        self.topic_partition: TopicPartition = topic_partition
        self.order: Order = order
        self.columns: Any = RecordColumns() if columns is None else columns
        self.stretches: list[Waiters] = [] if stretches is None else stretches
        """Waiters of the records: one object per stretch of records with one kind of waiter."""
        self.withdrawn: set[int] | None = None
        """Indices of records withdrawn before the first drain; None without withdrawn records."""
        self.kind: Kind[Any] | None = None
        """Kind of the last stretch if a single record may join that stretch, else None."""
        self.plain_kind: Kind[Any] | None = None
        """`kind` for `append_to_open`; None for a buffer, or columns with a key or headers."""
        self.last: Any = None
        """Last stretch, if `kind` is not None."""
        self.size: int = BATCH_OVERHEAD
        """Encoded size before compression, in bytes; an upper bound for columns."""
        self.held: int = BATCH_OVERHEAD
        """Bytes of `buffer_memory` held by the batch: the capacity of a RecordBuffer, or the size of columns."""
        self.rate: float = rate
        """Estimated ratio of the sent size to `size`."""
        self.limit: int = limit
        """Size at which an open batch leaves the fast append path, in bytes; 0 closes the batch to new calls."""
        self.joins_until: float = joins_until
        """Latest time of a call that may join the open batch (loop clock). All records share the deadline of the oldest call."""
        self.state: BatchState = state
        self.ready: bool = ready
        """True once the batch may be sent."""
        self.created_at: float = created_at
        self.deadline: float = deadline
        self.attempts: int = 0
        """Number of drains, including the drains of the batch before a split."""
        self.retries: int = 0
        """Number of retries; a split does not count."""
        self.retry_at: float = 0.0
        self.sequence: BatchSequence | None = None
        """Sequence of the batch; None before the first drain and after `renumber`."""
        self.numbered_before: int = 0
        """Number of batches of the partition that got a sequence earlier."""
        self.encoded: Encoded | None = None
        """Encoded batch, created at the first drain and kept for retries."""
        self.encoded_sequence: BatchSequence | None = None
        """The sequence in `encoded`."""
        self.persistence: Persistence = _new_persistence()
        """Evidence for or against the batch being in the log."""
        self.last_error: ProducerError | None = None
        self.successors: Sequence[Batch] = ()
        """Batches with the records of this split batch."""
        self._resolved: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Return the number of records that are not withdrawn; equals `len(batch.columns)` after the drain."""
        return len(self.columns) - len(self.withdrawn or ())

    def __repr__(self) -> str:
        return f"<Batch {self.topic_partition} {self.order} {self.state.name} records={len(self)} sequence={self.sequence}>"

    def bytes_to_send(self) -> int:
        """Return the size in a request, in bytes; an estimate before the batch is encoded."""
        if self.encoded is not None:
            return len(self.encoded)
        return self.size if self.rate == 1.0 else int(self.size * self.rate)  # no codec: the rate is 1

    @property
    def possibly_persisted(self) -> bool:
        """True if the batch may be in the log."""
        return self.persistence.possibly_persisted

    # --- events -------------------------------------------------------------------------------------

    def mark_ready(self) -> None:
        """Let the batch be sent without further records."""
        self.ready = True

    def set_limit(self, limit: int) -> None:
        """Set the limit of the batch to *limit* bytes."""
        self.limit = limit

    def join_by(self, until: float) -> None:
        """End the join window at *until* (loop clock), if *until* is earlier than the present end."""
        self.joins_until = min(self.joins_until, until)

    def seal(self) -> None:
        """Accept no more records, and let the batch be sent."""
        if self.state is not _SEALED:
            self.state = _SEAL[self.state]
        self.ready = True

    def assign_sequence(self, sequence: BatchSequence, numbered_before: int) -> None:
        """Set the sequence; *numbered_before* batches of the partition got a sequence earlier."""
        self.sequence = sequence
        self.numbered_before = numbered_before

    def drain(self) -> None:
        """Note that the sender takes the batch."""
        self.state = _DRAIN[self.state]
        self.attempts += 1

    def keep_encoded(self, encoded: Encoded) -> None:
        """Keep the encoded batch, and the present sequence of the batch."""
        self.encoded = encoded
        self.encoded_sequence = self.sequence

    def release(self) -> None:
        """Drop the waiters and the encoded batch, because the batch is not sent again."""
        self.encoded = None
        self.stretches = []  # the statements of `drop_waiters`, without a call
        self.kind = self.plain_kind = self.last = None

    def refused(self, error: BrokerError, *, was_next: bool, newest: bool = True) -> None:
        """Note the broker's *error*; `Persistence.refused` documents *was_next* and *newest*."""
        self.persistence.refused(type(error), was_next=was_next, newest=newest)
        self.last_error = error

    def connection_lost(self, error: ProducerError, *, reached_socket: bool) -> None:
        """Note that no response will arrive. *reached_socket*: the socket may have sent bytes of the request."""
        self.persistence.connection_lost(reached_socket=reached_socket)
        self.last_error = error

    def acknowledge(self) -> None:
        """Note that the broker has acknowledged the batch."""
        self.state = _ACKNOWLEDGE[self.state]
        if self._resolved is not None:
            self._end()

    def retry(self, at: float) -> None:
        """Requeue the batch, sequence unchanged, for a retry at *at* (loop clock) at the earliest."""
        self.state = _RETRY[self.state]
        self.back_off(at)

    def give_back(self) -> None:
        """Requeue the batch, sequence unchanged and without counting a retry, because the batch was never written."""
        self.state = _RETRY[self.state]

    def renumber(self) -> None:
        """Requeue the batch, which is certainly not in the log, without a sequence."""
        self.state = _RENUMBER[self.state]
        self.sequence = None

    def back_off(self, at: float) -> None:
        """Count a retry that begins at *at* (loop clock) at the earliest."""
        self.retries += 1
        self.retry_at = at

    def retry_by(self, at: float) -> None:
        """Move the retry forward to *at* (loop clock), if *at* is earlier than `retry_at`."""
        self.retry_at = min(self.retry_at, at)

    def expire_by(self, deadline: float) -> None:
        """Move the deadline forward to *deadline* (loop clock), if *deadline* is earlier than the present deadline."""
        self.deadline = min(self.deadline, deadline)

    def postpone(self, deadline: float) -> None:
        """Set the deadline to *deadline* (loop clock)."""
        self.deadline = deadline

    def expire(self) -> None:
        """Abandon the batch: its records have failed while its request is in flight."""
        self.state = _EXPIRE[self.state]
        self._end()

    def fail(self) -> None:
        """Note that the batch has failed for good."""
        self.state = _FAIL[self.state]
        self._end()
        if self.withdrawn:
            self.leave_out_withdrawn()

    def abandon(self) -> None:
        """Mark the batch as failed in any state, also after an internal error."""
        self.state = BatchState.FAILED
        self.successors = ()
        self._end()

    def split(self, parts: Sequence[Batch]) -> None:
        """Hand the records over to *parts*."""
        self.state = _SPLIT[self.state]
        self._end()
        self.successors = parts
        self.drop_waiters()  # the parts have the waiters, which refer to their batch

    def part(
        self, indices: Sequence[int], number: int, state: BatchState, *, sequence: BatchSequence | None = None
    ) -> Batch:
        """Return a batch of the records at *indices* (ascending), in *state* and at this batch's position.

        *number* is the number of the part, *sequence* the part's share of this batch's sequences, or None.
        """
        columns = self.columns.take(indices)
        part = Batch(
            self.topic_partition,
            (*self.order, number),
            created_at=self.created_at,
            deadline=self.deadline,
            columns=columns,
            stretches=self.take_waiters(indices),
            state=state,
        )
        part.ready = True
        part.size, part.held = columns.size, columns.held
        part.attempts = self.attempts
        part.retries = self.retries
        part.sequence = sequence
        part.numbered_before = self.numbered_before
        part.persistence = self.persistence.of_part(keeps_sequence=sequence is not None)
        part.last_error = self.last_error
        return part

    def _end(self) -> None:
        if self._resolved is not None and not self._resolved.done():
            self._resolved.set_result(None)

    # --- records and waiters ---------------------------------------------------------------------

    def begin_stretch(self, kind: Kind[Any]) -> None:
        """Begin a stretch of *kind* for single records."""
        stretch = kind.stretch()
        self.stretches.append(stretch)
        self.last = stretch
        columns = self.columns
        if isinstance(columns, RecordColumns) and columns.keys is None and columns.headers is None:
            self.plain_kind = kind
        self.kind = kind

    def add_waiters(self, waiters: Waiters) -> None:
        """Add *waiters* for the records just appended."""
        self.stretches.append(waiters)
        self._end_stretch()

    def drop_waiters(self) -> None:
        """Drop the settled waiters, so a traceback that leads to the batch keeps no task alive."""
        self.stretches = []
        self._end_stretch()

    def _end_stretch(self) -> None:
        self.kind = self.plain_kind = self.last = None

    def repair(self) -> None:
        """Drop records without a waiter, whose append an exception interrupted."""
        self.stretches = [each for each in self.stretches if len(each)]
        self.columns.truncate(sum(map(len, self.stretches)))
        self.size, self.held = self.columns.size, self.columns.held
        if self.withdrawn and isinstance(self.columns, RecordColumns):
            self.size -= sum(self.columns.take(self.withdrawn).sizes())
            self.held = self.size

    def resolve(self, base_offset: int, log_append_time_ms: int) -> None:
        """Settle every waiter with its record's metadata; *log_append_time_ms* is -1 for create time."""
        log_append = log_append_time_ms >= 0
        timestamps = [log_append_time_ms] * len(self) if log_append else self.columns.timestamps
        # An index costs a fifth of unpacking a NamedTuple.
        topic, partition = self.topic_partition[0], self.topic_partition[1]
        # `new_tuple` is Delivered(…) without its frame.
        delivered = new_tuple(Delivered, (topic, partition, base_offset, timestamps, log_append))
        if len(self.stretches) == 1:
            self.stretches[0].resolve(delivered)
            return
        start = 0
        for each in self.stretches:
            stop = start + len(each)
            each.resolve(delivered.slice(start, stop))
            start = stop

    def indices_of(self, waiter: Waiter) -> list[int]:
        """Return the indices of the records of *waiter*."""
        indices: list[int] = []
        start = 0
        for each in self.stretches:
            indices.extend(start + index for index in each.indices_of(waiter))
            start += len(each)
        return indices

    @property
    def all_waiters_expired(self) -> bool:
        """True if all calls that sent records of the batch have failed at their own deadlines."""
        return all(each.all_waiters_expired for each in self.stretches)

    def withdraw(self, indices: Sequence[int], records: Records) -> int:
        """Mark the *records* at *indices* as withdrawn; the first drain removes them. Return the freed memory in bytes."""
        self.withdrawn = self.withdrawn or set()
        self.withdrawn.update(indices)
        if not isinstance(records, RecordColumns):
            return 0  # the buffer holds the records until the drain
        size = sum(records.sizes())
        self.size -= size
        self.held = self.size
        return size

    def leave_out_withdrawn(self) -> None:
        """Remove the withdrawn records and their waiters, in one pass."""
        withdrawn, self.withdrawn = self.withdrawn or (), None
        kept = [index for index in range(len(self.columns)) if index not in withdrawn]
        self.stretches = self.take_waiters(kept)
        self._end_stretch()
        self.columns = self.columns.take(kept)
        if not isinstance(self.columns, RecordColumns):
            self.size = self.columns.size

    def extend(self, rows: Sequence[Any], size: int, limit: int, free: int) -> int:
        """Add *rows* (`Rows.columns`) of at most *size* bytes, up to *limit*; return the growth of `held`, at most *free*."""
        columns = self.columns
        if isinstance(columns, RecordColumns):
            columns.extend(*rows)
            self.size = self.held = self.size + size
            return size
        self.size = columns.extend(*rows, limit, free)
        before, self.held = self.held, columns.held  # a finalizer may have appended records meanwhile
        return self.held - before

    def trim(self) -> int:
        """Release the spare capacity of a buffer, and return the number of bytes released; columns hold none."""
        if self.held - self.size <= self.held // 4:
            return 0
        before, self.held = self.held, self.columns.trim()
        return before - self.held

    def take_waiters(self, indices: Sequence[int]) -> list[Waiters]:
        """Return the waiters of the records at *indices* (ascending)."""
        taken: list[Waiters] = []
        start = position = 0
        for each in self.stretches:
            stop = start + len(each)
            local: list[int] = []
            while position < len(indices) and indices[position] < stop:
                local.append(indices[position] - start)
                position += 1
            if local:
                taken.append(each.take(local))
            start = stop
        return taken

    async def wait_resolved(self) -> None:
        """Wait until every record of the batch is acknowledged or has failed. Cancelling only stops the waiting."""
        if self.state not in RESOLVED:
            if self._resolved is None:
                self._resolved = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._resolved)
        for successor in self.successors:
            await successor.wait_resolved()
