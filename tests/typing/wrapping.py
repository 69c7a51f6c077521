"""Wrappers of a producer that pass its options on with their types."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Unpack, assert_type

from aioproducer import Producer, ProducerConfig, ProducerOptions, State


@asynccontextmanager
async def our_producer(**options: Unpack[ProducerOptions]) -> AsyncGenerator[Producer, None]:
    async with Producer("localhost:9092", **options) as producer:
        yield producer


class AuditedProducer(Producer):
    """Constructors of a subclass return the subclass."""

    def __init__(self, where: str, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(where, **options)


async def use() -> None:
    async with our_producer(linger_ms=5, acks="all") as producer:
        assert_type(producer, Producer)
    async with AuditedProducer("localhost:9092", client_id="audited") as audited:
        assert_type(audited, AuditedProducer)
    our_producer(linger="5")  # type: ignore[call-arg]
    our_producer(linger_ms="5")  # type: ignore[arg-type]
    our_producer(acks=2)  # type: ignore[arg-type]
    our_producer(compression_type="no-such-codec")  # type: ignore[arg-type]


def make(path: Path, given: Mapping[str, object]) -> None:
    options: ProducerOptions = {"linger_ms": 5, "compression_type": "zstd"}
    quick: ProducerOptions = {**options, "linger_ms": 0.5}
    producer = Producer(["a:9092", "b:9092"], **quick)
    assert_type(producer.state, State)
    assert_type(producer.config, ProducerConfig)
    assert_type(producer.metrics(), dict[str, dict[Any, Any]])
    assert_type(ProducerConfig.from_mapping(given), ProducerConfig)
    assert_type(AuditedProducer.from_config(ProducerConfig.from_properties(path)), AuditedProducer)
    Producer()  # type: ignore[call-arg]
    wrong: ProducerOptions = {"linger": 5}  # type: ignore[typeddict-unknown-key]
    Producer("a:9092", **wrong)
