"""Rig of the scenarios: virtual time, a small cluster, and a check for tasks and errors left behind."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import pytest

from aioproducer import Producer, ProducerConfig
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.protocol.metadata import MetadataRequest
from aioproducer._core.protocol.produce import ProduceRequest
from aioproducer.testing import Cluster, in_virtual_time
from aioproducer.testing.virtual_time import VirtualTimeLoop

P = ParamSpec("P")

TOPIC = "orders"
TICK_S = 0.1
"""How much later than its deadline a record may fail."""


def scenario(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in virtual time; fail if it leaves a task or an unretrieved exception behind."""

    @functools.wraps(function)
    async def told(*args: P.args, **kwargs: P.kwargs) -> None:
        loop = asyncio.get_running_loop()
        complaints: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        await function(*args, **kwargs)
        left = {task.get_name() for task in asyncio.all_tasks()} - {"scenario"}
        assert left == set()
        gc.collect(1)  # young objects are enough: those of the scenario
        await settle()
        assert complaints == []

    @functools.wraps(function)
    async def named(*args: P.args, **kwargs: P.kwargs) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("scenario")
        await told(*args, **kwargs)

    return in_virtual_time(named)


@asynccontextmanager
async def cluster(brokers: int = 1, partitions: int = 1, **options: Any) -> AsyncIterator[Cluster]:
    """Open a cluster in memory, with the topic `TOPIC`, and with one to get acquainted by."""
    topics = {TOPIC: partitions, "acquaintance": brokers}
    async with Cluster(brokers=brokers, topics=topics, transport="memory", **options) as opened:
        yield opened


@asynccontextmanager
async def producing(
    brokers: int = 1, partitions: int = 1, *, acquainted: bool = True, **options: Any
) -> AsyncIterator[tuple[Producer, Cluster]]:
    """Open a cluster and a producer on it, which is connected to all brokers and knows `TOPIC` if *acquainted*."""
    async with (
        cluster(brokers, partitions) as opened,
        Producer(opened.bootstrap_servers, **options) as producer,
    ):
        if acquainted:
            await producer.send_many("acquaintance", [b"hello"] * brokers, partitions=range(brokers))
            await producer.partitions_for(TOPIC)
        yield producer, opened


def values(opened: Cluster, partition: int = 0, topic: str = TOPIC) -> list[bytes | None]:
    """Return the values in a partition's log."""
    return [record.value for record in opened.records(topic, partition)]


def now() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


async def settle() -> None:
    """Let everything happen that can happen now; no time passes."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    for _ in range(60):
        await asyncio.sleep(0)


def speak_no_newer(monkeypatch: pytest.MonkeyPatch, **versions: int) -> None:
    """Make brokers offer only old API versions."""
    newest = ProducerConfig.connection_settings
    keys = {"produce": ProduceRequest.API_KEY, "metadata": MetadataRequest.API_KEY}
    caps = {keys[name]: version for name, version in versions.items()}

    def connection_settings(config: ProducerConfig) -> ConnectionSettings:
        return newest(config)._replace(version_caps=caps)

    monkeypatch.setattr(ProducerConfig, "connection_settings", connection_settings)
