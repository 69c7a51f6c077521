from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Setter, TextMapPropagator, default_setter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aioproducer import ProducerRecord, SendManyError, SerializationError, TopicAuthorizationFailed
from aioproducer._core.extras import needs
from aioproducer.contrib.otel_tracing import TracingInterceptor
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, producing, scenario


class Traced:
    """A tracer that keeps its spans, and the interceptor that makes them."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.interceptor = self.make_interceptor()

    def make_interceptor(self, **options: Any) -> TracingInterceptor:
        return TracingInterceptor(tracer_provider=self.provider, client_id="me", **options)

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    @property
    def sends(self) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name.startswith("send ")]


def traceparent(span: ReadableSpan) -> bytes:
    """W3C's header for a span: https://www.w3.org/TR/trace-context/."""
    found = span.get_span_context()
    assert found is not None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}".encode()


@pytest.fixture
def propagator() -> Iterator[Callable[[TextMapPropagator], None]]:
    """Change the global propagator."""
    before = propagate.get_global_textmap()
    yield propagate.set_global_textmap
    propagate.set_global_textmap(before)


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@scenario
async def test_record_has_a_child_span_and_carries_its_context() -> None:
    traced = Traced()
    async with producing(interceptors=[traced.interceptor], acquainted=False) as (producer, cluster):
        with traced.tracer.start_as_current_span("request") as request:
            await producer.send(TOPIC, b"v", headers={"own": b"1"})
        [span] = traced.sends
        assert span.name == "send orders"
        assert span.kind is SpanKind.PRODUCER
        assert span.parent == request.get_span_context()
        assert span.status.status_code is StatusCode.UNSET
        assert facts(span) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "orders",
            "messaging.client.id": "me",
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": 0,
        }
        [record] = cluster.records(TOPIC, 0)
        assert record.headers == (("own", b"1"), ("traceparent", traceparent(span)))


@scenario
async def test_send_many_has_a_span_per_record() -> None:
    traced = Traced()
    async with producing(partitions=2, interceptors=[traced.interceptor], acquainted=False) as (
        producer,
        cluster,
    ):
        with traced.tracer.start_as_current_span("request") as request:
            await producer.send_many(TOPIC, [b"a", b"b", b"c"], partitions=[1, 0, 1])
        assert [span.parent for span in traced.sends] == [request.get_span_context()] * 3
        sent = {
            (str(partition), record.offset): dict(record.headers)["traceparent"]
            for partition in range(2)
            for record in cluster.records(TOPIC, partition)
        }
        assert len(set(sent.values())) == 3
        assert sent == {
            (
                facts(span)["messaging.destination.partition.id"],
                facts(span)["messaging.kafka.offset"],
            ): traceparent(span)
            for span in traced.sends
        }


@scenario
async def test_failure_is_in_the_span_of_its_record() -> None:
    traced = Traced()
    async with producing(
        interceptors=[traced.interceptor], acquainted=False, value_serializer=str.encode, linger_ms=100
    ) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)
        with pytest.raises(TopicAuthorizationFailed):
            await producer.send(TOPIC, "v")
        with pytest.raises(SerializationError):
            await producer.send(TOPIC, 5)
        with pytest.raises(SendManyError):
            await producer.send_many(TOPIC, ["good", 5])
    kinds = [facts(span).get("error.type") for span in traced.sends]
    assert kinds == ["TopicAuthorizationFailed", "SerializationError", "SerializationError", None]
    refused, unserializable, _, good = traced.sends
    assert facts(refused)["messaging.destination.partition.id"] == "0"
    assert "messaging.kafka.offset" not in facts(refused)
    assert "messaging.destination.partition.id" not in facts(unserializable)
    assert unserializable.status.status_code is StatusCode.ERROR
    assert "could not be serialized" in (unserializable.status.description or "")
    assert facts(good)["messaging.kafka.offset"] == 0


@scenario
async def test_span_ends_at_the_acknowledgement() -> None:
    traced = Traced()
    async with producing(interceptors=[traced.interceptor], acquainted=False, linger_ms=500) as (producer, _):
        await producer.partitions_for(TOPIC)
        future = producer.send_nowait(TOPIC, b"v")
        assert traced.sends == []
        await future
        assert len(traced.sends) == 1


@scenario
async def test_unsampled_record_carries_the_decision() -> None:
    traced = Traced(sampler=ALWAYS_OFF)
    async with producing(interceptors=[traced.interceptor], acquainted=False) as (producer, cluster):
        await producer.send(TOPIC, b"v")
        [record] = cluster.records(TOPIC, 0)
        *_, flags = (dict(record.headers)["traceparent"] or b"").split(b"-")
        assert int(flags, 16) & 1 == 0
    assert traced.ended == []


@scenario
async def test_headers_are_unchanged_without_a_tracer() -> None:
    interceptor = TracingInterceptor(tracer_provider=trace.NoOpTracerProvider())
    async with producing(interceptors=[interceptor], acquainted=False) as (producer, cluster):
        await producer.send(TOPIC, b"v", headers={"own": b"1"})
        [record] = cluster.records(TOPIC, 0)
        assert record.headers == (("own", b"1"),)


@scenario
async def test_context_of_a_forwarded_record_is_replaced() -> None:
    traced = Traced()
    async with producing(interceptors=[traced.interceptor], acquainted=False) as (producer, cluster):
        await producer.send(TOPIC, b"v", headers=[("traceparent", b"old"), ("own", b"1"), ("own", b"2")])
        [record] = cluster.records(TOPIC, 0)
        [span] = traced.sends
        assert record.headers == (("own", b"1"), ("own", b"2"), ("traceparent", traceparent(span)))


@scenario
async def test_span_is_matched_with_any_headers_of_the_propagator(
    propagator: Callable[[TextMapPropagator], None],
) -> None:
    propagator(CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()]))
    traced = Traced()
    async with producing(interceptors=[traced.interceptor], acquainted=False) as (producer, cluster):
        token = context.attach(baggage.set_baggage("tenant", "x"))
        try:
            await producer.send_many(TOPIC, [b"a", b"b"])
        finally:
            context.detach(token)
        assert [facts(span)["messaging.kafka.offset"] for span in traced.sends] == [0, 1]
        assert [name for name, _ in cluster.records(TOPIC, 0)[0].headers] == ["traceparent", "baggage"]


class EndsWith(TraceContextTextMapPropagator):
    """Adds a header after W3C's with a value shared by all records, like B3's "sampled"."""

    def __init__(self, last: str) -> None:
        self._last = last

    def inject(
        self, carrier: Any, context: context.Context | None = None, setter: Setter[Any] = default_setter
    ) -> None:
        super().inject(carrier, context, setter)
        setter.set(carrier, "last", self._last)


@pytest.mark.parametrize("last", ["", "1"])
@scenario
async def test_shared_trace_header_keeps_spans_apart(
    propagator: Callable[[TextMapPropagator], None], last: str
) -> None:
    propagator(EndsWith(last))
    traced = Traced()
    async with producing(interceptors=[traced.interceptor], acquainted=False) as (producer, cluster):
        await producer.send_many(TOPIC, [b"a", b"b", b"c"])
        sent = [dict(record.headers)["traceparent"] for record in cluster.records(TOPIC, 0)]
        assert [traceparent(span) for span in traced.sends] == sent
        assert [facts(span)["messaging.kafka.offset"] for span in traced.sends] == [0, 1, 2]


@scenario
async def test_span_ends_with_the_call_without_a_propagator(
    propagator: Callable[[TextMapPropagator], None],
) -> None:
    propagator(CompositePropagator([]))
    traced = Traced()
    async with producing(interceptors=[traced.interceptor], acquainted=False) as (producer, _):
        await producer.send(TOPIC, b"v")
        [span] = traced.sends
        assert "messaging.kafka.offset" not in facts(span)


@scenario
async def test_unmatched_span_ends_with_the_producer() -> None:
    class DropsHeaders:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            record.headers = ()
            return record

    traced = Traced()
    async with producing(interceptors=[traced.interceptor, DropsHeaders()], acquainted=False) as (
        producer,
        _,
    ):
        await producer.send(TOPIC, b"v")
        assert traced.sends == []
    assert len(traced.sends) == 1


@for_each(
    ("key", "told"),
    [("k", "k"), (7, "7"), (UUID(int=1), "00000000-0000-0000-0000-000000000001"), (b"k", None), (None, None)],
)
def test_key_is_recorded_when_it_has_a_canonical_text(key: Any, told: str | None) -> None:
    traced = Traced()
    traced.interceptor.on_send(ProducerRecord(TOPIC, b"v", key))
    traced.interceptor.close()
    assert facts(traced.sends[0]).get("messaging.kafka.message.key") == told


def test_tombstone_is_recorded() -> None:
    traced = Traced()
    traced.interceptor.on_send(ProducerRecord(TOPIC, None))
    traced.interceptor.close()
    assert facts(traced.sends[0])["messaging.kafka.message.tombstone"] is True


def test_headers_that_are_none_open_no_span() -> None:
    traced = Traced()
    headers: Any = [5]
    with pytest.raises(TypeError):
        traced.interceptor.on_send(ProducerRecord(TOPIC, b"v", headers=headers))
    traced.interceptor.close()
    assert traced.ended == []


def test_missing_opentelemetry_error_has_the_install_command() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; import aioproducer.contrib.otel_tracing"
    output = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=60)
    assert needs("aioproducer.contrib.otel_tracing", "otel") in output.stderr.decode()


CARRIED = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("carried", ["parent", "link"])
@scenario
async def test_carried_context_is_kept(carried: str) -> None:
    traced = Traced()
    interceptor = traced.make_interceptor(carried_context=carried)
    async with producing(interceptors=[interceptor], acquainted=False) as (producer, cluster):
        with traced.tracer.start_as_current_span("request") as request:
            values = [b"a", b"b"]
            headers = [[("own", b"1"), ("traceparent", CARRIED)]] * 2
            await producer.send_many(TOPIC, values, headers=headers)
            await producer.send(TOPIC, b"c", headers={"traceparent": bytearray(CARRIED)})
            await producer.send(TOPIC, b"d", headers={"traceparent": b"nonsense"})
        *kept, fresh = traced.sends
        for span in kept:
            assert span.parent is not None
            if carried == "parent":
                assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
                assert not span.links
            else:
                assert span.parent == request.get_span_context()
                assert [f"{each.context.trace_id:032x}" for each in span.links] == [
                    "0af7651916cd43dd8448eb211c80319c"
                ]
        assert [facts(span)["messaging.kafka.offset"] for span in kept] == [0, 1, 2]
        records = cluster.records(TOPIC, 0)
        assert [dict(each.headers)["traceparent"] for each in records[:3]] == [CARRIED] * 3
        assert records[0].headers[0] == ("own", b"1")
        assert fresh.parent == request.get_span_context()
        assert dict(records[3].headers)["traceparent"] == traceparent(fresh)


def test_interceptor_refuses_other_carried_context() -> None:
    with pytest.raises(ValueError, match="expected 'replace', 'parent' or 'link'"):
        TracingInterceptor(carried_context="keep")  # type: ignore[arg-type]


@scenario
async def test_keys_and_error_texts_can_be_left_out_of_spans() -> None:
    traced = Traced()
    interceptor = traced.make_interceptor(record_details=False)
    async with producing(interceptors=[interceptor], key_serializer=str.encode, acquainted=False) as (
        producer,
        cluster,
    ):
        await producer.send(TOPIC, b"v", key="customer-7")
        cluster.on("produce").answer(TopicAuthorizationFailed)
        with pytest.raises(TopicAuthorizationFailed):
            await producer.send(TOPIC, b"v", key="customer-7")
    for span in traced.sends:
        assert "customer-7" not in str(facts(span))
        assert span.status.description is None
    assert facts(traced.sends[-1])["error.type"] == "TopicAuthorizationFailed"
