"""A batch that its user fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from aioproducer._core.clock import wall_ms
from aioproducer._core.intake.checks import as_bytes, as_headers, check_timestamp
from aioproducer._core.records.columns import BATCH_OVERHEAD, record_size_bound
from aioproducer.serializers import Serialized
from aioproducer.types import Headers

Serializer = Callable[[Any], Serialized]
"""A synchronous serializer, as in aiokafka."""


def serialized(argument: str, serializer: Serializer | None, data: Any) -> bytes | None:
    """Return a record's key or value as bytes. Raises: TypeError; whatever *serializer* raises."""
    if serializer is None:
        return as_bytes(argument, data)
    return as_bytes(f"what {argument}_serializer returned", serializer(data))


def whole_ms(timestamp: float | None) -> int | None:
    """Return *timestamp* without its fraction: `time.time() * 1000` is taken for one there."""
    return int(timestamp) if isinstance(timestamp, float) else timestamp


class AppendedRecord(NamedTuple):
    """A record in a batch that was not sent yet."""

    offset: int
    """Its place in the batch, from 0."""
    size: int
    """Its size in bytes, or a few more."""
    timestamp: int
    """Milliseconds since the epoch."""
    crc: None = None
    """Records have had none of their own since Kafka 0.11."""


class BatchBuilder:
    """Records for one partition, up to a size; made by `AIOKafkaProducer.create_batch`.

    Sizes are the upper bounds that the producer fills its own batches by, so what fits in here goes as one batch.
    """

    def __init__(
        self, max_size: int, *, key_serializer: Serializer | None, value_serializer: Serializer | None
    ) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.timestamps_ms: list[int] = []
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._max_size = max_size
        self._size = BATCH_OVERHEAD
        self._closed = False

    def append(
        self,
        *,
        timestamp: float | None,
        key: Any,
        value: Any,
        headers: Iterable[tuple[str, bytes | None]] | None = (),
    ) -> AppendedRecord | None:
        """Add a record; or return None if it does not fit, which closes the batch, or the batch is closed.

        The first one always fits. *timestamp* is in milliseconds since the epoch; None stands for now.

        Raises: TypeError, ValueError for an argument; whatever a serializer raises.
        """
        if self._closed:
            return None
        key = serialized("key", self._key_serializer, key)
        value = serialized("value", self._value_serializer, value)
        pairs = as_headers("headers", tuple(headers or ()))
        timestamp_ms = wall_ms() if timestamp is None else check_timestamp("timestamp", whole_ms(timestamp))
        size = record_size_bound(value, key, pairs)
        if self.values and self._size + size > self._max_size:
            self.close()  # a smaller one that still fits would overtake this one
            return None
        self._size += size
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(pairs)
        self.timestamps_ms.append(timestamp_ms)
        return AppendedRecord(len(self.values) - 1, size, timestamp_ms)

    def close(self) -> None:
        """Take no more records."""
        self._closed = True

    def closed(self) -> bool:
        """Whether it takes no more records: it was closed, or sent, or is full."""
        return self._closed

    def record_count(self) -> int:
        """Return how many records are in it."""
        return len(self.values)

    def size(self) -> int:
        """Return its size in bytes before compression, or a few more."""
        return self._size
