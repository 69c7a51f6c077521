"""Interfaces of interceptors: user code that the producer calls around every record."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from aioproducer.errors import ProducerError
from aioproducer.types import Headers, ProducerRecord, RecordMetadata, TopicPartition


class Interceptor(Protocol):
    """Methods of an interceptor. Every method is optional.

    Subclass `Interceptor`, or write a class with some of the methods. The producer calls all methods on the event loop, for
    every record, so the methods must be fast and must not block.
    """

    def on_send(self, record: ProducerRecord, /) -> ProducerRecord:
        """Return the record to send: *record*, changed or unchanged, or another record, also for another topic.

        Called before the partition is chosen and the record is serialized. *record* is a copy for this interceptor.
        Key, value and headers of *record* are objects of the caller: replace these objects, and never modify the objects
        in place. The headers of *record* are pairs, even if the caller has passed a mapping.
        """
        return record

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        /,
    ) -> None:
        """Called when a record is acknowledged or fails. Exactly one of *metadata* and *error* is not None.

        Called once for each record after `on_send`, even if the record fails before its append. The partition of
        *topic_partition* is -1 if the record failed before a partition was chosen. With a fourth parameter,
        `headers: Headers = ()`, the method receives the headers of the record (KIP-512), including headers that `on_send`
        has added.

        With a fifth parameter, `latency_s: float | None = None`, the method receives the time until the outcome, in
        seconds. The time starts with the first record of the batch, so the time is an upper bound, and exact for a single
        record. `latency_s` is None if the record failed before the record joined a batch.
        """
        return  # with an empty body, type checkers would treat the method as abstract

    def close(self) -> None:
        """Called when the producer is closed. No method is called after `close`."""
        return  # with an empty body, type checkers would treat the method as abstract


class HasOnSend(Protocol):
    """An interceptor with at least `on_send`."""

    def on_send(self, record: ProducerRecord, /) -> ProducerRecord:
        """See `Interceptor.on_send`."""
        ...


class HasOnAcknowledgement(Protocol):
    """An interceptor with at least `on_acknowledgement`."""

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        /,
    ) -> None:
        """See `Interceptor.on_acknowledgement`."""


class HasOnAcknowledgementWithHeaders(Protocol):
    """An interceptor with at least an `on_acknowledgement` that takes the record's headers."""

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: Headers,
        /,
    ) -> None:
        """See `Interceptor.on_acknowledgement`."""


class HasOnAcknowledgementWithLatency(Protocol):
    """An interceptor with at least an `on_acknowledgement` that takes the record's headers and latency."""

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: Headers,
        latency_s: float | None,
        /,
    ) -> None:
        """See `Interceptor.on_acknowledgement`."""


class HasClose(Protocol):
    """An interceptor with at least `close`."""

    def close(self) -> None:
        """See `Interceptor.close`."""


AnyInterceptor: TypeAlias = (
    HasOnSend
    | HasOnAcknowledgement
    | HasOnAcknowledgementWithHeaders
    | HasOnAcknowledgementWithLatency
    | HasClose
)
"""Types of an interceptor: an object with at least one of the methods."""
