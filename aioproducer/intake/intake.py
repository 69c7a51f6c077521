"""From a call's arguments to a record in a batch."""

from __future__ import annotations

from asyncio import get_running_loop
from dataclasses import dataclass
from typing import Any, NamedTuple

from aioproducer.batching.accumulator import Accumulator, RecordFuture
from aioproducer.batching.batch import Batch
from aioproducer.batching.failure import Failure
from aioproducer.batching.queues import PartitionQueue, TopicQueues
from aioproducer.batching.settler import Settler
from aioproducer.clock import wall_ms
from aioproducer.cluster.partitioner import Partitioner
from aioproducer.cluster.refresher import Refresher
from aioproducer.errors import (
    BufferFull,
    DeliveryTimeout,
    MetadataUnavailable,
    ProducerError,
    SerializationError,
    WrongLoop,
)
from aioproducer.intake.checks import as_bytes, as_headers, check_partition, check_timestamp, check_topic
from aioproducer.intake.turn import Turn, has_partition, no_such_partition
from aioproducer.interceptors import InterceptorChain
from aioproducer.records.sizes import RECORD_OVERHEAD, SMALL_PAYLOAD, record_size_bound
from aioproducer.serializers import Serializer
from aioproducer.types import Headers, HeadersInput, ProducerRecord, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSettings:
    """What happens to a record before it is appended. Durations in seconds."""

    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner: Partitioner
    interceptors: InterceptorChain
    max_block_s: float
    """How long a call may wait for metadata and memory together."""


class Ready(NamedTuple):
    """A record that only needs a place in a batch."""

    queue: PartitionQueue | None
    """None: whatever partition the topic's records without a key stick to."""
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    size: int


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


class Intake:
    """Takes records from the five ways to send. `offer` never awaits; `wait` takes over where it could not finish."""

    def __init__(
        self,
        settings: IntakeSettings,
        *,
        accumulator: Accumulator,
        settler: Settler,
        refresher: Refresher,
    ) -> None:
        self.settings = settings
        self.loop = get_running_loop()
        self._accumulator = accumulator
        self._topics = accumulator.topics
        self._settler = settler
        self._refresher = refresher
        self._partitioner = settings.partitioner
        self._plain = not (settings.key_serializer or settings.value_serializer or settings.interceptors)
        self._sticky_keyless = settings.partitioner.keyless_is_sticky
        self._small = min(SMALL_PAYLOAD, accumulator.largest_record)

    def offer(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: HeadersInput,
        timestamp_ms: int | None,
    ) -> RecordFuture | Pending:
        """Append a record if that needs no waiting; otherwise return what `wait` goes on with.

        Raises: TypeError, ValueError, SerializationError, RecordTooLarge, WrongLoop; nothing is appended then.
        """
        self.check_loop()
        try:
            queues = self._topics[topic]
        except (KeyError, TypeError):  # unknown yet, or not even a str
            return self.pend(topic, value, key, partition, headers, timestamp_ms)
        if (
            self._plain
            and type(value) is bytes
            and (key is None or type(key) is bytes)
            and partition is None
            and timestamp_ms is None
            and not headers
            and queues.leaders
            and not queues.waiting
        ):  # the most common records by far: nothing to check, nothing to convert
            size = len(value) + RECORD_OVERHEAD if key is None else len(value) + len(key) + RECORD_OVERHEAD
            if size <= self._small:
                queue = None if key is None and self._sticky_keyless else self.choose(queues, key)
                future = self._accumulator.append(queues, queue, value, key, (), wall_ms(), size)
                if future is not None:
                    return future
        return self._append_pending(self.pend(topic, value, key, partition, headers, timestamp_ms))

    def _append_pending(self, pending: Pending) -> RecordFuture | Pending:
        queues = self._topics.get(pending.topic)  # an interceptor may have changed it
        if queues is None or queues.waiting or not has_partition(queues, pending.partition):
            return pending
        try:
            ready = self._prepare(queues, pending)
        except ProducerError as error:
            self._tell(pending, error)
            raise
        future = self._accumulator.append(queues, *ready)
        return pending._replace(ready=ready) if future is None else future

    def pend(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: HeadersInput,
        timestamp_ms: int | None,
    ) -> Pending:
        """Check a record and make it immutable, after the interceptors have seen it; `wait` appends it.

        Raises: TypeError, ValueError, naming the argument.
        """
        if self.settings.interceptors:
            record = ProducerRecord(topic, value, key, partition, headers, timestamp_ms)
            record = self.settings.interceptors.on_send(record)
            topic, value, key = record.topic, record.value, record.key
            partition, headers, timestamp_ms = record.partition, record.headers, record.timestamp_ms
        return Pending(
            topic=check_topic(topic),
            value=value if self.settings.value_serializer is not None else as_bytes("value", value),
            key=key if self.settings.key_serializer is not None else as_bytes("key", key),
            partition=None if partition is None else check_partition("partition", partition),
            headers=as_headers("headers", headers),
            timestamp_ms=wall_ms() if timestamp_ms is None else check_timestamp("timestamp_ms", timestamp_ms),
            ready=None,
        )

    def refusal(self, pending: Pending) -> Exception:
        """Return why *pending* would have to wait, as the error to raise where it may not."""
        topic, partition = pending.topic, pending.partition
        queues = self._topics.get(topic)
        if queues is None or not queues.leaders:
            self._refresher.touch(topic)
            return MetadataUnavailable(
                f"the partitions of {topic!r} are not known yet; they have been asked for"
            )
        if partition is not None and not has_partition(queues, partition):
            self._refresher.request_refresh([topic])
            return no_such_partition("partition", topic, partition, len(queues.leaders))
        if queues.waiting:
            return BufferFull(
                f"{queues.waiting} earlier calls for {topic!r} are waiting; this one may not overtake them"
            )
        memory = self._accumulator.memory
        return BufferFull(
            f"buffer_memory={memory.limit:,} bytes are in use but {memory.free:,},"
            f" and {len(memory.waiters)} calls wait for some"
        )

    async def wait(self, pending: Pending, called_at: float, timeout_s: float | None) -> RecordFuture:
        """Append *pending* as soon as its turn, the topic's metadata and memory allow; return its Future.

        The Future fails with DeliveryTimeout *timeout_s* after *called_at*, if that is not None.
        Cancelling before the append leaves nothing behind.

        Raises: MetadataTimeout, BufferTimeout; ValueError for a partition that does not exist;
            and as `offer` for what could not be checked there.
        """
        delivery_timeout_s = self._accumulator.settings.delivery_timeout_s
        limits_s = [self.settings.max_block_s, delivery_timeout_s]
        if timeout_s is not None:
            limits_s.append(timeout_s)
        queues = self._accumulator.topic(pending.topic)
        try:
            async with self.turn(queues, called_at + min(limits_s)) as turn:
                ready = pending.ready
                if ready is None:
                    await turn.metadata(pending.partition)
                    ready = self._prepare(queues, pending)
                future = self._accumulator.append(queues, *ready)
                if future is None:
                    reserved = self._accumulator.room_for(ready.size)
                    await turn.memory(reserved)
                    future = self._accumulator.append(queues, *ready, reserved=reserved)
                    if future is None:
                        msg = "reserved memory did not suffice"
                        raise AssertionError(msg)
                batch = self._accumulator.last_batch(queues, ready.queue)
        except ProducerError as error:
            self._tell(pending, error)
            raise
        self._accumulator.hasten(batch, called_at + delivery_timeout_s)
        if timeout_s is not None:
            self.limit(batch, future, called_at, timeout_s)
        return future

    def limit(self, batch: Batch, future: RecordFuture, called_at: float, timeout_s: float) -> None:
        """Fail *future*, which waits for a record of *batch*, at the call's own deadline, if that is earlier."""
        if called_at + timeout_s >= batch.deadline:
            return
        failure = Failure(
            DeliveryTimeout, f"{batch.queue}: not acknowledged within the call's timeout_s={timeout_s:g}"
        )
        timer = self.loop.call_at(called_at + timeout_s, self._settler.expire_waiter, batch, future, failure)
        future.add_done_callback(lambda _: timer.cancel())

    def check_loop(self) -> None:
        """Raise WrongLoop unless called on the event loop that the producer was started on."""
        try:
            here = get_running_loop()
        except RuntimeError:
            here = None
        if here is not self.loop:
            msg = (
                "a producer belongs to the event loop, thread and process that it was started in;"
                " start another one here, or hand the call over with asyncio.run_coroutine_threadsafe"
            )
            raise WrongLoop(msg)

    def turn(self, queues: TopicQueues, deadline: float) -> Turn:
        """Return a turn at *queues* that has to be over by *deadline*."""
        return Turn(queues, deadline, accumulator=self._accumulator, refresher=self._refresher)

    def choose(self, queues: TopicQueues, key: bytes | None) -> PartitionQueue | None:
        """Return the queue that the partitioner wants for *key*; None for the sticky one."""
        partition = self._partitioner.partition(queues.name, key, len(queues.leaders), queues.available)
        return None if partition is None else queues[partition]

    def serialized(self, argument: str, serializer: Serializer | None, topic: str, data: Any) -> bytes | None:
        """Return *data* as the user's serializer makes it bytes. Raises: SerializationError."""
        if serializer is None:
            return as_bytes(argument, data)
        try:
            return as_bytes(f"what {argument}_serializer returned", serializer(data))
        except Exception as error:
            msg = f"the {argument} of a record for {topic!r} ({type(data).__name__}) could not be serialized: {error}"
            raise SerializationError(msg) from error

    def _tell(self, pending: Pending, error: ProducerError) -> None:
        """Let the interceptors hear of a record that fails before it is appended, too."""
        where = TopicPartition(pending.topic, -1 if pending.partition is None else pending.partition)
        self.settings.interceptors.on_acknowledgement(None, error, where)

    def _prepare(self, queues: TopicQueues, pending: Pending) -> Ready:
        topic, raw_value, raw_key, partition, headers, timestamp_ms, _ = pending
        key = self.serialized("key", self.settings.key_serializer, topic, raw_key)
        value = self.serialized("value", self.settings.value_serializer, topic, raw_value)
        queue = self.choose(queues, key) if partition is None else queues[partition]
        size = record_size_bound(value, key, headers)
        self._accumulator.check_size(topic, size)
        return Ready(queue, value, key, headers, timestamp_ms, size)
