"""Tracing with OpenTelemetry: one span per record, from the call to the acknowledgement.

    async with Producer("localhost:9092", interceptors=[TracingInterceptor()]) as producer: ...

Spans and attributes follow the semantic conventions for messaging and Kafka, version 1.44.0. The conventions are not
stable; this module will follow later versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal
from uuid import UUID

from aioproducer._core.extras import needs

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as _missing:
    raise ImportError(needs("aioproducer.contrib.otel_tracing", "otel")) from _missing

from aioproducer import ProducerError, ProducerRecord, RecordMetadata, TopicPartition, __version__

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"


class TracingInterceptor:
    """Interceptor that opens a span per record, adds the span's context to the headers, and ends the span with the outcome.

    The span is a child of the caller's span. The configured propagator writes the context into the headers; by default
    W3C's `traceparent`. An existing header of this name is replaced, unless *carried_context* keeps the header.

    Put the interceptor last in `interceptors`: later interceptors must not change the headers of the span. If the
    headers change, the span ends when the producer is closed.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        client_id: str | None = None,
        record_details: bool = True,
        carried_context: Literal["replace", "parent", "link"] = "replace",
    ) -> None:
        """Create the interceptor of one producer.

        Args:
            tracer_provider: source of the tracer, by default the global provider.
            client_id: value of the attribute `messaging.client.id`. Default: no attribute.
            record_details: False omits keys and error texts, which may quote brokers, from spans.
            carried_context: use of a trace context that a record carries in its headers already, as after a database
                outbox. "replace" replaces the carried context by the span's context. "parent" and "link" keep the
                headers: the span becomes a child of the carried context, or has a link to this context.

        Raises:
            ValueError: *carried_context* has another value.
        """
        if carried_context not in {"replace", "parent", "link"}:
            raise ValueError(f"carried_context = {carried_context!r}: expected 'replace', 'parent' or 'link'")
        self._details = record_details
        self._carried = carried_context
        self._tracer = trace.get_tracer("aioproducer", __version__, tracer_provider, SCHEMA)
        self._attributes: dict[str, str | bool] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }
        if client_id is not None:
            self._attributes["messaging.client.id"] = client_id
        # Keys are identities of header values, which records keep. The entry keeps the value alive, so its identity is
        # unique. Values of fewer than two bytes are shared objects in CPython, so such values are excluded as keys.
        self._open: dict[int, tuple[Span, bytes]] = {}

    def on_send(self, record: ProducerRecord, /) -> ProducerRecord:
        """Begin the span of *record*."""
        given = record.headers.items() if isinstance(record.headers, Mapping) else record.headers
        headers = [(name, value) for name, value in given]  # invalid headers raise before the span starts
        carried = None if self._carried == "replace" else _carried_context(headers)
        span = self._start_span(record, carried)
        if carried is None:
            carrier: dict[str, str] = {}
            propagate.inject(carrier, trace.set_span_in_context(span))
            context = [(name, text.encode()) for name, text in carrier.items()]
            others = [each for each in headers if each[0] not in carrier]
        else:
            fields = propagate.get_global_textmap().fields
            # Copies: other records may carry the same objects, and identity finds the span again.
            context = [(name, bytes(bytearray(value))) for name, value in headers if name in fields and value]
            others = [each for each in headers if each[0] not in fields]
        if context:
            record.headers = [*others, *context]
        if span.is_recording():
            longest = max((value for _, value in context), key=len, default=b"")
            if len(longest) > 1:
                self._open[id(longest)] = span, longest
            else:  # the acknowledgement could not find the span
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
        """End the span of the record with *headers*."""
        for _, value in reversed(headers):
            found = self._open.pop(id(value), None)
            if found is None:
                continue
            span = found[0]
            if topic_partition.partition >= 0:
                span.set_attribute("messaging.destination.partition.id", str(topic_partition.partition))
            if metadata is not None and metadata.offset >= 0:
                span.set_attribute("messaging.kafka.offset", metadata.offset)
            if error is not None:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR, str(error) if self._details else None))
            span.end()
            return

    def close(self) -> None:
        """End all open spans."""
        while self._open:
            _, (span, _) = self._open.popitem()
            span.end()

    def _start_span(self, record: ProducerRecord, carried: Context | None) -> Span:
        attributes = {**self._attributes, "messaging.destination.name": record.topic}
        if self._details and isinstance(record.key, str | int | UUID):  # bytes have no canonical form as text
            attributes["messaging.kafka.message.key"] = str(record.key)
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        link = carried is not None and self._carried == "link"
        return self._tracer.start_span(
            f"send {record.topic}",
            context=None if link else carried,
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            links=[Link(trace.get_current_span(carried).get_span_context())] if link else None,
        )


def _carried_context(headers: Sequence[tuple[str, bytes | bytearray | memoryview | None]]) -> Context | None:
    """Return the trace context in *headers*, or None without a valid context."""
    carrier = {name: bytes(value).decode("utf-8", "replace") for name, value in headers if value is not None}
    context = propagate.extract(carrier, Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None
