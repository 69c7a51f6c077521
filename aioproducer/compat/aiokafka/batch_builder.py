"""A batch that the user fills record by record."""

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
    """Return a record's key or value as bytes. Raises: TypeError; the errors of *serializer*."""
    if serializer is None:
        return as_bytes(argument, data)
    return as_bytes(f"what {argument}_serializer returned", serializer(data))


def whole_ms(timestamp: float | None) -> int | None:
    """Return *timestamp* without its fraction; aiokafka accepts `time.time() * 1000`."""
    return int(timestamp) if isinstance(timestamp, float) else timestamp


class AppendedRecord(NamedTuple):
    """A record in a batch that was not sent yet."""

    offset: int
    """Index in the batch, from 0."""
    size: int
    """Upper bound of the size, in bytes."""
    timestamp: int
    """Milliseconds since the epoch."""
    crc: None = None
    """Always None: records have no CRC since Kafka 0.11."""


class BatchBuilder:
    """Records for one partition, up to a size; created by `AIOKafkaProducer.create_batch`.

    Sizes are the producer's own upper bounds, so the records are sent as one batch.
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
        """Add a record. Return None if the batch is closed, or is closed now because the record does not fit.

        The first record always fits. *timestamp* is in milliseconds since the epoch; None stands for now.

        Raises: TypeError, ValueError for an argument; the errors of a serializer.
        """
        if self._closed:
            return None
        key = serialized("key", self._key_serializer, key)
        value = serialized("value", self._value_serializer, value)
        pairs = as_headers("headers", tuple(headers or ()))
        timestamp_ms = wall_ms() if timestamp is None else check_timestamp("timestamp", whole_ms(timestamp))
        size = record_size_bound(value, key, pairs)
        if self.values and self._size + size > self._max_size:
            self.close()  # a later, smaller record would overtake this record
            return None
        self._size += size
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(pairs)
        self.timestamps_ms.append(timestamp_ms)
        return AppendedRecord(len(self.values) - 1, size, timestamp_ms)

    def close(self) -> None:
        """Refuse further records."""
        self._closed = True

    def closed(self) -> bool:
        """Return True if the batch accepts no more records: it is closed, sent or full."""
        return self._closed

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self.values)

    def size(self) -> int:
        """Return an upper bound of the size before compression, in bytes."""
        return self._size
