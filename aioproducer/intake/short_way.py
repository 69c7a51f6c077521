"""The short way of single records with keys and headers: nothing is converted, all is checked and measured in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from aioproducer.acceleration import fastest
from aioproducer.batching.accumulator import Accumulator, W
from aioproducer.batching.partition_queue import PartitionQueue
from aioproducer.batching.topic import TopicQueues
from aioproducer.batching.waiters import Kind
from aioproducer.errors import ProducerError
from aioproducer.intake.appending import PendingAppend
from aioproducer.intake.checks import HIGHEST_TIMESTAMP
from aioproducer.partitioning.partitioner import Murmur2Partitioner, Partitioner
from aioproducer.records.sizes import HEADER_SIZES, RECORD_OVERHEAD
from aioproducer.types import Headers, HeadersInput

_OTHER: Final = 2**62
"""Counts as the size of what has to go the long way: larger than anything that may go the short one."""
_NO_HEADERS: Final = ()
_TIMESTAMPS: Final = HIGHEST_TIMESTAMP + 1


class AppendShort(Protocol):
    """`ShortWay.append`."""

    def __call__(
        self,
        kind: Kind[W],
        queues: TopicQueues,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: HeadersInput,
        timestamp_ms: int | None,
        /,
    ) -> W | PendingAppend | None:
        """Append a record, or return None."""
        ...


class ShortWay:
    """Appends small records that are what they should be already, where no serializer or interceptor is to see them.

    With a key and two headers the long way takes three times as many instructions: hence two ways. What is checked is
    the same. The long way says what is wrong, so nothing is said here: a record that is not surely right goes there.
    """

    def __init__(
        self,
        partitioner: Partitioner,
        accumulator: Accumulator,
        up_to: int,
        choose: Callable[[TopicQueues, bytes | None], PartitionQueue | None],
        tell: Callable[[str, int | None, Headers, BaseException], None],
    ) -> None:
        """*up_to* is how large a record may be, at most; *choose* and *tell* are the long way's."""
        self._accumulator = accumulator
        self._up_to = up_to
        self._choose, self._tell = choose, tell
        self._keyless_is_sticky = partitioner.keyless_is_sticky
        self._partition_of_key: Callable[..., Any] | None = None
        """What need not be watched: it raises nothing, and chooses no partition that is not there."""
        if type(partitioner) is Murmur2Partitioner:
            self._partition_of_key = partitioner.partition

    def append(
        self,
        kind: Kind[W],
        queues: TopicQueues,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: HeadersInput,
        timestamp_ms: int | None,
        /,
    ) -> W | PendingAppend | None:
        """Append a record to *queues*, which has leaders, and return its waiter of *kind*; a `PendingAppend` without memory.

        Returns None for a record that has to go the long way; nothing has happened then. Raises: ProducerError.
        """
        size = RECORD_OVERHEAD
        if value is not None:
            size += len(value) if type(value) is bytes else _OTHER
        if key is not None:
            size += len(key) if type(key) is bytes else _OTHER
        if headers is not _NO_HEADERS:
            headers, of_headers = measured_headers(headers)
            size += of_headers
        if (
            size > self._up_to
            or not (partition is None or _is_within(partition, len(queues.leaders)))
            or not (timestamp_ms is None or _is_within(timestamp_ms, _TIMESTAMPS))
        ):
            return None
        if partition is None and key is not None and self._partition_of_key is not None:
            chosen = self._partition_of_key(topic, key, len(queues.leaders), queues.available)
            queue: PartitionQueue | None = queues.by_partition[chosen]
        else:
            queue = self._queue(queues, key, partition, headers)
        waiter = self._accumulator.append(queues, queue, value, key, headers, timestamp_ms, size, kind)
        if waiter is not None:
            return waiter
        if timestamp_ms is None:
            timestamp_ms = self._accumulator.clock.fresh_ms()
        ready = (queue, value, key, headers, timestamp_ms, size)
        return PendingAppend(queues.name, value, key, partition, headers, timestamp_ms, ready)

    def _queue(
        self, queues: TopicQueues, key: bytes | None, partition: int | None, headers: Headers
    ) -> PartitionQueue | None:
        if partition is not None:
            return queues[partition]
        if key is None and self._keyless_is_sticky:
            return None
        try:
            return self._choose(queues, key)
        except ProducerError as error:
            self._tell(queues.name, None, headers, error)
            raise


def _is_within(number: object, stop: int) -> bool:
    return type(number) is int and 0 <= number < stop


def python_measured_headers(headers: Any) -> tuple[Headers, int]:
    """Return a snapshot of *headers* as pairs, and what they take in a record; `_OTHER` if the long way has to look.

    The pairs themselves are kept: a tuple of a str and bytes can be changed by nobody.
    """
    if type(headers) is dict:
        headers = headers.items()
    elif type(headers) is not list and type(headers) is not tuple:
        return (), _OTHER
    pairs, size = tuple(headers), 0
    try:
        for pair in pairs:
            if type(pair) is not tuple:
                return (), _OTHER
            name, data = pair
            if type(name) is not str:
                return (), _OTHER
            size += HEADER_SIZES[name]
            if data is not None:
                if type(data) is not bytes:
                    return (), _OTHER
                size += len(data)
    except ValueError:  # no pair, or a name that has no UTF-8 form
        return (), _OTHER
    return pairs, size


measured_headers: Final = fastest("measured_headers", python_measured_headers)
