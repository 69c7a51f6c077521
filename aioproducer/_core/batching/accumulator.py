"""The record accumulator: open batches, memory, schedule and deadlines. Appending never awaits, so it is atomic."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from aioproducer._core.batching.admission import MemoryBudget
from aioproducer._core.batching.batch import Batch, Place, RecordFuture
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.receipts import ReceiptKind
from aioproducer._core.batching.schedule import BrokerLatencies, Deadlines, JoinWindows, Schedule
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.batching.waiters import Acknowledgement, Failure, Kind
from aioproducer._core.clock import LoopClock, YieldPolicy
from aioproducer._core.idempotence import IdentityKeeper
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._core.records.columns import (
    BATCH_OVERHEAD,
    RECORD_OVERHEAD,
    RecordColumns,
    open_records,
    running_totals,
)
from aioproducer._core.settings import BatchingSettings
from aioproducer.types import Headers

if TYPE_CHECKING:
    from aioproducer._core.batching.bulk import Rows, SendManyCall

USED_FOR_S: Final = 1.0
"""Time for which a new batch marks its topic as in use, in seconds. A metadata look-up per batch would cost 1 % of the CPU."""

Ready: TypeAlias = tuple[PartitionQueue | None, bytes | None, bytes | None, Headers, int, int]
"""Serialized record: queue (None for the sticky partition), value, key, headers, timestamp in milliseconds, size."""

W = TypeVar("W", bound=RecordFuture | Acknowledgement)


class Accumulator:
    """Batches of all topics: appends records, and passes ready batches to the sender through `schedule`."""

    def __init__(
        self,
        settings: BatchingSettings,
        identities: IdentityKeeper,
        *,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
        wake_at: Callable[[float], None],
        mark_used: Callable[[str, float], None],
        records: Callable[[], Any] = open_records,
    ) -> None:
        """*records* returns empty records for a batch: RecordBuffer or RecordColumns."""
        self._open_records = records
        self._is_buffered = records is not RecordColumns
        self.memory: Final = MemoryBudget(settings.buffer_bytes)
        self.schedule: Final = Schedule(identities)
        self.latencies: Final = BrokerLatencies(loop.time)
        self.deadlines: Deadlines[Batch] = Deadlines()
        self.clock: Final = LoopClock(loop)
        self.yields: Final = YieldPolicy()
        self.unresolved: dict[Batch, None] = {}
        """Batches without an outcome, as an ordered set: batches fail in the order of the calls."""
        self._abandoned: set[Batch] = set()
        self.topics: dict[str, TopicQueues] = {}
        self.shrunk: set[str] = set()
        """Topics with queues for partitions that the cluster lacks."""
        self.flushing: set[object] = set()
        """`flush` calls in progress. No batch lingers during a `flush`."""
        self.finishing: bool = False
        """True if the sender ends once all records have their outcome."""
        self.pending_calls: dict[object, int] = {}
        """Pending calls (waiting for earlier calls, metadata or memory), with the number of records that each call still appends."""
        self.interrupts: dict[object, Callable[[Failure], None]] = {}
        """Pending calls that await serializers, each with the function that ends the wait."""
        self.closed_for: Failure | None = None
        """Failure of all further calls; None while calls are accepted."""
        self.windows: Final = JoinWindows(settings.linger_s)
        self.settings: BatchingSettings = settings
        self._linger_is_adaptive, self._linger_s = settings.linger_is_adaptive, settings.linger_s
        self._delivery_timeout_s = settings.delivery_timeout_s
        self.identities: IdentityKeeper = identities
        after_s = settings.availability_timeout_s
        self._stalled = (lambda: self.schedule.waiting_since(loop.time() - after_s)) if after_s else None
        self.wake: Callable[[], None] = wake
        self._wake_at, self._loop, self._mark_used = wake_at, loop, mark_used

    def hurries(self) -> bool:
        """Return True if no batch lingers: a call flushes, waits for memory, or closes the producer."""
        return bool(self.flushing or self.memory.waiters or self.finishing)

    @property
    def arriving(self) -> int:
        """Number of records that the pending calls still append."""
        return sum(tuple(self.pending_calls.values()))  # a copy: other threads also read `arriving`

    @property
    def unfinished(self) -> int:
        """Number of unresolved and abandoned batches."""
        return len(self.unresolved) + len(self._abandoned)

    @property
    def idle(self) -> bool:
        """True if no call is pending and no caller waits for an outcome."""
        return not self.pending_calls and all(batch.all_waiters_expired for batch in self.unresolved)

    def topic(self, name: str) -> TopicQueues:
        """Return the queues of topic *name*, created for its first record."""
        if (topic := self.topics.get(name)) is None:
            topic = TopicQueues(name, self.settings, self.identities, self.latencies, self._stalled)
            self.topics[name] = topic
        return topic

    def queue(self, batch: Batch) -> PartitionQueue:
        """Return the queue of the unfinished *batch*, whose topic is still known."""
        at = batch.topic_partition  # an index costs a fifth of unpacking a NamedTuple
        return self.topics[at[0]].by_partition[at[1]]

    def leader(self, batch: Batch) -> int:
        """Return the node id of the last known leader of *batch*, or NO_LEADER."""
        topic = self.topics.get(batch.topic_partition.topic)
        return NO_LEADER if topic is None else topic[batch.topic_partition.partition].leader

    def update_topic(self, name: str, leaders: Sequence[int], topic_id: bytes = NO_TOPIC_ID) -> None:
        """Set the *leaders* of the partitions of topic *name*; *leaders* is empty for an unknown or deleted topic."""
        if (topic := self.topics.get(name)) is None:
            return
        if not leaders and topic.may_retire:
            topic.retire()
            del self.topics[name]
            self.shrunk.discard(name)
            return
        changed = topic.update(leaders, topic_id)
        (self.shrunk.discard if topic.missing is None else self.shrunk.add)(name)
        if changed:
            self.schedule.offer_all(changed, self._loop.time())
            self.wake()

    def shrunk_topics(self) -> set[str]:
        """Return the topics with records for partitions that the cluster lacks."""
        topics = map(self.topics.__getitem__, self.shrunk)
        return {topic.name for topic in topics if any(queue.unsent for queue in topic.missing_queues())}

    def open_for(self, topic: TopicQueues, queue: PartitionQueue | None, size: int, kind: Any) -> int | None:
        """Make room for a record of *size* bytes and its waiter of *kind*, in a batch of *queue* or of the sticky partition.

        Returns the timestamp of the record, in ms; None with RecordColumns, without free memory, or while calls wait for memory.
        """
        memory = self.memory
        if not self._is_buffered or memory.waiters or memory.free < size + BATCH_OVERHEAD:
            return None
        try:
            if (batch := self._batch_with_room(topic, queue, size)).kind is not kind:
                batch.begin_stretch(kind)
            return self.clock.fresh_ms()
        except BaseException:
            self.recover(topic)
            raise

    def append_to_open(self, topic: TopicQueues, value: bytes, kind: Kind[W]) -> W | None:
        """Append a small record with only a *value* to the open sticky batch's columns, or pass the record on to `append`."""
        waiter, clock = kind.waiter(), self.clock  # created first: an allocation may run finalizers
        size = len(value) + RECORD_OVERHEAD
        sticky, memory = topic.sticky, self.memory
        free = memory.free
        if (
            sticky is None
            or (batch := sticky.open) is None
            or batch.plain_kind is not kind
            or (grown := batch.size + size) > batch.limit
            or size > free
            or memory.waiters
            or not clock.known_ms
        ):
            return self.append(topic, None, value, None, (), None, size, kind, waiter=waiter)
        try:
            memory.free = free - size
            batch.size = batch.held = grown
            columns = batch.columns
            columns.values.append(value)
            columns.timestamps.append(clock.known_ms)
            batch.last.append(waiter)
        except BaseException:
            self.recover(topic)
            raise
        return waiter

    def append(  # noqa: C901, PLR0912 - buffer or columns, without a call for columns
        self, topic: TopicQueues, queue: PartitionQueue | None, value: bytes | None, key: bytes | None,
        headers: Headers, timestamp_ms: int | None, size: int, kind: Kind[W],
        *, reserved: int = 0, called_at: float | None = None, waiter: W | None = None,
    ) -> W | None:  # fmt: skip
        """Append one record to *queue*, or to the sticky partition; return *waiter*, by default a new waiter of *kind*.

        *timestamp_ms* None means the time of this iteration of the event loop, or the current time for the first record
        of a batch. *size* is the upper bound of the encoded size, in bytes. Returns None without any change if no memory is
        free or other calls wait for memory. A call that has waited passes its time as *called_at* (loop clock), and its granted
        bytes as *reserved*: enough for a record and a batch (`settings.room_for`), even if a split has overdrawn the budget.
        """
        memory = self.memory
        if memory.waiters and not reserved:
            return None
        if waiter is None:  # created first: an allocation may run finalizers, which may append
            waiter = kind.waiter()
        free = memory.free + reserved
        try:
            memory.free = free
            target = queue or topic.sticky
            batch = target.open if target is not None else None
            if batch is None or batch.size + size > batch.limit:
                if free < size + BATCH_OVERHEAD and not reserved:  # one wait covers the record and its batch
                    return None
                batch = self._batch_with_room(topic, queue, size, called_at)
            elif free < size and not reserved:
                return None
            if timestamp_ms is None:  # the first record of a batch is usually alone in its iteration
                clock, is_first = self.clock, batch.size == BATCH_OVERHEAD
                timestamp_ms = clock.fresh_ms() if is_first else clock.known_ms or clock.now_ms()
            if batch.kind is not kind:
                batch.begin_stretch(kind)
            columns = batch.columns
            if self._is_buffered:
                batch.size = columns.append(value, key, headers, timestamp_ms, batch.limit, memory.free)
                memory.free -= (held := columns.held) - batch.held
                batch.held = held
            else:
                memory.free -= size
                batch.size = batch.held = batch.size + size
                if key is None and not headers and columns.keys is None and columns.headers is None:
                    columns.values.append(value)
                    columns.timestamps.append(timestamp_ms)
                else:
                    columns.append(value, key, headers, timestamp_ms)
                    batch.plain_kind = None
            batch.last.append(waiter)
        except BaseException:
            self.recover(topic)
            raise
        if reserved:
            memory.give_back(0)  # the free bytes may suffice for the next waiting call
        return waiter

    def append_and_locate(
        self, topic: TopicQueues, *ready: *Ready,
        kind: ReceiptKind, called_at: float, waiter: RecordFuture, reserved: int = 0,
    ) -> Place | None:  # fmt: skip
        """Append the record of a call that has waited since *called_at*; return the record's place, or None without memory."""
        queue = ready[0]
        self._admit(topic, queue or topic.sticky, called_at)
        appended = self.append(topic, *ready, kind, reserved=reserved, called_at=called_at, waiter=waiter)
        target = queue or topic.sticky
        if target is None or (batch := target.open) is None:
            return None
        self._count_from(batch, called_at if appended is not None else inf)
        return None if appended is None else (batch, len(batch.columns) - 1)

    def _admit(self, topic: TopicQueues, queue: PartitionQueue | None, called_at: float) -> None:
        """Let a call made at *called_at* join the open batch of *queue*; seal the batch if *called_at* is after its join window."""
        if queue is not None and (batch := queue.open) is not None:
            if called_at > batch.joins_until:
                self.seal(batch, self._loop.time())
            elif not batch.limit:
                batch.set_limit(topic.limits.ready)

    def _count_from(self, batch: Batch, called_at: float) -> None:
        """Start the deadline and join window of *batch* at *called_at*, unless the batch has an older record."""
        batch.join_by(called_at + self.windows.lasts_s)
        if batch.joins_until < self._loop.time():
            batch.set_limit(0)  # no new call may join, and share an early deadline
        before, deadline = batch.deadline, called_at + self.settings.delivery_timeout_s
        if deadline < before:
            self.deadlines.add(batch, deadline)  # `add` is first, so a batch always has a deadline
            batch.expire_by(deadline)
            self.deadlines.discard_before_move(batch, before, deadline)
            self.wake()  # the sender checks the deadlines again

    def extend(
        self, topic: TopicQueues, queue: PartitionQueue | None, rows: Rows, call: SendManyCall,
        reserved: int = 0, *, called_at: float | None = None,
    ) -> int:  # fmt: skip
        """Append *rows*, whose sizes are known, as far as memory allows; return the number of appended rows.

        A call that has waited passes its granted bytes as *reserved*, and its time as *called_at* (loop clock).
        """
        memory = self.memory
        memory.free += reserved
        ends = running_totals(rows.sizes)  # one bisection of the totals finds the end of a full batch
        share = topic.share(ends[-1]) if queue is None else ends[-1]
        now, start = self._loop.time(), 0
        joins_at = now if called_at is None else called_at
        try:
            while start < len(rows) and (reserved or not memory.waiters):
                first, free = rows.sizes[start], memory.free
                target = queue or topic.sticky or topic.switch()
                if joins_at < now:
                    self._admit(topic, target, joins_at)
                batch = target.open
                if batch is None or batch.size + first > batch.limit:
                    if free < self.settings.room_for(first) and not reserved:
                        break
                    batch = self._batch_with_room(topic, queue, first, joins_at)
                most = max(memory.free, first) if reserved else memory.free
                limit = max(batch.limit, topic.limits.grown_limit(batch, share, joins_at))
                room = min(max(limit - batch.size, first), most)
                reserved = 0
                stop = bisect_right(ends, ends[start] + room) - 1
                if stop <= start:
                    break
                part, size = rows.slice(start, stop), ends[stop] - ends[start]
                waiters = call.waiters(part.positions, batch)
                grown = batch.extend(part.columns, size, limit, memory.free)
                memory.free -= grown
                batch.add_waiters(waiters)
                call.partitions.add(batch.topic_partition.partition)
                if batch.size > batch.limit:
                    self._ready(batch, self.queue(batch), now)
                    batch.set_limit(batch.size)
                if joins_at < now:
                    self._count_from(batch, joins_at)
                start = stop
        except BaseException:
            self.recover(topic)
            raise
        memory.give_back(0)
        return start

    def _batch_with_room(
        self, topic: TopicQueues, queue: PartitionQueue | None, size: int, called_at: float | None = None
    ) -> Batch:
        """Let an open batch at its limit be sent; return an open batch of *queue*, or of the next sticky partition."""
        now = self._loop.time()
        joins_at = now if called_at is None else called_at
        full = queue if queue is not None else topic.sticky
        batch = None if full is None else full.open
        mean = size if batch is None else batch.size / (len(batch.columns) or 1)
        self.yields.check(now, self.memory.free, topic.limits.rate, mean)
        if full is not None and batch is not None:
            self._grow(topic, full, batch, size, joins_at)
            if batch is full.open and batch.limit == topic.limits.ready:
                return batch  # the limit rose from half of `ready` to `ready`
        if queue is None or queue is topic.sticky:
            sticky = topic.next_sticky(size)
            queue = queue or sticky
            if queue.open is not None and queue.open.size + size > queue.open.limit:
                self._grow(topic, queue, queue.open, size, joins_at)
        return self._open_batch(topic, queue, size, now) if queue.open is None else queue.open

    def _grow(self, topic: TopicQueues, queue: PartitionQueue, batch: Batch, size: int, at: float) -> None:
        """Let *batch*, at its limit, be sent. Until then *batch* grows (KIP-782); seal *batch* if a call at time *at* cannot join."""
        now = self._loop.time()
        if batch.size + size > (limit := topic.limits.next_limit(batch, size, at)):
            self.seal(batch, now)
        else:
            self._ready(batch, queue, now)
            batch.set_limit(limit)

    def _ready(self, batch: Batch, queue: PartitionQueue, now: float) -> None:
        """Let the open *batch* of *queue* be sent without further records."""
        if not batch.ready:
            self.schedule.make_ready(batch, queue, now)
            self.wake()

    def _open_batch(self, topic: TopicQueues, queue: PartitionQueue, size: int, now: float) -> Batch:
        if self.closed_for is not None:  # user code, such as a serializer, has closed the producer
            raise self.closed_for.error()
        is_busy = (is_adaptive := self._linger_is_adaptive) and queue.leader in self.schedule.busy
        limit, least = topic.limits.first_limit(now, is_busy), size + BATCH_OVERHEAD
        limit = least if limit < least else limit  # noqa: FURB136 - one record always fits; max() costs ten comparisons
        lingers = self._linger_s and (is_busy or not is_adaptive) and not self.hurries()
        batch = Batch(  # positional arguments: names would cost a dict, since Batch is a class
            queue.topic_partition, queue.next_order(), now, now + self._delivery_timeout_s, limit,
            topic.limits.rate, now + self.windows.lasts_s, not lingers, self._open_records(),
        )  # fmt: skip
        queue.add(batch)
        self.hold(batch)
        if not queue.is_watched:
            self.windows.watch(queue, batch.joins_until)
        if now >= topic.used_until:
            topic.used_until = now + USED_FOR_S
            self._mark_used(topic.name, topic.used_until)
        self.clock.known_ms = 0  # the next append reads the clock again
        if not lingers:
            self.schedule.offer(queue, now)
            self.wake()
        elif self.schedule.linger(queue, batch, until := now + self._linger_s):
            self._wake_at(until)
        return batch

    def place_of(self, waiter: RecordFuture) -> Place | None:
        """Return the place of the record of *waiter* in a batch without an outcome, or None."""
        return next(((batch, at) for batch in self.unresolved for at in batch.indices_of(waiter)), None)

    def recount(self) -> None:
        """Recompute the free memory after an exception interrupted a call."""
        memory = self.memory
        held = sum(batch.held for batch in (*self.unresolved, *self._abandoned))
        memory.free = memory.limit - held - sum(memory.granted.values())
        memory.give_back(0)
        self.wake()

    def recover(self, topic: TopicQueues) -> None:
        """Complete or undo an append to *topic* that an exception, for example of a signal handler, interrupted."""
        topic.sticky, now = None, self._loop.time()
        for queue in topic.by_partition.values():
            for batch in queue.recover():
                self.schedule.forget(batch)
                if not len(batch):
                    self.unresolved.pop(batch, None)
                    self.deadlines.discard(batch, batch.deadline)
            self.schedule.offer_again(queue, now)
        self.recount()

    def seal(self, batch: Batch, now: float) -> None:
        """Accept no more records in *batch*. After an interruption the caller must call `recover` or `recount`."""
        queue = self.queue(batch)
        queue.seal(batch)
        self.memory.give_back(batch.trim())
        self.schedule.forget(batch)
        self.schedule.offer(queue, now)
        self.wake()

    def enter(self, call: object, topic: TopicQueues, records: int) -> None:
        """Register *call* as pending; *records* is the number of records that *call* will append to *topic*."""
        topic.pending_calls[call] = None
        self.pending_calls[call] = records

    def arrived(self, call: object, records: int) -> None:
        """Subtract *records*, the number of records of *call* that were appended or failed."""
        self.pending_calls[call] -= records

    def leave(self, call: object, topic: TopicQueues) -> None:
        """Unregister *call* and its records that were not appended. May be called repeatedly."""
        topic.pending_calls.pop(call, None)
        self.pending_calls.pop(call, None)
        if not self.pending_calls:
            self.wake()  # a finishing sender waits for pending calls
        if not topic.leaders:  # drop the state of a topic that does not exist
            self.update_topic(topic.name, ())

    def hold(self, batch: Batch) -> None:
        """Keep *batch*, its memory and its deadline until `release`."""
        self.memory.free -= batch.held
        self.unresolved[batch] = None
        self.deadlines.add(batch, batch.deadline)

    def resolved(self, batch: Batch) -> None:
        """Abandon *batch*: its records have failed, and its request still has no answer."""
        self._abandoned.add(batch)
        self.unresolved.pop(batch, None)
        batch.drop_waiters()
        self.deadlines.discard(batch, batch.deadline)
        self.wake()  # a finishing sender may have waited for this batch alone

    def release(self, batch: Batch) -> None:
        """Drop the finished *batch*, and give back its memory."""
        self.unresolved.pop(batch, None)
        self._abandoned.discard(batch)
        self.deadlines.discard(batch, batch.deadline)
        if not batch.ready:  # a ready batch does not linger
            self.schedule.forget(batch)
        batch.release()
        self.memory.free += batch.held
        if self.memory.waiters:
            self.memory.give_back(0)

    def finish(self) -> None:
        """Let the sender end once every record has its outcome."""
        self.finishing = True
        self.wake()

    def close(self, failure: Failure) -> int:
        """Accept no more records, and fail calls that wait for memory or serializers; return the number of pending calls."""
        self.closed_for = failure
        self.memory.fail_waiters(failure.error)
        for interrupt in tuple(self.interrupts.values()):
            interrupt(failure)
        return len(self.pending_calls)

    def reopen(self, failure: Failure) -> None:
        """Accept records again, if *failure* closed the accumulator."""
        if self.closed_for is failure:
            self.closed_for = None

    async def flush(self) -> None:
        """Send the appended records without lingering, and wait for their outcome."""
        call = object()
        try:
            self.flushing.add(call)
            self.wake()
            for batch in tuple(self.unresolved):
                await batch.wait_resolved()
            self.flushing.discard(call)
        except BaseException:  # a signal handler may raise at any line
            self.flushing.discard(call)
            raise
