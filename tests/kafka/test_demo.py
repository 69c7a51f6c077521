from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aioproducer.cli.demo_command import DemoArguments, run
from aioproducer.config import ProducerConfig
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka


@asynccontextmanager
async def follow(what: str, total: int, done: Callable[[], int]) -> AsyncIterator[None]:
    yield
    assert done() == total, what


async def test_demo_audit_agrees_with_another_client(kafka: ApacheKafka) -> None:
    config = ProducerConfig(bootstrap_servers=kafka.bootstrap_servers, compression_type="zstd")
    arguments = DemoArguments(config, records=5_000, partitions=3, compression="zstd")
    outcome = await run(arguments, follow)
    assert outcome.flaws == {}
    assert outcome.records_read == arguments.records
    assert len(read_with_librdkafka(kafka.bootstrap_servers, outcome.topic)) == arguments.records
