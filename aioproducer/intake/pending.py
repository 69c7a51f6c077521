"""A record between its call and its batch."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from aioproducer.batching.accumulator import W
from aioproducer.batching.queues import PartitionQueue
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
        waits: type[W],
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
