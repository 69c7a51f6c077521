"""Calls that wait before they append. Records of a topic keep the order of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final, NamedTuple, final

from aioproducer._core.batching.accumulator import Accumulator, Ready
from aioproducer._core.batching.admission import AppendLock, QueuedCall
from aioproducer._core.batching.batch import Place, RecordFuture
from aioproducer._core.batching.receipts import ReceiptKind
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.intake.serializing import (
    Contents,
    InContext,
    Serialization,
    SerializerAwaits,
    SerializerTurn,
    lock_for,
)
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer.errors import BufferTimeout, MetadataTimeout, ProducerError
from aioproducer.types import Headers

REFUSALS: Final = (ProducerError, ValueError, asyncio.CancelledError)
"""Exceptions that end a waiting call regularly; every other exception interrupts the call at any point."""


def has_partition(queues: TopicQueues, partition: int | None) -> bool:
    """Return True if the topic is known, and *partition*, if given, is one of its partitions."""
    return len(queues.leaders) > (partition or 0)


def no_such_partition(argument: str, topic: str, partition: int, count: int) -> ValueError:
    """Return the error for a partition that does not exist."""
    those = "1 partition, 0" if count == 1 else f"{count} partitions, 0 to {count - 1}"
    return ValueError(f"{argument}={partition}: {topic!r} has {those}")


def earlier_calls(topic: str, lock: AppendLock) -> str:
    """Return, for a message, the number of calls for *topic* that hold *lock* or wait for it."""
    count = lock.calls
    if not count:  # the earlier calls failed at the same time as this call
        return f"earlier calls for {topic!r}"
    return f"{count} earlier call{'' if count == 1 else 's'} for {topic!r}"


class WaitingCall(QueuedCall):
    """Pending call of a topic, which waits for earlier calls, metadata, async serializers and memory.

    `begin` sets the call up, `enter` counts its records, `take_turn` and `reserve` wait, and `end` always follows.
    All waits of a turn share one deadline: `max_block_ms` bounds metadata, serializers and memory together. A cancelled or
    late call keeps no memory and no lock. If the producer is closed during a wait, the call raises the producer's error.
    """

    __slots__ = (
        "_accumulator",
        "_began_at",
        "_updater",
        "argument",
        "deadline",
        "lock",
        "partition",
        "queues",
    )

    queues: TopicQueues
    partition: int | None
    """Requested partition, which the known metadata may lack; None for the partitioner's choice."""
    argument: str
    """Name of the argument with the partition, for messages."""
    deadline: float
    """Deadline of the call's waits (loop clock)."""
    lock: AppendLock
    """Lock of the call's turn: the topic's lock; for a call made inside a serializer, the lock of this serializer."""

    def begin(self, queues: TopicQueues, accumulator: Accumulator, updater: MetadataUpdater) -> None:
        """Set the topic, and the objects that the waits use."""
        self.served: asyncio.Future[bool] | None = None
        self.queues = queues
        self.lock = lock_for(queues)
        self.argument = "partition"
        self._accumulator = accumulator
        self._updater = updater

    def enter(self, records: int) -> None:
        """Count the call, and its number of *records* not yet appended."""
        self._accumulator.enter(self, self.queues, records)

    def end(self, error: BaseException | None = None) -> None:
        """Leave the queue, release the lock and return memory, also after an *error* at any point. `end` may be repeated."""
        self.queues.awaiting_partition.pop(self, None)
        self.lock.withdraw(self)
        if error is not None:
            self._accumulator.memory.forget(self)
        self._accumulator.leave(self, self.queues)
        if error is not None and not isinstance(error, REFUSALS):
            self._accumulator.recount()

    async def take_turn(self, deadline: float) -> bool:
        """Wait until the topic's partitions are known and only this call appends, at most until *deadline* (loop clock).

        The call queues behind all earlier calls, and `end_turn` must follow. Return True, without the turn, if another call
        has appended the record.

        Raises: BufferTimeout, MetadataTimeout; ValueError for a partition that does not exist; the cluster's error for the
            topic.
        """
        queues, lock = self.queues, self.lock
        self.take_number()
        self.deadline, self._began_at = deadline, asyncio.get_running_loop().time()
        while True:
            if queues.leaders and not has_partition(queues, self.partition):
                await self._await_partition()
            try:
                if await lock.acquire(self, deadline):
                    return True
            except TimeoutError:
                raise self._late(f"{earlier_calls(queues.name, lock)} to be appended") from None
            await self.recheck()
            await self.serialize()
            if has_partition(queues, self.partition):
                if lock.is_first(self):
                    return False
                lock.readmit([self])
            lock.release()

    def end_turn(self) -> None:
        """Let the later calls append."""
        self.lock.release()

    async def recheck(self) -> None:
        """Wait for the topic's metadata if the topic is unknown. Raises: the producer's error if the producer was closed."""
        self._check_open()
        queues = self.queues
        if queues.leaders:
            return
        info = await self._updater.topic(queues.name, self.deadline)
        if not queues.leaders:  # the metadata arrived before the queues existed
            self._accumulator.update_topic(queues.name, info.leaders, info.topic_id)
        self._check_open()

    async def serialize(self) -> None:
        """Await the record's serializers, after taking the lock and before choosing the partition; no-op by default."""

    async def awaited(self, serialization: Serialization) -> Contents:
        """Await *serialization* while holding the lock, at most until the deadline; check producer and topic again.

        Raises: SerializationError, SerializerTimeout, BufferTimeout, and the errors of `recheck`.
        """
        turn = SerializerTurn(self, self.deadline)
        try:
            contents = await turn.contents(serialization, self._accumulator, self._began_at)
        except TimeoutError as error:
            if isinstance(error, ProducerError):
                raise
            raise self._late("the append of calls made inside a serializer") from None
        await self.recheck()
        return contents

    async def reserve(self, size: int) -> int:
        """Wait for *size* bytes of `buffer_memory` and return *size*; return 0 if another call did the append.

        An earlier call that is back in the queue before the memory is free appends first. Raises: BufferTimeout.
        """
        memory, lock = self._accumulator.memory, self.lock
        self._accumulator.wake()  # no batch lingers while a call waits for memory
        while True:
            try:
                await memory.take(size, self.deadline, self)
                if self._accumulator.closed_for is None and lock.is_first(self):
                    return memory.use(self)
                memory.give_back(memory.use(self))
                self._check_open()
                lock.readmit([self])
                lock.release()
                if await lock.acquire(self, self.deadline):
                    return 0
            except TimeoutError:
                raise self._late(f"{size:,} of buffer_memory={memory.limit:,} bytes") from None

    async def _await_partition(self) -> None:
        """Wait outside the queue for the partition, which may be new; return once the call is queued again.

        Raises: ValueError if two brokers, asked after the start of the call, deny the partition.
        """
        queues, partition = self.queues, self.partition
        assert partition is not None, "every known topic has a partition"
        if self.lock is queues.append_lock:
            queues.awaiting_partition[self] = partition
        try:
            await self._updater.topic(queues.name, self.deadline, partition=partition)
        except MetadataTimeout:
            if self.served is None:
                raise
            # The call was readmitted in the loop iteration of its timeout: `acquire` has the outcome.
        queues.awaiting_partition.pop(self, None)
        if self.served is None and not has_partition(queues, partition):
            self._check_open()
            raise no_such_partition(self.argument, queues.name, partition, len(queues.leaders))

    def _check_open(self) -> None:
        if self._accumulator.closed_for is not None:
            raise self._accumulator.closed_for.error()

    def _late(self, what: str) -> BufferTimeout | MetadataTimeout:
        waited_s = asyncio.get_running_loop().time() - self._began_at
        kind = BufferTimeout if self.queues.leaders else MetadataTimeout
        return kind(f"waited {waited_s:.3f} s for {what}; max_block_ms or the call's timeout_s ran out")


@final  # callers compare the type of every record: `isinstance` costs three times as much
class PendingAppend(WaitingCall):
    """A checked record whose call has to wait: for the topic's metadata, for its turn, or for memory."""

    __slots__ = (
        "_called_at",
        "_context",
        "_kind",
        "_prepare",
        "_serializers",
        "awaits",
        "contents",
        "future",
        "headers",
        "key",
        "place",
        "ready",
        "timestamp_ms",
        "topic",
        "value",
    )

    topic: str
    value: Any
    key: Any
    partition: int | None
    headers: Headers
    timestamp_ms: int
    future: RecordFuture
    """Future of the record; unset before the first attempt."""

    def __init__(
        self, *record: *tuple[str, Any, Any, int | None, Headers, int], ready: Ready | None = None
    ) -> None:
        """*record*: topic, value, key, partition, headers and timestamp in milliseconds, all checked."""
        self.topic, self.value, self.key, self.partition, self.headers, self.timestamp_ms = record
        self.ready = ready
        """The serialized record with its chosen partition; None before the record is prepared."""
        self.place: Place | None = None
        """The record's place at its append; None before the append."""
        self.awaits: SerializerAwaits | None = None
        """Awaitable of a serializer that was called outside the call's turn; None without an awaitable."""
        self.contents: Contents | None = None
        """Results of the serializers, if the call awaited them."""

    def begin_at(
        self,
        called_at: float,
        queues: TopicQueues,
        accumulator: Accumulator,
        updater: MetadataUpdater,
        prepare: Callable[[TopicQueues, PendingAppend], Ready],
        kind: ReceiptKind,
        serializers: InContext | None = None,
    ) -> None:
        """Set the objects that the waits use. The record's deadline counts from *called_at* (loop clock)."""
        self.begin(queues, accumulator, updater)
        self._called_at = called_at
        self._prepare = prepare
        self._kind = kind
        self._serializers = serializers
        # Serializers run with the context variables of their call, even if another call attempts the append.
        self._context = copy_context()

    def attempt(self) -> bool:
        """Append the record for its call if the append needs no waiting; return True if the record is appended."""
        accumulator = self._accumulator
        if accumulator.closed_for is not None or not has_partition(self.queues, self.partition):
            return False
        if self._serializers is not None and self._serializers.awaits and self.contents is None:
            return False
        try:
            if not self._context.run(self.append):
                return False
        except SerializerAwaits as waits:
            self.awaits = waits
            return False
        accumulator.arrived(self, accumulator.pending_calls[self])
        return True

    def append(self, reserved: int = 0) -> bool:
        """Append the record with free or *reserved* memory; return False without memory. Repeated calls append once."""
        if self.place is None:
            ready, kind = self.prepared(), self._kind
            self.future = kind.waiter()
            try:
                self.place = self._accumulator.append_and_locate(
                    self.queues,
                    *ready,
                    kind=kind,
                    called_at=self._called_at,
                    waiter=self.future,
                    reserved=reserved,
                )
            except BaseException:  # raised by a signal handler before or after the append
                self.place = self._accumulator.place_of(self.future)
                raise
            if self.place is None and reserved:
                raise AssertionError("reserved memory did not suffice")
        return self.place is not None

    async def serialize(self) -> None:
        """Call and await the serializers once."""
        serializers = self._serializers
        if serializers is None or self.ready is not None or self.contents is not None:
            return
        record = (self.topic, self.headers, self.key, self.value)
        if self.awaits is None and not serializers.awaits:
            try:
                self.contents = serializers(*record)
            except SerializerAwaits as waits:
                self.awaits = waits
            else:
                return
        begun, self.awaits = self.awaits, None
        self.contents = await self.awaited(Serialization(serializers, record, begun=begun))

    def discard(self) -> None:
        """Drop the awaitable of a serializer that the call does not await."""
        if self.awaits is not None:
            self.awaits.discard()
            self.awaits = None

    def prepared(self) -> Ready:
        """Return the record, serialized and with its partition chosen."""
        if self.ready is None:
            self.ready = self._prepare(self.queues, self)
        return self.ready


class Begun(NamedTuple):
    """Record that interceptors have seen and whose serializers may await."""

    record: PendingAppend
    waits: SerializerAwaits | None = None
    """Awaitable that a serializer returned before the call waits for its turn; None if no serializer was called."""
