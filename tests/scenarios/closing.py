"""Rig of the closing scenarios."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from aioproducer import Producer, ProducerClosed, RecordMetadata
from aioproducer._core.metadata.snapshot import MetadataSnapshot
from aioproducer.testing import Cluster
from tests.scenarios.rig import TOPIC, producing, settle

Sending = asyncio.Task[RecordMetadata]


@asynccontextmanager
async def unclosed(**options: Any) -> AsyncIterator[tuple[Producer, Cluster]]:
    """A producer that the scenario closes; brokers see its connections end."""
    async with producing(**options) as (producer, cluster):
        yield producer, cluster
        assert producer.state == "closed"
        await settle()
        for broker in cluster._brokers.values():
            broker.thaw()
        await asyncio.sleep(60)
        assert [broker._connections for broker in cluster._brokers.values() if broker._connections] == []


def send(producer: Producer, count: int = 1, value: bytes = b"v", topic: str = TOPIC) -> list[Sending]:
    return [asyncio.create_task(producer.send(topic, value)) for _ in range(count)]


async def closed(sending: list[Sending], *, possibly_persisted: bool | None = None) -> None:
    """Check that all of *sending* have failed with errors of their own because the producer was closed."""
    await asyncio.wait(sending, timeout=0.001)
    errors = [each.exception() if each.done() else None for each in sending]
    for error in errors:
        assert isinstance(error, ProducerClosed)
        if possibly_persisted is not None:
            assert error.possibly_persisted is possibly_persisted
    assert len({id(error) for error in errors}) == len(errors)


async def told(producer: Producer, topic: str) -> None:
    """Return when *producer* receives the metadata of *topic*, before any waiting task can run."""
    assert producer._engine is not None
    updater, heard = producer._engine.updater, asyncio.Event()
    on_update = updater._on_update

    def overhear(snapshot: MetadataSnapshot, topics: Collection[str]) -> None:
        on_update(snapshot, topics)
        if topic in topics:
            heard.set()

    updater._on_update = overhear
    await heard.wait()
