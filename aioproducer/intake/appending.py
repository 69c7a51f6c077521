"""Calls that have to wait before they append: records of a topic stay in the order of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, final

from aioproducer.batching.accumulator import Accumulator, W
from aioproducer.batching.append_lock import Ticket
from aioproducer.batching.batch import Appended
from aioproducer.batching.memory_budget import MemoryBudget
from aioproducer.batching.partition_queue import PartitionQueue
from aioproducer.batching.receipts import ReceiptKind
from aioproducer.batching.topic import TopicQueues
from aioproducer.batching.waiters import Kind
from aioproducer.errors import BufferFull, BufferTimeout, MetadataTimeout, ProducerError
from aioproducer.metadata.updater import MetadataUpdater
from aioproducer.types import Headers, HeadersInput


class Ready(NamedTuple):
    """A record that only needs a place in a batch."""

    queue: PartitionQueue | None
    """None: whatever partition the topic's records without a key stick to."""
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    size: int


@final  # so its type alone tells it: `isinstance` takes three times as long, for every record
class Pending(NamedTuple):
    """A record whose call has to wait: for the topic's metadata, for its turn, or for memory."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    headers: Headers
    timestamp_ms: int
    ready: Ready | None
    """Set once the record is serialized and its partition chosen: both happen once."""


class TryAppend(Protocol):
    """`Intake.offer`, or what stands in for it."""

    def __call__(
        self,
        kind: Kind[W],
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: HeadersInput,
        timestamp_ms: int | None,
        /,
    ) -> W | Pending:
        """Append a record if that needs no waiting."""
        ...


Attempt = Callable[[], Appended | None]
"""Appends if that needs no waiting."""


def has_partition(queues: TopicQueues, partition: int | None) -> bool:
    """Whether the topic is known, and *partition*, if given, is one of its partitions."""
    return len(queues.leaders) > (partition or 0)


def no_such_partition(argument: str, topic: str, partition: int, count: int) -> ValueError:
    """Return the error for a partition that does not exist."""
    those = "1 partition, 0" if count == 1 else f"{count} partitions, 0 to {count - 1}"
    return ValueError(f"{argument}={partition}: {topic!r} has {those}")


def earlier_calls(queues: TopicQueues) -> str:
    """Return, for a message, how many calls for the topic wait to append."""
    count = queues.append_lock.calls
    return f"{count} earlier call{'' if count == 1 else 's'} for {queues.name!r}"


def no_memory(memory: MemoryBudget) -> BufferFull:
    """Return the error for a record that would have to wait for memory."""
    return BufferFull(
        f"{memory.free:,} of {memory.limit:,} bytes of buffer_memory are free, "
        + ("and others wait for them already" if memory.waiters else "too few for this record")
    )


class Caller:
    """A call on its way to the batches of a topic: in `with`, it and the records it has still to append are counted."""

    def __init__(
        self, queues: TopicQueues, records: int, *, accumulator: Accumulator, updater: MetadataUpdater
    ) -> None:
        self._queues = queues
        self._records = records
        self._accumulator = accumulator
        self._updater = updater
        self._permit: AppendPermit | None = None

    def __enter__(self) -> Self:
        self._accumulator.enter(self, self._queues, self._records)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._accumulator.leave(self, self._queues)

    def abandon(self, error: BaseException) -> None:
        """Clean up the call after *error*, which a signal handler may have raised at any point of the call."""
        if self._permit is not None:
            self._permit.abandon()
        self._accumulator.leave(self, self._queues)
        if not isinstance(error, (ProducerError, ValueError, asyncio.CancelledError)):
            self._accumulator.recount()

    def arrived(self, records: int) -> None:
        """Count *records* of the call as appended or failed."""
        self._accumulator.arrived(self, records)

    def permit(
        self,
        deadline: float,
        *,
        partition: int | None = None,
        argument: str = "partition",
        attempt: Attempt | None = None,
    ) -> AppendPermit:
        """Return a permit that waits until *deadline* at most; for *partition*, too, if given, as *argument*.

        *attempt* may be made by somebody else, when all is there but memory, instead of giving this call the lock;
        it appends all records.
        """
        queues, accumulator = self._queues, self._accumulator

        def append() -> Appended | None:
            if attempt is None or accumulator.closed_for is not None or not has_partition(queues, partition):
                return None
            appended = attempt()
            if appended is not None:
                self.arrived(self._accumulator.pending_calls[self])
            return appended

        self._permit = AppendPermit(
            queues,
            deadline,
            partition=partition,
            argument=argument,
            attempt=append,
            accumulator=accumulator,
            updater=self._updater,
        )
        return self._permit


class AppendPermit:
    """`async with`: from here on this call is the only one that appends to the topic, whose partitions are known.

    Everything it waits for shares one *deadline* in loop time: `max_block_ms` bounds metadata and
    memory together. Cancelled or late, it leaves nothing behind, and the next call goes on.
    Whatever it waited for, it raises what the producer was closed for, if it was meanwhile.

    Raises, when it is entered: BufferTimeout, MetadataTimeout; ValueError for a partition that does not exist; what
    the cluster says against the topic.
    """

    def __init__(
        self,
        queues: TopicQueues,
        deadline: float,
        *,
        partition: int | None,
        argument: str,
        attempt: Attempt,
        accumulator: Accumulator,
        updater: MetadataUpdater,
    ) -> None:
        self._queues = queues
        self._partition = partition
        self._argument = argument
        self._attempt = attempt
        self.deadline = deadline
        """When the present wait is over; it may be moved."""
        self.appended: Appended | None = None
        """What *attempt* returned, if somebody else has made it for us: then nothing is left to do."""
        self._accumulator = accumulator
        self._updater = updater
        self._ticket: Ticket[Appended] | None = None
        self._began_at = asyncio.get_running_loop().time()

    async def __aenter__(self) -> Self:
        queues, lock = self._queues, self._queues.append_lock
        ticket = self._ticket = lock.ticket(self._attempt)
        while True:
            if queues.leaders and not has_partition(queues, self._partition):
                await self._stand_aside(ticket)
            try:
                self.appended = await lock.acquire(ticket, self.deadline)
            except TimeoutError:
                raise self._late(f"{earlier_calls(queues)} to be appended") from None
            if self.appended is not None:
                return self
            try:
                self._check_open()
                await self._know_the_topic()
            except BaseException:
                lock.release()
                raise
            if has_partition(queues, self._partition):
                if lock.is_first(ticket):
                    return self
                lock.readmit([ticket])
            lock.release()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.appended is None:
            self._queues.append_lock.release()

    def abandon(self) -> None:
        """Leave the queue, and release the lock and reserved memory. May be called repeatedly."""
        if self._ticket is not None:
            self._queues.awaiting_partition.pop(self._ticket, None)
            self._queues.append_lock.withdraw(self._ticket)
        self._accumulator.memory.forget(self)

    async def reserve(self, size: int) -> int:
        """Wait for *size* bytes of `buffer_memory` and return *size*. Raises: BufferTimeout."""
        memory = self._accumulator.memory
        self._accumulator.wake()  # nothing lingers while somebody waits for memory
        try:
            await memory.take(size, self.deadline, self)
        except TimeoutError:
            raise self._late(f"{size:,} of buffer_memory={memory.limit:,} bytes") from None
        if self._accumulator.closed_for is not None:
            memory.give_back(memory.use(self))
        self._check_open()
        return memory.use(self)

    async def _know_the_topic(self) -> None:
        queues = self._queues
        if queues.leaders:
            return
        info = await self._updater.topic(queues.name, self.deadline)
        if not queues.leaders:  # it was known before anybody wrote to it
            self._accumulator.update_topic(queues.name, info.leaders, info.topic_id)
        self._check_open()

    async def _stand_aside(self, ticket: Ticket[Appended]) -> None:
        """Wait outside the line for the partition, which may have been added; return once the call is back in line.

        Raises: ValueError if two brokers, asked after the call, deny the partition.
        """
        queues, partition = self._queues, self._partition
        assert partition is not None, "a topic that is known has a partition"
        queues.awaiting_partition[ticket] = partition
        try:
            await self._updater.topic(queues.name, self.deadline, partition=partition)
        except MetadataTimeout:
            if ticket.served is None:
                raise
            # Let in, and perhaps served, in the iteration of the event loop in which time was up: `acquire` says which.
        except BaseException:
            queues.append_lock.withdraw(ticket)
            raise
        finally:
            queues.awaiting_partition.pop(ticket, None)
        if ticket.served is None:
            self._check_open()
            raise no_such_partition(self._argument, queues.name, partition, len(queues.leaders))

    def _check_open(self) -> None:
        if self._accumulator.closed_for is not None:
            raise self._accumulator.closed_for.error()

    def _late(self, what: str) -> BufferTimeout | MetadataTimeout:
        waited_s = asyncio.get_running_loop().time() - self._began_at
        known = bool(self._queues.leaders)
        kind = BufferTimeout if known else MetadataTimeout
        return kind(f"waited {waited_s:.3f} s for {what}; max_block_ms or the call's timeout_s ran out")


class Arrival:
    """A record whose call is in line; prepared once, whoever appends it."""

    __slots__ = (
        "_accumulator",
        "_called_at",
        "_kind",
        "_pending",
        "_prepare",
        "_queues",
        "_ready",
        "appended",
    )

    def __init__(
        self,
        prepare: Callable[[TopicQueues, Pending], Ready],
        accumulator: Accumulator,
        queues: TopicQueues,
        pending: Pending,
        called_at: float,
        kind: ReceiptKind,
    ) -> None:
        self._prepare = prepare
        self._kind = kind
        self._called_at = called_at
        self._accumulator = accumulator
        self._queues = queues
        self._pending = pending
        self._ready = pending.ready
        self.appended: Appended | None = None

    def prepared(self) -> Ready:
        """Return the record, serialized and with its partition chosen."""
        if self._ready is None:
            self._ready = self._prepare(self._queues, self._pending)
        return self._ready

    def attempt(self, reserved: int = 0) -> Appended | None:
        """Append the record once, with free memory or with *reserved* memory, even if an exception interrupts the call."""
        if self.appended is None:
            ready, kind = self.prepared(), self._kind
            future = kind.waiter()
            try:
                self.appended = self._accumulator.append_and_locate(
                    self._queues,
                    *ready,
                    kind=kind,
                    called_at=self._called_at,
                    reserved=reserved,
                    waiter=future,
                )
            except BaseException:  # raised by a signal handler before or after the append
                self.appended = self._accumulator.appended(future)
                raise
        return self.appended

    def append(self, reserved: int) -> Appended:
        """Append it with memory that was waited for."""
        appended = self.attempt(reserved)
        if appended is None:
            raise AssertionError("reserved memory did not suffice")
        return appended
