"""The fast path of an append: small records that need no conversion join the open batch of their partition."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from aioproducer._core.acceleration import fastest
from aioproducer._core.batching.accumulator import Accumulator, W
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.batching.waiters import Kind
from aioproducer._core.intake.appending import PendingAppend
from aioproducer._core.intake.checks import HIGHEST_TIMESTAMP
from aioproducer._core.partitioning import Murmur2Partitioner, Partitioner
from aioproducer._core.records.columns import HEADER_SIZES, RECORD_OVERHEAD, SMALL_PAYLOAD
from aioproducer.errors import ProducerError
from aioproducer.types import Headers, HeadersInput

NO_HEADERS: Final = ()
"""Default of the argument *headers* of every send method. CPython has one empty tuple, so `is` detects empty headers."""
_NOT_FAST: Final = 2**62
"""Size that stands for a value, key or headers that need a conversion: larger than every record of the fast path."""
_TIMESTAMPS: Final = HIGHEST_TIMESTAMP + 1


Arguments: TypeAlias = tuple[str, Any, Any, int | None, HeadersInput, int | None]
"""Arguments of a call for one record: topic, value, key, partition, headers, timestamp in milliseconds."""


class Append(Protocol):
    """Entry of `send`, `enqueue` and `send_nowait`; a producer has one object per state."""

    def append(self, kind: Kind[W], /, *record: *Arguments) -> W | PendingAppend:
        """Append a record and return its waiter, or return the record as a pending call if the call has to wait."""
        ...


class FastAppend:
    """Appends small records that need no conversion, serializer or interceptor; the general path gets all other records.

    After a failed check of the fast path, the general path repeats the checks of the record and raises the errors.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        partitioner: Partitioner,
        *,
        loop: AbstractEventLoop,
        running_loop: Callable[[], AbstractEventLoop],
        choose: Callable[[TopicQueues, bytes | None], PartitionQueue | None],
        refused: Callable[[str, int | None, Headers, BaseException], None],
        known: Callable[[str], TopicQueues | None],
        general: Append,
    ) -> None:
        """*choose*, *refused*, *known* and *general* are parts of the general path."""
        self._accumulator = accumulator
        self._topics = accumulator.topics
        self._running_loop = running_loop
        self._loop = loop
        self._choose, self._refused, self._known, self._general = choose, refused, known, general.append
        self.largest_record: int = min(SMALL_PAYLOAD, accumulator.settings.largest_record)
        """Largest size of a record on the fast path, in bytes, overhead included."""
        self.sticks: bool = partitioner.keyless_is_sticky
        """True if records without a key go to the sticky partition."""
        self._partition_of: Callable[..., Any] | None = None
        """Kafka's default partitioner, which raises nothing and chooses only existing partitions."""
        self.hashes: bool = type(partitioner) is Murmur2Partitioner
        """True if Kafka's default partitioner chooses the partition of a key."""
        if self.hashes:
            self._partition_of = partitioner.partition
        self._largest_value = self.largest_record - RECORD_OVERHEAD if self.sticks else -1

    def append(  # noqa: C901, PLR0912 - without a call per record
        self,
        kind: Kind[W],
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: HeadersInput,
        timestamp_ms: int | None,
        /,
    ) -> W | PendingAppend:
        """Append a record, or pass the record to the general path. Raises: the errors of `Intake.append`."""
        is_new = False
        try:
            queues = self._topics[topic]
            here = self._running_loop()
        except KeyError:
            is_new = True
        except (TypeError, RuntimeError):
            pass  # the topic is not hashable, or this thread has no event loop
        else:
            if here is not self._loop or not queues.leaders or queues.append_lock.held:
                pass
            elif (
                key is None
                and type(value) is bytes
                and partition is None
                and headers is NO_HEADERS
                and timestamp_ms is None
                and len(value) <= self._largest_value
            ):
                waiter = self._accumulator.append_to_open(queues, value, kind)
                if waiter is not None:
                    return waiter
            else:
                size = RECORD_OVERHEAD
                pairs: Headers = NO_HEADERS
                if value is not None:
                    size += len(value) if type(value) is bytes else _NOT_FAST
                if key is not None:
                    size += len(key) if type(key) is bytes else _NOT_FAST
                if headers is not NO_HEADERS:
                    pairs, of_headers = measured_headers(headers)
                    size += of_headers
                if (
                    size <= self.largest_record
                    and (partition is None or _is_within(partition, len(queues.leaders)))
                    and (timestamp_ms is None or _is_within(timestamp_ms, _TIMESTAMPS))
                ):
                    if partition is not None:
                        queue: PartitionQueue | None = queues.by_partition[partition]
                    else:
                        queue = self._queue(queues, key, pairs)
                    waiter = self._accumulator.append(
                        queues, queue, value, key, pairs, timestamp_ms, size, kind
                    )
                    if waiter is not None:
                        return waiter
                    at = self._accumulator.clock.fresh_ms() if timestamp_ms is None else timestamp_ms
                    ready = (queue, value, key, pairs, at, size)
                    return PendingAppend(queues.name, value, key, partition, pairs, at, ready=ready)
        if is_new and self._begins(topic):
            return self.append(kind, topic, value, key, partition, headers, timestamp_ms)
        return self._general(kind, topic, value, key, partition, headers, timestamp_ms)

    def _begins(self, topic: str) -> bool:
        """Return True if *topic* has queues now: create the queues if the metadata has its partitions."""
        try:
            here = self._running_loop()
        except RuntimeError:  # this thread has no event loop
            return False
        return here is self._loop and type(topic) is str and self._known(topic) is not None

    def _queue(self, queues: TopicQueues, key: bytes | None, headers: Headers) -> PartitionQueue | None:
        """Return the queue that the partitioner chooses; None for the sticky partition."""
        if key is None and self.sticks:
            return None
        if key is not None and self._partition_of is not None:
            return queues.by_partition[
                self._partition_of(queues.name, key, len(queues.leaders), queues.available)
            ]
        try:
            return self._choose(queues, key)
        except ProducerError as error:
            self._refused(queues.name, None, headers, error)
            raise


def _python_accelerated(front: FastAppend, *_: Any) -> Append:
    return front


_accelerated: Final = fastest("FastAppend", _python_accelerated)


def accelerated_append(
    front: FastAppend,
    accumulator: Accumulator,
    *,
    loop: AbstractEventLoop,
    running_loop: Callable[[], AbstractEventLoop],
) -> Append:
    """Return *front*, or an object in C that appends to open batches and passes all other records to *front*."""
    return _accelerated(
        front,
        accumulator.topics,
        accumulator.memory,
        accumulator.clock,
        accumulator.clock.now_ms,
        accumulator.open_for,
        accumulator.recover,
        running_loop,
        loop,
        TopicQueues,
        PartitionQueue,
        Batch,
        NO_HEADERS,
        front.largest_record - RECORD_OVERHEAD,
        front.sticks,
        front.hashes,
    )


def _is_within(number: object, stop: int) -> bool:
    return type(number) is int and 0 <= number < stop


def measured_headers(headers: Any) -> tuple[Headers, int]:
    """Return a snapshot of *headers* as pairs, and their size in a record; size `_NOT_FAST` selects the general path."""
    if type(headers) is dict:
        headers = headers.items()
    elif type(headers) is not list and type(headers) is not tuple:
        return (), _NOT_FAST
    pairs, size = tuple(headers), 0
    try:
        for pair in pairs:
            if type(pair) is not tuple:
                return (), _NOT_FAST
            name, data = pair
            if type(name) is not str:
                return (), _NOT_FAST
            size += HEADER_SIZES[name]
            if data is not None:
                if type(data) is not bytes:
                    return (), _NOT_FAST
                size += len(data)
    except ValueError:  # an item is no pair, or a name has no UTF-8 form
        return (), _NOT_FAST
    return pairs, size
