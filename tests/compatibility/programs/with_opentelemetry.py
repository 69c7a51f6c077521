"""OpenTelemetry's instrumentation of aiokafka: a span for each send, and its context in the record."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

import aiokafka
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TOPIC = f"compatibility-{uuid.uuid4().hex[:8]}"
KAFKA = os.environ["KAFKA"]


async def main() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    AIOKafkaInstrumentor().instrument(tracer_provider=provider)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=KAFKA) as producer:
        await (await producer.send(TOPIC, b"one", key=b"k"))
        await producer.send_and_wait(TOPIC, b"two", key=b"k", partition=0)
    async with aiokafka.AIOKafkaConsumer(
        TOPIC, bootstrap_servers=KAFKA, auto_offset_reset="earliest"
    ) as consumer:
        records = [await consumer.getone() for _ in range(2)]
    spans = exporter.get_finished_spans()
    sends = [each for each in spans if each.name == f"{TOPIC} send"]
    assert len(sends) == 2, [each.name for each in spans]
    traces = {f"{each.context.trace_id:032x}" for each in sends}
    assert {dict(each.headers)["traceparent"].decode().split("-")[1] for each in records} == traces
    for span in sends:
        attributes = span.attributes or {}
        assert attributes["messaging.system"] == "kafka"
        assert attributes["messaging.destination.partition.id"] == "0"


asyncio.run(main())
sys.stdout.write("each of two sends had a span, and its context went with the record\n")
