"""`send_many` calls that append in order, for callers that split a long column into several calls."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

from aioproducer._core.acceleration import accelerated
from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.admission import AppendLock, QueuedCall
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.intake.appending import Begun, WaitingCall, has_partition
from aioproducer._core.intake.checks import check_timeout
from aioproducer._core.intake.intake import Intake
from aioproducer._core.intake.preparing import USER_CODE_SLICE_S, Group, Preparing, with_contents
from aioproducer._core.intake.rows import check_rows
from aioproducer._core.intake.serializing import Serialization
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer.errors import BufferTimeout, ProducerError, SerializationError, SerializerTimeout
from aioproducer.errors.send_many import SendManyResult


class OrderedCalls:
    """Calls that append one after the other per topic. Chunks of unordered calls may be appended between two calls."""

    def __init__(self) -> None:
        self._locks: dict[str, AppendLock] = {}

    @asynccontextmanager
    async def wait_turn(self, topic: str, deadline: float) -> AsyncIterator[None]:
        """Wait for the earlier calls, at most until *deadline* (loop clock). Raises: BufferTimeout."""
        lock = self._locks.setdefault(topic, AppendLock())
        try:
            began_at = asyncio.get_running_loop().time()
            try:
                await lock.acquire(QueuedCall(), deadline)
            except TimeoutError:
                waited_s = asyncio.get_running_loop().time() - began_at
                raise BufferTimeout(
                    f"waited {waited_s:.3f} s for the records of an earlier call for {topic!r} to be appended;"
                    " max_block_ms or the call's timeout_s ran out"
                ) from None
            try:
                yield
            finally:
                lock.release()
        finally:
            # A later call may have created another lock since the deadline of this call.
            if not lock.held and self._locks.get(topic) is lock:
                del self._locks[topic]

    async def wait_all(self, topic: str) -> None:
        """Wait until the present calls for *topic* have appended their records or failed."""
        async with self.wait_turn(topic, math.inf):
            pass


CHUNK_RECORDS: Final = 10_000 if accelerated else 4_096
"""Number of records after which a `send_many` call yields to other calls of the topic and to the event loop.

A chunk takes a few milliseconds. Smaller chunks end batches early: while the call yields, an idle sender drains batches.
"""


class ManyIntake:
    """Intake of `send_many` calls: appends columns by chunk and partition, as far as memory allows."""

    def __init__(
        self,
        intake: Intake,
        *,
        accumulator: Accumulator,
        completion: BatchCompletion,
        updater: MetadataUpdater,
    ) -> None:
        self._intake = intake
        self._settings = intake.settings
        self._accumulator = accumulator
        self._completion = completion
        self._updater = updater
        self._preparing = Preparing(intake, accumulator=accumulator)

    async def send_columns(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        timeout_s: float | None = None,
        ordered: OrderedCalls | None = None,
        **columns: Any,
    ) -> SendManyResult:
        """Check the arguments of `Producer.send_many` and send the records, behind earlier calls of *ordered*."""
        self._intake.check_loop()
        later = (self._settings.value_serializer is not None, self._settings.key_serializer is not None)
        rows = check_rows(topic, values, serialized_later=later, **columns)
        result = await self.send(rows, check_timeout(timeout_s), ordered)
        result.raise_failures()
        return result

    async def send(
        self, rows: Rows, timeout_s: float | None, ordered: OrderedCalls | None = None
    ) -> SendManyResult:
        """Append all of *rows* and wait for their outcomes. Cancelling ends the call; appended records are still sent."""
        loop = self._intake.loop
        call = SendManyCall(rows.topic, len(rows), loop)
        deadline = timer = None
        if timeout_s is not None:
            deadline = loop.time() + timeout_s
            timer = loop.call_at(deadline, self._expire, call, timeout_s, deadline)
        try:
            sending = _Sending(rows, call, deadline, timeout_s)
            sending.begin(self._accumulator.topic(rows.topic), self._accumulator, self._updater)
            serializers = self._intake.serializers
            sending.awaits = serializers is not None and serializers.awaits is not None
            await self._append(sending, ordered)
            await call.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return call.result

    async def _append(self, sending: _Sending, ordered: OrderedCalls | None) -> None:
        rows, call = sending.rows, sending.call
        try:
            sending.enter(len(rows))
            until = self._block_deadline(sending)
            async with nullcontext() if ordered is None else ordered.wait_turn(rows.topic, until):
                await self._append_chunks(sending)
            sending.end()
        except BaseException as error:
            sending.end(error)
            if isinstance(error, ProducerError):
                for rest in sending.begun():
                    self._preparing.fail(rest, error, call)
                remaining = rows.positions[sending.taken :]
                self._settings.on_refused(len(remaining), error)
                call.failed(remaining, Failure.of(error))  # interceptors have not seen `remaining`
                return
            if isinstance(error, asyncio.CancelledError):
                for rest in sending.begun():
                    self._preparing.report_refused(rest, asyncio.CancelledError)
            raise
        finally:
            self._seal(sending.queues, call)

    async def _append_chunks(self, sending: _Sending) -> None:
        """Append all records, chunk by chunk. Each chunk takes a turn, so other calls wait for one chunk at most."""
        queues = sending.queues
        sending.partition, sending.argument = _highest_partition(sending.rows, queues)
        while sending.has_more():
            await sending.take_turn(self._block_deadline(sending))
            sending.partition = None  # `take_turn` has found the partition
            if not sending.groups:
                await self._prepare_chunk(sending)
            self._extend(sending)
            # `turn_bytes` limits a turn: small calls stay together, and other calls wait for a short time.
            turn_bytes = max(1, min(queues.limits.ready, self._accumulator.memory.limit // 4))
            while sending.groups and turn_bytes > 0:
                sending.deadline = self._block_deadline(sending)  # each wait has its own deadline
                reserved = self._accumulator.settings.room_for(sending.groups[0][1].sizes[0])
                turn_bytes -= self._extend(sending, await sending.reserve(reserved))
            sending.end_turn()
            if sending.has_more() and not sending.groups:
                await asyncio.sleep(0)
                self._check_time(sending)

    async def _prepare_chunk(self, sending: _Sending) -> None:
        """Pass the next rows through user code once, and group them by partition; rows may fail."""
        if not sending.prepared and not sending.awaits:
            chunk = sending.rows.slice(sending.taken, sending.taken + CHUNK_RECORDS)
            sending.prepared, taken = self._preparing.prepared(chunk, sending.call)
            sending.awaiting = self._preparing.begun
            sending.awaits = sending.awaiting is not None
            sending.taken += taken
            self._accumulator.arrived(sending, taken - len(sending.prepared))
        if sending.prepared or not sending.awaits:
            self._group(sending)
        else:
            await self._await_chunk(sending)

    def _group(self, sending: _Sending) -> None:
        """Group prepared rows by partition; rows may fail."""
        rows = sending.prepared
        groups, taken = self._preparing.grouped(sending.queues, rows, sending.call)
        sending.prepared = rows.slice(taken, len(rows))
        sending.groups.extend(groups)
        self._accumulator.arrived(sending, taken - sum(len(group) for _, group in groups))

    async def _await_chunk(self, sending: _Sending) -> None:
        """Pass rows through user code that awaits, row by row, for `USER_CODE_SLICE_S`; append rows while memory is free."""
        now, start = self._intake.loop.time, sending.taken
        until = now() + USER_CODE_SLICE_S
        while sending.taken < min(len(sending.rows), start + CHUNK_RECORDS) and not sending.groups:
            await self._await_row(sending)
            self._accumulator.arrived(sending, 1 - len(sending.prepared))
            self._group(sending)
            self._extend(sending)
            if now() >= until:
                return

    async def _await_row(self, sending: _Sending) -> None:
        """Pass the next row through interceptors and serializers; the row may fail."""
        index, begun, serializers = sending.taken, sending.awaiting, self._intake.serializers
        assert serializers is not None, "a serializer is async"
        position = sending.rows.positions[index]
        try:
            begun = begun or Begun(self._preparing.intercepted(sending.rows, index))
        except ProducerError as error:  # `intercepted` has notified the interceptors
            sending.taken = index + 1
            sending.call.failed([position], Failure.of(error))
            return
        sending.awaiting, record = begun, begun.record
        contents = (record.topic, record.headers, record.key, record.value)
        sending.deadline = self._block_deadline(sending)
        try:
            made = await sending.awaited(Serialization(serializers, contents, position, begun.waits))
        except SerializerTimeout:
            raise  # each further record might wait for the same time
        except SerializationError as error:
            self._preparing.fail(sending.begun_row(), error, sending.call)
        else:
            record.key, record.value, record.headers = made
            sending.prepared = self._preparing.measured(sending.begun_row(), sending.call)

    def _extend(self, sending: _Sending, reserved: int = 0) -> int:
        """Append `groups` in order, as far as memory allows; return the bytes appended with *reserved* memory."""
        size, measured, done = 0, bool(reserved), 0
        while sending.groups:
            queue, rows = sending.groups[0]
            done = self._accumulator.extend(
                sending.queues, queue, rows, sending.call, reserved, called_at=sending.waits_since
            )
            reserved = 0
            self._accumulator.arrived(sending, done)
            if measured:
                size += sum(rows.sizes[:done])
            if done < len(rows):
                sending.groups[0] = queue, rows.slice(done, len(rows))
                break
            sending.groups.popleft()
        if done:
            sending.waits_since = self._intake.loop.time()
        return size

    def _check_time(self, sending: _Sending) -> None:
        due_at, timeout_s = sending.due_at, sending.timeout_s
        if due_at is not None and timeout_s is not None and self._intake.loop.time() >= due_at:
            topic, partitions = sending.rows.topic, sending.rows.partitions
            partition = partitions if isinstance(partitions, int) else None
            raise self._intake.not_appended(
                f"{topic!r}: not appended", topic, partition, timeout_s=timeout_s, due_at=due_at
            )

    def _block_deadline(self, sending: _Sending) -> float:
        block_s = min(self._settings.max_block_s, self._accumulator.settings.delivery_timeout_s)
        until = self._intake.loop.time() + block_s
        return until if sending.due_at is None else min(until, sending.due_at)

    def _seal(self, queues: TopicQueues, call: SendManyCall) -> None:
        """Seal the call's last batches, because `send_many` never lingers."""
        now, batches = self._intake.loop.time(), {each.batch for each in call.live}
        for partition in call.partitions:
            batch = queues[partition].open
            if batch is not None and batch in batches:
                try:
                    self._accumulator.seal(batch, now)
                except BaseException:  # a signal handler may raise before the budget is changed
                    self._accumulator.recount()
                    raise

    def _expire(self, call: SendManyCall, timeout_s: float, due_at: float) -> None:
        for waiters in tuple(call.live):
            batch = waiters.batch  # `batch` is None if an interceptor ended the wait
            if batch is not None:
                failure = self._intake.expired(batch, timeout_s, due_at)
                indices = range(waiters.start, waiters.start + len(waiters))
                self._completion.expire_waiters(batch, waiters.fail, indices, failure)


class _Sending(WaitingCall):
    """A `send_many` call, with its progress."""

    def __init__(self, rows: Rows, call: SendManyCall, due_at: float | None, timeout_s: float | None) -> None:
        self.rows = rows
        self.timeout_s = timeout_s
        self.call = call
        self.due_at = due_at
        """End of `timeout_s` (loop clock); None without a timeout."""
        self.waits_since: float = asyncio.get_running_loop().time()
        """Start time of the next record's deadline: the time of the call, or of the previous record."""
        self.taken = 0
        """Number of `rows` that were prepared."""
        self.prepared: Rows = rows.slice(0, 0)
        """Prepared rows without a partition yet."""
        self.awaits: bool = False
        """True if serializers are awaited: a serializer is a coroutine function, or has returned an awaitable."""
        self.awaiting: Begun | None = None
        """Next row, after its interceptors and while its serializers await; None between rows."""
        self.groups: deque[Group] = deque()
        """Rows with a partition, which wait only for memory."""

    def has_more(self) -> bool:
        """True if rows are left to append."""
        return bool(self.groups or self.prepared or self.taken < len(self.rows))

    def begun(self) -> Iterator[Rows]:
        """Yield the rows that interceptors have seen and that are not appended."""
        for _, rows in self.groups:
            yield rows
        yield self.prepared
        if self.awaiting is not None:
            if self.awaiting.waits is not None:
                self.awaiting.waits.discard()
            yield self.begun_row()

    def begun_row(self) -> Rows:
        """Return the row of `awaiting`, which counts as prepared from now on."""
        assert self.awaiting is not None, "interceptors have seen the next row"
        row = self.rows.slice(self.taken, self.taken + 1)
        record, self.awaiting, self.taken = self.awaiting.record, None, self.taken + 1
        return with_contents(row, [record])


def _highest_partition(rows: Rows, queues: TopicQueues) -> tuple[int | None, str]:
    """Return the highest requested partition, and the argument that names this partition in errors."""
    highest = rows.highest_partition()
    if highest is None or has_partition(queues, highest) or not isinstance(rows.partitions, Sequence):
        return highest, "partition"
    return highest, f"partitions[{rows.partitions.index(highest)}]"
