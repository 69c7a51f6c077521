"""Spans of OpenTelemetry: one for each record, from the call to the acknowledgement.

    async with Producer("localhost:9092", interceptors=[TracingInterceptor()]) as producer: ...

Names of spans and attributes are those of the semantic conventions for messaging and Kafka, version 1.44.0. The
conventions are not stable yet; a later version of them is a later version of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from aioproducer.extras import needs

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as _missing:
    raise ImportError(needs("aioproducer.contrib.otel_tracing", "otel")) from _missing

from aioproducer import ProducerError, ProducerRecord, RecordMetadata, TopicPartition, __version__

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"


class TracingInterceptor:
    """Opens a span for each record, sends its context along in the headers, and ends it with the record's outcome.

    The span is a child of the caller's. The context goes into the headers as the configured propagator says; W3C's
    `traceparent` unless you have another. A header of that name that is there already is replaced.

    Put it last in `interceptors`: those behind it must leave its headers alone. A span whose record it cannot
    recognise by them ends when the producer is closed.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, client_id: str | None = None
    ) -> None:
        """*tracer_provider* is the global one by default. *client_id*, if given, is an attribute of the spans."""
        self._tracer = trace.get_tracer("aioproducer", __version__, tracer_provider, SCHEMA)
        self._attributes: dict[str, str | bool] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }
        if client_id is not None:
            self._attributes["messaging.client.id"] = client_id
        # By the identity of a header's value: a record keeps the very object, and whatever propagator made it,
        # it need not be understood. The value is kept here, too, so that no other can have its identity; and it has
        # two bytes at least, since of shorter ones ("1", sampled) there is one object for everybody.
        self._open: dict[int, tuple[Span, bytes]] = {}

    def on_send(self, record: ProducerRecord, /) -> ProducerRecord:
        """Begin the span of *record*."""
        given = record.headers.items() if isinstance(record.headers, Mapping) else record.headers
        headers = [
            (name, value) for name, value in given
        ]  # first: what is no header raises, and opens no span
        span = self._tracer.start_span(
            f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=self._attributes_of(record)
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        injected = [(name, text.encode()) for name, text in carrier.items()]
        if injected:
            record.headers = [*(each for each in headers if each[0] not in carrier), *injected]
        if span.is_recording():
            longest = max((value for _, value in injected), key=len, default=b"")
            if len(longest) > 1:
                self._open[id(longest)] = span, longest
            else:  # it could never be found again
                span.end()
        return record

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        /,
    ) -> None:
        """End the span of the record that *headers* are of."""
        for _, value in reversed(headers):
            found = self._open.pop(id(value), None)
            if found is not None:
                _end(found[0], metadata, error, topic_partition)
                return

    def close(self) -> None:
        """End the spans whose outcome never came."""
        while self._open:
            _, (span, _) = self._open.popitem()
            span.end()

    def _attributes_of(self, record: ProducerRecord) -> dict[str, str | bool]:
        attributes = {**self._attributes, "messaging.destination.name": record.topic}
        if isinstance(record.key, str | int | UUID):  # bytes have no canonical form as text
            attributes["messaging.kafka.message.key"] = str(record.key)
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        return attributes


def _end(
    span: Span,
    metadata: RecordMetadata | None,
    error: ProducerError | None,
    topic_partition: TopicPartition,
) -> None:
    if topic_partition.partition >= 0:
        span.set_attribute("messaging.destination.partition.id", str(topic_partition.partition))
    if metadata is not None and metadata.offset >= 0:
        span.set_attribute("messaging.kafka.offset", metadata.offset)
    if error is not None:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
