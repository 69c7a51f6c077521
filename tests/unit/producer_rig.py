"""A producer on a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aioproducer import Producer
from aioproducer.testing import Cluster
from aioproducer.testing.virtual_time import VirtualTimeLoop

TOPIC = "orders"
SERVERS = "localhost:9092"


@asynccontextmanager
async def cluster(**options: Any) -> AsyncIterator[Cluster]:
    async with Cluster(topics={TOPIC: 2}, transport="memory", **options) as cluster:
        yield cluster


@asynccontextmanager
async def started(**options: Any) -> AsyncIterator[tuple[Producer, Cluster]]:
    async with cluster() as broker, Producer(broker.bootstrap_servers, **options) as producer:
        yield producer, broker


def now() -> float:
    return asyncio.get_running_loop().time()


def advance(seconds: float) -> None:
    """Let time pass without a turn of the event loop, as busy code does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(seconds)
