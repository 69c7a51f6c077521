"""The general path of an append: checks, interceptors, serializers and partitioner."""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import cast

from aioproducer._core.batching.accumulator import Accumulator, Ready, W
from aioproducer._core.batching.batch import Batch, RecordFuture
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.receipts import ReceiptKind
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.batching.waiters import Acknowledgement, Failure, Kind
from aioproducer._core.clock import running_loop_of
from aioproducer._core.intake.appending import (
    REFUSALS,
    PendingAppend,
    earlier_calls,
    has_partition,
    no_such_partition,
)
from aioproducer._core.intake.checks import (
    as_bytes,
    as_headers,
    check_partition,
    check_timestamp,
    check_topic,
    exact_str,
    legal_headers,
)
from aioproducer._core.intake.fast_append import Append, Arguments, FastAppend, accelerated_append
from aioproducer._core.intake.serializing import InContext, SerializerAwaits, in_context, serialized
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.partitioning import ColumnPartitioner
from aioproducer._core.records.columns import record_size_bound
from aioproducer._core.settings import IntakeSettings
from aioproducer.errors import (
    BufferFull,
    DeliveryTimeout,
    MetadataUnavailable,
    ProducerError,
    TimeoutReason,
    WrongLoop,
)
from aioproducer.serializers import Serializer
from aioproducer.types import Headers, ProducerRecord


class Intake:
    """Appends the records of `send`, `enqueue` and `send_nowait`: at once, or by `append_when_possible`."""

    def __init__(
        self,
        settings: IntakeSettings,
        *,
        accumulator: Accumulator,
        completion: BatchCompletion,
        updater: MetadataUpdater,
        expired: Callable[[Batch, float, float], Failure],
        awaits: type[Acknowledgement],
        receipts: ReceiptKind,
    ) -> None:
        self.settings = settings
        self.expired = expired
        """Returns the failure of a batch for a call whose given `timeout_s` expired at the given time (loop clock)."""
        self.loop: AbstractEventLoop = get_running_loop()
        self._running_loop = running_loop_of(self.loop)
        self.receipts: ReceiptKind = receipts
        """Kind of waiter of a call that returns a Future or waits before its append."""
        self.awaits: type[Acknowledgement] = awaits
        """Kind of waiter of a call that only awaits its record."""
        self._accumulator = accumulator
        self._topics = accumulator.topics
        self._completion = completion
        self._updater = updater
        self._partitioner = settings.partitioner
        self.in_context: InContext | None = in_context(settings.key_serializer, settings.value_serializer)
        """Key and value serializer, if the key or the value serializer takes topic and headers; else None."""
        self.key_serializer: Serializer | None = None
        self.value_serializer: Serializer | None = None
        """Serializers called with only the key or the value; None with `in_context`, or without a serializer."""
        self.serializers: InContext | None = None
        """Key and value serializer, for calls that may await a serializer; None without a serializer."""
        if settings.key_serializer or settings.value_serializer:
            self.serializers = self.in_context or InContext(
                settings.key_serializer, settings.value_serializer
            )
        self._awaits: str | None = None if self.serializers is None else self.serializers.awaits
        """Name of a serializer that is a coroutine function; None without a coroutine function."""
        if self.in_context is None:
            self.key_serializer = cast("Serializer | None", settings.key_serializer)
            self.value_serializer = cast("Serializer | None", settings.value_serializer)
        self.front: Append = self
        """Entry of `send`, `enqueue` and `send_nowait`: the fast path, or this object with serializers or interceptors."""
        if not (settings.key_serializer or settings.value_serializer or settings.interceptors):
            fast = FastAppend(
                accumulator,
                settings.partitioner,
                loop=self.loop,
                running_loop=self._running_loop,
                choose=self.choose,
                refused=self.report_refused,
                known=self._known,
                general=self,
            )
            self.front = accelerated_append(
                fast, accumulator, loop=self.loop, running_loop=self._running_loop
            )

    def append(self, kind: Kind[W], /, *record: *Arguments) -> W | PendingAppend:
        """Append a record and return its waiter, or return the record as a pending call if the call has to wait.

        Raises: TypeError, ValueError, SerializationError, RecordTooLarge, WrongLoop, before the append.
        """
        self.check_loop()
        pending = self.check(*record)
        topic = pending.topic  # an interceptor may have changed the topic
        queues = self._topics.get(topic)
        if queues is None or not queues.leaders:
            queues = self._known(topic)
        if (
            queues is None
            or queues.append_lock.held
            or self._awaits
            or not has_partition(queues, pending.partition)
        ):
            return pending
        try:
            pending.ready = self.prepare(queues, pending)
            waiter = self._accumulator.append(queues, *pending.ready, kind)
        except SerializerAwaits as waits:
            pending.awaits = waits
            return pending
        except ProducerError as error:
            self.report_refused(pending.topic, pending.partition, pending.headers, error)
            raise
        return pending if waiter is None else waiter

    def _known(self, topic: str) -> TopicQueues | None:
        """Return the queues of *topic* before its first record, if the metadata has partitions of *topic*; else None."""
        info = self._updater.snapshot.topics.get(topic)
        if info is None or not info.partitions:
            return None
        queues = self._accumulator.topic(topic)
        self._accumulator.update_topic(topic, info.leaders, info.topic_id)
        return queues

    def check(self, *record: *Arguments) -> PendingAppend:
        """Call the interceptors, check the record and copy mutable parts.

        Raises: TypeError, ValueError, with the argument's name; ProducerError if an interceptor returned an invalid record.
        """
        if not self.settings.interceptors:
            return self._checked(*record)
        topic = exact_str(record[0])
        sent = self.settings.interceptors.on_send(ProducerRecord(topic, *record[1:]))
        try:
            return self._checked(
                sent.topic, sent.value, sent.key, sent.partition, sent.headers, sent.timestamp_ms
            )
        except (TypeError, ValueError) as error:
            try:
                self._checked(topic, *record[1:])
            except (TypeError, ValueError) as reason:  # the record was invalid before the interceptors
                self.report_refused(topic, None, legal_headers(sent.headers), reason)
                raise
            invalid = ProducerError(f"an interceptor returned an invalid record for {topic!r}: {error}")
            self.report_refused(topic, None, legal_headers(sent.headers), invalid)
            raise invalid from error

    def _checked(self, *record: *Arguments) -> PendingAppend:
        topic, value, key, partition, headers, timestamp_ms = record
        return PendingAppend(
            check_topic(topic),
            value if self.settings.value_serializer is not None else as_bytes("value", value),
            key if self.settings.key_serializer is not None else as_bytes("key", key),
            None if partition is None else check_partition("partition", partition),
            as_headers("headers", headers),
            self._accumulator.clock.fresh_ms()
            if timestamp_ms is None
            else check_timestamp("timestamp_ms", timestamp_ms),
        )

    def refusal(self, pending: PendingAppend) -> Exception:
        """Return the error for *pending* in a call that must not wait."""
        topic, partition = pending.topic, pending.partition
        queues = self._topics.get(topic)
        name = self._awaits
        if pending.awaits is not None and self.serializers is not None:
            name = self.serializers.names[pending.awaits.field]
            pending.discard()
        if name is not None:
            error: Exception = TypeError(
                f"{name}: the serializer is async, and send_nowait awaits nothing; use send or enqueue"
            )
        elif (
            queues is not None
            and queues.leaders
            and partition is not None
            and not has_partition(queues, partition)
        ):
            self._updater.request_refresh([topic])
            error = no_such_partition("partition", topic, partition, len(queues.leaders))
        else:
            error = self._not_now(topic, queues)
        self.report_refused(topic, partition, pending.headers, error)
        return error

    def _not_now(self, topic: str, queues: TopicQueues | None) -> BufferFull | MetadataUnavailable:
        if queues is None or not queues.leaders:
            self._updater.mark_used(topic, self.loop.time())
            return MetadataUnavailable(
                f"the partitions of {topic!r} are not known yet; their metadata is requested"
            )
        if queues.append_lock.held:
            return BufferFull(
                f"the record would have to wait behind {earlier_calls(topic, queues.append_lock)}"
            )
        memory = self._accumulator.memory
        return BufferFull(
            f"{memory.free:,} of {memory.limit:,} bytes of buffer_memory are free, "
            + ("and earlier calls are waiting for memory" if memory.waiters else "too few for this record")
        )

    async def append_when_possible(
        self, pending: PendingAppend, called_at: float, timeout_s: float | None
    ) -> RecordFuture:
        """Append *pending* as soon as earlier calls, metadata, serializers and memory allow; return its Future.

        The Future fails with DeliveryTimeout *timeout_s* seconds after *called_at*, unless *timeout_s* is None.
        Cancelling before the append discards the record.

        Raises: MetadataTimeout, BufferTimeout; ValueError for a partition that does not exist; the errors of `append`.
        """
        settings = self._accumulator.settings
        limits_s = [self.settings.max_block_s, settings.delivery_timeout_s]
        if timeout_s is not None:
            limits_s.append(timeout_s)
        queues = self._accumulator.topic(pending.topic)
        pending.begin_at(
            called_at,
            queues,
            self._accumulator,
            self._updater,
            self.prepare,
            self.receipts,
            self.serializers,
        )
        try:
            pending.enter(records=1)
            if not (await pending.take_turn(called_at + min(limits_s)) or pending.append()):
                reserved = await pending.reserve(settings.room_for(pending.prepared()[-1]))
                pending.append(reserved)
            pending.end()
        except BaseException as error:
            pending.end(error)
            pending.discard()
            # A record with a place was appended by another call.
            if pending.place is None and isinstance(error, REFUSALS):
                self.report_refused(pending.topic, pending.partition, pending.headers, error)
            raise
        if timeout_s is not None:
            self._limit(pending, called_at, timeout_s)
        return pending.future

    def report_refused(
        self, topic: str, partition: int | None, headers: Headers, error: BaseException
    ) -> None:
        """Count a record that fails before its append, and notify the interceptors."""
        self.settings.on_refused(1, error)
        self.settings.interceptors.on_send_error(topic, partition, headers, error)

    def _limit(self, pending: PendingAppend, called_at: float, timeout_s: float) -> None:
        """Fail the Future of *pending* at the call's deadline, if the batch's deadline is later than the call's."""
        assert pending.place is not None, "the record is appended"
        future, (batch, place) = pending.future, pending.place
        if (due_at := called_at + timeout_s) < batch.deadline:
            timer = self.loop.call_at(due_at, self._expire, future, batch, place, timeout_s, due_at)
            future.add_done_callback(lambda _: timer.cancel())

    def not_appended(
        self, what: str, topic: str | None, partition: int | None, *, timeout_s: float, due_at: float
    ) -> DeliveryTimeout:
        """Return the error of a call that did not append all its records within *timeout_s* seconds.

        The oldest batch of the partition, or of the topic, or of all batches gives the reason. *topic* or *partition* is
        None if the caller chose no common topic or partition for all records.
        """
        batches = self._accumulator.unresolved
        of_topic = [each for each in batches if each.topic_partition.topic == topic]
        of_partition = [each for each in of_topic if each.topic_partition.partition == partition]
        oldest = next(iter(of_partition or of_topic or batches), None)
        failure = None if oldest is None else self.expired(oldest, timeout_s, due_at)
        details = "" if failure is None else f"; the oldest record: {failure.message}"
        return DeliveryTimeout(
            f"{what} within the call's timeout_s={timeout_s:g}{details}",
            reason=TimeoutReason.LOOP_BLOCKED
            if failure is None
            else failure.reason or TimeoutReason.NO_ANSWER,
        )

    def _expire(
        self, future: RecordFuture, batch: Batch, place: int, timeout_s: float, due_at: float
    ) -> None:
        if not future.done():
            failure = self.expired(batch, timeout_s, due_at)
            fail = partial(self.receipts.expire, future)
            self._completion.expire_waiters(batch, fail, range(place, place + 1), failure)

    def check_loop(self) -> None:
        """Raise WrongLoop unless the call runs on the producer's event loop."""
        try:
            here = self._running_loop()
        except RuntimeError:
            here = None
        if here is not self.loop:
            raise WrongLoop(
                "a producer belongs to the event loop, thread and process that started it; start a producer in this"
                " event loop, or pass the call to the other loop with asyncio.run_coroutine_threadsafe"
            )

    def choose(self, queues: TopicQueues, key: bytes | None) -> PartitionQueue | None:
        """Return the queue that the partitioner chooses for *key*; None selects the sticky partition.

        Raises: ProducerError if the user's partitioner raises an error or chooses a partition that does not exist.
        """
        count = len(queues.leaders)
        try:
            partition = self._partitioner.partition(queues.name, key, count, queues.available)
            if partition is None:
                return None
            partition = index(partition)
            if not 0 <= partition < count:
                raise ValueError(f"partition {partition} does not exist; the topic has {count}")  # noqa: TRY301 - handled as an error of the partitioner
            return queues[partition]
        except Exception as error:
            raise ProducerError(f"the partitioner failed for a record of {queues.name!r}: {error}") from error

    def choose_column(self, queues: TopicQueues, keys: Sequence[bytes]) -> Sequence[int]:
        """Return the partitions that a ColumnPartitioner chooses for *keys*. Raises: the errors of `choose`."""
        partitioner, count = cast("ColumnPartitioner", self._partitioner), len(queues.leaders)
        try:
            chosen = partitioner.partition_column(queues.name, keys, count, queues.available)
            different = set(map(index, set(chosen)))
            valid = len(chosen) == len(keys) and 0 <= min(different) <= max(different) < count
        except Exception as error:
            raise ProducerError(f"the partitioner failed for records of {queues.name!r}: {error}") from error
        if not valid:
            raise ProducerError(
                f"the partitioner failed for records of {queues.name!r}: invalid result {chosen!r:.100}"
                f" for {len(keys)} keys and {count} partitions"
            )
        return chosen

    def prepare(self, queues: TopicQueues, pending: PendingAppend) -> Ready:
        """Serialize a record and choose its partition.

        Raises: SerializationError, RecordTooLarge, ProducerError; SerializerAwaits.
        """
        topic, key, value, headers = pending.topic, pending.key, pending.value, pending.headers
        if pending.contents is not None:
            key, value, headers = pending.contents
        elif self.in_context is not None:
            key, value, headers = self.in_context(topic, headers, key, value)
        else:
            key = serialized("key", self.key_serializer, topic, key)
            try:
                value = serialized("value", self.value_serializer, topic, value)
            except SerializerAwaits as waits:
                waits.key = key
                raise
        size = record_size_bound(value, key, headers)
        # The size is checked first, because a partitioner hashes keys of any size.
        self._accumulator.settings.check_size(topic, size)
        partition = pending.partition
        queue = self.choose(queues, key) if partition is None else queues[partition]
        return queue, value, key, headers, pending.timestamp_ms, size
