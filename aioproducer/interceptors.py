"""Interfaces of interceptors: user code that the producer calls around every record."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from aioproducer.errors import ProducerError
from aioproducer.types import Headers, ProducerRecord, RecordMetadata, TopicPartition


class Interceptor(Protocol):
    """What an interceptor may do; every method is optional.

    Subclass it to be spared the methods that you do not need, or write a class of your own with the ones
    that you do. All are called on the event loop, for every record: they must be quick and may not block.
    """

    def on_send(self, record: ProducerRecord, /) -> ProducerRecord:
        """Return the record to send: *record*, changed or not, or another one, even for another topic.

        Called before anything is looked up or serialized. *record* is this interceptor's own copy; its
        key, value and headers are the caller's, so put new ones in their place instead of changing them. Its
        headers are pairs here, also if they were given as a mapping.
        """
        return record

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        /,
    ) -> None:
        """Hear how a record ended: either *metadata* or *error* is given.

        Called once for each record that went through `on_send`, even if it failed before it was appended. The
        partition of *topic_partition* is -1 if the record failed before one was chosen. Declare a fourth
        parameter, `headers: Headers = ()`, to get the record's headers, too (KIP-512): what `on_send` put
        there is found again here.

        Declare a fifth one, `latency_s: float | None = None`, to get how long the record took, in seconds, counted from the
        first record of its batch on: that much at most, and for a record that waited alone exactly that. None if it
        failed before it was in a batch.
        """
        return  # an empty body would make it abstract to type checkers

    def close(self) -> None:
        """Hear that the producer is closed; nothing is called afterwards."""
        return  # as above


class HasOnSend(Protocol):
    """An interceptor with at least `on_send`."""

    def on_send(self, record: ProducerRecord, /) -> ProducerRecord:
        """See `Interceptor`."""
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
        """See `Interceptor`."""


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
        """See `Interceptor`."""


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
        """See `Interceptor`."""


class HasClose(Protocol):
    """An interceptor with at least `close`."""

    def close(self) -> None:
        """See `Interceptor`."""


AnyInterceptor: TypeAlias = (
    HasOnSend
    | HasOnAcknowledgement
    | HasOnAcknowledgementWithHeaders
    | HasOnAcknowledgementWithLatency
    | HasClose
)
"""What may be given as an interceptor: every method is optional, and one is needed."""
