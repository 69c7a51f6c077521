"""Connections that one engine keeps for the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.net.pool import ConnectionCache
from aioproducer._engine import Engine
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConnectionFailed
from aioproducer.testing import Cluster, in_virtual_time


def config_for(cluster: Cluster) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_options)


def engine(cluster: Cluster, cache: ConnectionCache) -> Engine:
    return Engine(
        config_for(cluster),
        InterceptorChain(()),
        on_crash=lambda _: None,
        on_fatal=lambda: None,
        on_transaction=lambda _: None,
        cache=cache,
    )


async def send(engine: Engine) -> None:
    intake = engine.intake
    now = asyncio.get_running_loop().time()
    await (await intake.append_when_possible(intake.check("orders", b"v", None, 0, (), None), now, None))


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL"])
@in_virtual_time
async def test_successive_engines_open_and_authenticate_once(protocol: Any) -> None:
    users = {"alice": "hunter2"} if protocol == "SASL_SSL" else None
    async with Cluster(
        topics={"orders": 1}, transport="memory", security_protocol=protocol, users=users
    ) as cluster:
        cache = ConnectionCache(config_for(cluster).connection_security())
        for _ in range(3):
            running = engine(cluster, cache)
            await running.start()
            await send(running)
            assert running.report()["producer"]["connection_count"] == 1
            await running.drained()
            await running.stop()
            assert running.report()["producer"]["connection_count"] == 0
        assert cluster.request_count("api_versions") == 1
        assert cluster.request_count("sasl_handshake") == (0 if users is None else 1)
        await cache.close()


@in_virtual_time
async def test_engine_with_unsent_records_caches_no_connection() -> None:
    """A late write must not use a connection of the next producer."""
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        cache = ConnectionCache(config_for(cluster).connection_security())
        running = engine(cluster, cache)
        await running.start()
        await send(running)
        await running.stop()
        assert cache.take() == []


@pytest.mark.parametrize("how", ["disconnect", "restart", "freeze"])
@in_virtual_time
async def test_dead_cached_connection_delays_start_by_a_second(how: str) -> None:
    async with Cluster(brokers=2, topics={"orders": 1}, transport="memory") as cluster:
        cache = ConnectionCache(config_for(cluster).connection_security())
        for left in (True, False):
            running = engine(cluster, cache)
            began_at = asyncio.get_running_loop().time()
            await running.start()
            assert asyncio.get_running_loop().time() < began_at + 1.5
            if left:
                await send(running)
            await running.drained()
            await running.stop()
            if left and how == "disconnect":
                cluster.disconnect(1)
            elif left and how == "restart":
                await cluster.stop_broker(1)
                await cluster.start_broker(1)
            elif left:
                cluster.freeze_broker(1)
        await cache.close()


@in_virtual_time
async def test_failed_start_caches_no_connection() -> None:
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        cache = ConnectionCache(config_for(cluster).connection_security())
        running = engine(cluster, cache)
        await running.start()
        await running.drained()
        await running.stop()
        await cluster.stop_broker(1)
        running = engine(cluster, cache)
        with pytest.raises(ConnectionFailed):
            await running.start()
        assert cache.take() == []
