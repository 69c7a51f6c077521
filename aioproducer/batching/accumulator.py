"""The record accumulator: open batches per partition, a byte budget, a schedule, deadlines.

Appending never awaits. On one event loop that makes it atomic, so the common path takes no lock; who
has to wait for memory or metadata does so above, in order, and appends afterwards.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeVar

from aioproducer.batching.batch import Appended, Batch, RecordFuture
from aioproducer.batching.batch_state import BatchState
from aioproducer.batching.batching_settings import BatchingSettings
from aioproducer.batching.memory_budget import MemoryBudget
from aioproducer.batching.partition_queue import PartitionQueue
from aioproducer.batching.schedule import Deadlines, Paces, Schedule
from aioproducer.batching.topic import TopicQueues
from aioproducer.batching.waiters import Acknowledgement, Failure
from aioproducer.clock import LoopClock, LoopTurns
from aioproducer.idempotence.identity import IdentityKeeper
from aioproducer.metadata.snapshot import NO_LEADER
from aioproducer.protocol.types import NO_TOPIC_ID
from aioproducer.records.sizes import BATCH_OVERHEAD, RECORD_OVERHEAD
from aioproducer.types import Headers

if TYPE_CHECKING:
    from aioproducer.batching.bulk import Rows, SendManyCall

_OPEN, _SEALED = BatchState.OPEN, BatchState.SEALED

W = TypeVar("W", bound=RecordFuture | Acknowledgement)
"""What waits for a single record."""


class Accumulator:
    """Takes records in, and hands due batches out through its `schedule`."""

    def __init__(
        self,
        settings: BatchingSettings,
        identities: IdentityKeeper,
        *,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
        wake_at: Callable[[float], None],
        touch: Callable[[str, float], None],
    ) -> None:
        self.memory: Final = MemoryBudget(settings.buffer_bytes)
        self.schedule: Final = Schedule(identities)
        self.paces: Final = Paces(loop.time)
        self.deadlines: Deadlines[Batch] = Deadlines()
        self.clock: Final = LoopClock(loop)
        self.turns: Final = LoopTurns()
        self.unresolved: dict[Batch, None] = {}
        """The batches whose records wait for an outcome, as an ordered set: they fail in the order of the calls."""
        self._abandoned: set[Batch] = set()
        self.topics: dict[str, TopicQueues] = {}
        self.shrunk: set[str] = set()
        """The topics with queues for more partitions than the cluster has."""
        self.flushing: set[object] = set()
        """The calls that wait for everything to be sent: while there are any, no batch lingers."""
        self.finishing: bool = False
        """Whether the sender ends as soon as everything has its outcome."""
        self.pending_calls: dict[object, int] = {}
        """The calls on their way here, which wait for earlier calls, metadata or memory; the records they still append."""
        self.closed_for: Failure | None = None
        """Why nothing is taken any more."""
        self.settings: BatchingSettings = settings
        self.identities: IdentityKeeper = identities
        after_s = settings.availability_timeout_s
        self._stalled = (lambda: self.schedule.waiting_since(loop.time() - after_s)) if after_s else None
        self.wake: Callable[[], None] = wake
        self._wake_at, self._loop, self._touch = wake_at, loop, touch

    def hurries(self) -> bool:
        """Return whether batches go without lingering: someone waits for them, for their memory, or for the end."""
        return bool(self.flushing or self.memory.waiters or self.finishing)

    @property
    def callers(self) -> int:
        """Number of calls on their way here."""
        return len(self.pending_calls)

    @property
    def arriving(self) -> int:
        """Number of records that the calls on their way here still append."""
        return sum(tuple(self.pending_calls.values()))  # other threads ask as well

    @property
    def unfinished(self) -> int:
        """Number of batches that are not at the end of their lives: unresolved and abandoned ones."""
        return len(self.unresolved) + len(self._abandoned)

    @property
    def idle(self) -> bool:
        """Whether nobody waits for an outcome, and no call is on its way here."""
        return not self.pending_calls and all(batch.is_forsaken for batch in self.unresolved)

    def topic(self, name: str) -> TopicQueues:
        """Return the queues of topic *name*, made when it is first written to."""
        queues = self.topics.get(name)
        if queues is None:
            queues = TopicQueues(name, self.settings, self.identities, self.paces, self._stalled)
            self.topics[name] = queues
        return queues

    def queue(self, batch: Batch) -> PartitionQueue:
        """Return the queue of *batch*, which has its end still before it: its topic is not forgotten before."""
        topic, partition = batch.topic_partition
        return self.topics[topic].by_partition[partition]

    def leader(self, batch: Batch) -> int:
        """Return the node that *batch* would be sent to, or NO_LEADER; *batch* may be one of long ago."""
        topic = self.topics.get(batch.topic_partition.topic)
        return NO_LEADER if topic is None else topic[batch.topic_partition.partition].leader

    def update_topic(self, name: str, leaders: Sequence[int], topic_id: bytes = NO_TOPIC_ID) -> None:
        """Take over who leads the partitions of topic *name* now; nobody, if the topic is unknown or gone."""
        topic = self.topics.get(name)
        if topic is None:
            return
        if not leaders and topic.may_retire:
            topic.retire()
            del self.topics[name]
            self.shrunk.discard(name)
            return
        changed = topic.update(leaders, topic_id)
        if topic.missing is None:
            self.shrunk.discard(name)
        else:
            self.shrunk.add(name)
        if changed:
            self.schedule.offer_all(changed, self._loop.time())
            self.wake()

    def shrunk_topics(self) -> set[str]:
        """Return the topics with records for partitions that the cluster does not have."""
        return {
            name
            for name in self.shrunk
            if any(queue.batches or queue.retrying for queue in self.topics[name].missing_queues())
        }

    def append_to_open(self, topic: TopicQueues, value: bytes, new_waiter: Callable[[], W]) -> W | None:
        """Append a small record that has nothing but a *value* to the open batch of the sticky partition.

        This is `append` without what those do not need; it does all that is more than to join a batch.
        """
        size = len(value) + RECORD_OVERHEAD
        sticky, memory = topic.sticky, self.memory
        free = memory.free
        batch = sticky.open if sticky is not None else None
        if (
            batch is None
            or batch.plain_waiter is not new_waiter
            or (grown := batch.size + size) > batch.limit
            or size > free
            or memory.waiters
        ):
            return self.append(topic, None, value, None, (), None, size, new_waiter)
        waiter = None
        try:
            memory.free = free - size
            batch.size = grown
            columns, clock = batch.columns, self.clock
            columns.values.append(value)
            columns.timestamps.append(clock.known_ms or clock.now_ms())
            waiter = new_waiter()
            batch.last_waiters.append(waiter)
        except BaseException:
            self._recover(topic, waiter, 1, size, free)
            raise
        return waiter

    def append(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
        size: int,
        new_waiter: Callable[[], W],
        *,
        reserved: int = 0,
        waiter: W | None = None,
    ) -> W | None:
        """Append one record to *queue*, or to the sticky partition; return what waits for it, made by *new_waiter*.

        *timestamp_ms* None is now: as of this iteration of the event loop, unless the record is the first of its batch.
        *size* is the upper bound of its encoded size. Returns None, and nothing has happened, if there is no memory for
        it now, or if others wait for some. Who has waited hands in what it got as *reserved*: enough for the record
        and a batch (`settings.room_for`), even if the halves of a split batch have overdrawn the budget since.
        """
        memory = self.memory
        free = memory.free + reserved
        if memory.waiters and not reserved:
            return None
        try:
            memory.free = free
            target = queue or topic.sticky
            batch = target.open if target is not None else None
            if batch is None or batch.size + size > batch.limit:
                # Room for the record and a batch: a call that finds none waits for both together.
                if free < size + BATCH_OVERHEAD and not reserved:
                    return None
                batch = self._batch_with_room(topic, queue, size)
            elif free < size and not reserved:
                return None
            if timestamp_ms is None:  # the first record of a batch is most often alone in its iteration
                clock, is_first = self.clock, batch.size == BATCH_OVERHEAD
                timestamp_ms = clock.fresh_ms() if is_first else clock.known_ms or clock.now_ms()
            memory.free -= size
            batch.size += size
            columns = batch.columns
            if key is None and not headers and columns.keys is None and columns.headers is None:
                columns.values.append(value)
                columns.timestamps.append(timestamp_ms)
            else:
                columns.append(value, key, headers, timestamp_ms)
                batch.plain_waiter = None
            waiter = waiter or new_waiter()
            if batch.new_waiter is new_waiter:
                batch.last_waiters.append(waiter)
            else:
                batch.add_waiter(waiter, new_waiter)
        except BaseException:
            self._recover(topic, waiter, 1, size, free)
            raise
        if reserved:
            memory.give_back(0)  # what is left of it may be enough for the next in line
        return waiter

    def append_and_locate(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size: int,
        reserved: int = 0,
        *,
        waiter: RecordFuture | None = None,
    ) -> Appended | None:
        """Do as `append`, with *waiter* if it is given, and return the batch as well: a call that waited has deadlines."""
        future = self.append(
            topic, queue, value, key, headers, timestamp_ms, size, RecordFuture,
            reserved=reserved, waiter=waiter,
        )  # fmt: skip
        target = queue or topic.sticky
        if future is None or target is None or target.open is None:
            return None
        return Appended(future, target.open)

    def extend(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        rows: Rows,
        call: SendManyCall,
        reserved: int = 0,
    ) -> int:
        """Append *rows*, whose sizes are known, as far as memory goes; return how many went.

        *reserved* is as for `append`: enough for the next record and a batch.
        """
        memory = self.memory
        memory.free += reserved
        ends = list(accumulate(rows.sizes, initial=0))  # where a batch is full is one bisection
        share = topic.share(ends[-1]) if queue is None else ends[-1]
        now, start = self._loop.time(), 0
        step: tuple[object, int, int, int] = None, 0, 0, memory.free
        try:
            while start < len(rows) and (reserved or not memory.waiters):
                first, step = rows.sizes[start], (None, 0, 0, free := memory.free)
                target = queue or topic.sticky or topic.switch()
                batch = target.open
                if batch is None or batch.size + first > batch.limit:
                    if free < self.settings.room_for(first) and not reserved:
                        break
                    batch = self._batch_with_room(topic, queue, first)
                most = max(memory.free, first) if reserved else memory.free
                limit = max(batch.limit, topic.limits.to_grow_to(batch, share, now))
                room = min(max(limit - batch.size, first), most)
                reserved = 0
                stop = bisect_right(ends, ends[start] + room) - 1
                if stop <= start:
                    break
                part, size = rows.slice(start, stop), ends[stop] - ends[start]
                waiters = call.waiters(part.positions)
                step = waiters, len(part), size, free
                memory.free -= size
                batch.size += size
                batch.columns.extend(part.values, part.keys, part.headers, part.timestamps_ms)
                batch.add_waiters(waiters)
                call.partitions.add(batch.topic_partition.partition)
                if batch.size > batch.limit:
                    self._ready(batch, self.queue(batch), now)
                    batch.grow(batch.size)
                start = stop
        except BaseException:
            self._recover(topic, *step)
            raise
        memory.give_back(0)
        return start

    def _batch_with_room(self, topic: TopicQueues, queue: PartitionQueue | None, size: int) -> Batch:
        """Return an open batch of *queue*, or of the next sticky partition; what is at its limit may go."""
        self.turns.look(now := self._loop.time(), self.memory.free, topic.limits.rate)
        full = queue if queue is not None else topic.sticky
        if full is not None and (batch := full.open) is not None:
            self._grow(topic, full, batch, size, now)
            if batch is full.open and batch.limit == topic.limits.ready:
                return batch  # half of it was enough to go; it is still a batch's worth
        if queue is None or queue is topic.sticky:
            sticky = topic.next_sticky(size)
            queue = queue or sticky
            if queue.open is not None and queue.open.size + size > queue.open.limit:
                self._grow(topic, queue, queue.open, size, now)
        return self._open_batch(topic, queue, now) if queue.open is None else queue.open

    def _grow(self, topic: TopicQueues, queue: PartitionQueue, batch: Batch, size: int, now: float) -> None:
        """Let *batch*, at its limit, go; until it does, it takes as much again, or none if it is full (KIP-782)."""
        if batch.size + size > (limit := topic.limits.next_limit(batch, size, now)):
            self.seal(batch, now)
        else:
            self._ready(batch, queue, now)
            batch.grow(limit)

    def _ready(self, batch: Batch, queue: PartitionQueue, now: float) -> None:
        """Let the open *batch* of *queue* wait for no more records."""
        if not batch.due:
            batch.mark_due()
            self.schedule.forget(batch)
            self.schedule.offer(queue, now)
            self.wake()

    def _open_batch(self, topic: TopicQueues, queue: PartitionQueue, now: float) -> Batch:
        if (
            self.closed_for is not None
        ):  # by user code of this very call: a serializer that closes the producer
            raise self.closed_for.error()
        is_busy = (is_adaptive := self.settings.linger_is_adaptive) and self.schedule.is_busy(queue.leader)
        limit = topic.limits.first_limit(now, is_next=is_busy)
        deadline, rate = now + self.settings.delivery_timeout_s, topic.limits.rate
        at, order = queue.topic_partition, queue.next_order()
        queue.open = batch = Batch(at, order, now, deadline, limit, rate)
        queue.batches.append(batch)
        self.hold(batch)
        self._touch(topic.name, now)
        self.clock.forget()
        if not self.settings.linger_s or (is_adaptive and not is_busy) or self.hurries():
            self._ready(batch, queue, now)
        elif self.schedule.linger(queue, batch, until := now + self.settings.linger_s):
            self._wake_at(until)
        return batch

    def appended(self, waiter: RecordFuture) -> Appended | None:
        """Return the record of *waiter* if it is in a batch without an outcome."""
        batch = next((each for each in self.unresolved if each.holds(waiter)), None)
        return None if batch is None else Appended(waiter, batch)

    def recount(self) -> None:
        """Set the free memory to that which no batch and no call has: an exception interrupted a call that waited."""
        memory = self.memory
        held = sum(batch.size for batch in (*self.unresolved, *self._abandoned))
        memory.free = memory.limit - held - sum(memory.granted.values())
        memory.give_back(0)
        self.wake()

    def _recover(self, topic: TopicQueues, waiter: object, records: int, size: int, free: int) -> None:
        """Complete or undo an append to *topic* that an exception interrupted, such as one that a signal handler raised.

        *records* of *size* bytes are appended once *waiter* is in a batch; *free* bytes of memory were free before.
        Columns without a waiter are dropped, and open batches are sealed and offered to the schedule again.
        """
        now, topic.sticky = self._loop.time(), None
        for queue in topic.by_partition.values():
            for batch in tuple(queue.batches):
                if batch.state is _SEALED and batch.due:
                    continue
                if batch.state is _OPEN and batch.repair(waiter):
                    free -= size + (BATCH_OVERHEAD if len(batch) == records else 0)
                if len(batch):
                    queue.seal(batch)
                else:
                    queue.remove(batch)
                    self.unresolved.pop(batch, None)
                    self.deadlines.discard(batch, batch.deadline)
                self.schedule.forget(batch)
            queue.open = None
            self.schedule.offer_again(queue, now)
        self.memory.free = free
        self.wake()

    def seal(self, batch: Batch, now: float) -> None:
        """Let *batch* wait for no more records."""
        queue = self.queue(batch)
        queue.seal(batch)
        self.schedule.forget(batch)
        self.schedule.offer(queue, now)
        self.wake()

    def expire_earlier(self, batch: Batch, waiter: RecordFuture, deadline: float) -> None:
        """Let the record of *waiter* expire at *deadline*, if that is earlier, with all of *batch*.

        Somebody else may have appended the record for its call: then the batch may have its outcome already, or
        was split, and another one has the record.
        """
        if batch not in self.unresolved:
            for successor in batch.successors:
                if successor.holds(waiter):
                    self.expire_earlier(successor, waiter, deadline)
        elif deadline < batch.deadline:
            before = batch.deadline
            self.deadlines.add(batch, deadline)  # first: a batch is never without a deadline
            batch.expire_by(deadline)
            self.deadlines.discard_before_move(batch, before, deadline)
            self.wake()  # to look at the deadlines again

    def enter(self, call: object, topic: TopicQueues, records: int) -> None:
        """Count *call*, which is on its way to *topic*, and the *records* that it is to append."""
        topic.pending_calls.add(call)
        self.pending_calls[call] = records

    def arrived(self, call: object, records: int) -> None:
        """Count *records* of *call* as appended, or failed."""
        self.pending_calls[call] -= records

    def leave(self, call: object, topic: TopicQueues) -> None:
        """Count *call* out again, with the records that it has not appended; repeated calls are fine."""
        topic.pending_calls.discard(call)
        self.pending_calls.pop(call, None)
        if not self.pending_calls:
            self.wake()  # a sender that is asked to finish waits for us
        if not topic.leaders:  # nothing came of it: a topic that does not exist leaves no trace
            self.update_topic(topic.name, ())

    def hold(self, batch: Batch) -> None:
        """Keep *batch*, its memory and its deadline until `release`."""
        self.memory.free -= batch.size
        self.unresolved[batch] = None
        self.deadlines.add(batch, batch.deadline)

    def resolved(self, batch: Batch) -> None:
        """Wait for no outcome of *batch* any more: its records have failed, and its answer is still to come."""
        self._abandoned.add(batch)
        self.unresolved.pop(batch, None)
        self.deadlines.discard(batch, batch.deadline)
        self.wake()  # it may have been the last that a sender waits for which is to end

    def release(self, batch: Batch) -> None:
        """Let *batch* go, which is at the end of its life, and give back what it held."""
        self.unresolved.pop(batch, None)
        self._abandoned.discard(batch)
        self.deadlines.discard(batch, batch.deadline)
        if not batch.due:  # else it lingers no more
            self.schedule.forget(batch)
        batch.drop_encoded()
        self.memory.give_back(batch.size)

    def finish(self) -> None:
        """Let the sender end as soon as everything has its outcome."""
        self.finishing = True
        self.wake()

    def close(self, failure: Failure) -> int:
        """Take nothing more, and fail the calls on their way here; return how many those are."""
        self.closed_for = failure
        self.memory.fail_waiters(failure.error)
        return self.callers

    def reopen(self, failure: Failure) -> None:
        """Take records again, if it was *failure* that it was closed for."""
        if self.closed_for is failure:
            self.closed_for = None

    async def flush(self) -> None:
        """Send what was appended so far without lingering, and wait until all of it has its outcome."""
        call = object()
        try:
            self.flushing.add(call)
            self.wake()
            for batch in tuple(self.unresolved):
                await batch.wait_resolved()
            self.flushing.discard(call)
        except BaseException:  # also of a signal handler, and as late as in the line above
            self.flushing.discard(call)
            raise
