"""Connections that go from one producer to the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.net.opening import open_connection
from aioproducer._engine import Engine
from aioproducer._handover import Handover, connection_security
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConnectionFailed
from aioproducer.testing import Cluster, in_virtual_time
from tests.unit._core.net.scripted import ScriptedBroker, settings

PASSWORD: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "hunter2"}


def test_in_the_clear_there_is_nothing_that_secures() -> None:
    assert connection_security(ProducerConfig(bootstrap_servers="a:1")) is None


@pytest.mark.parametrize(
    ("protocol", "logs_in"), [("SSL", False), ("SASL_PLAINTEXT", True), ("SASL_SSL", True)]
)
def test_whoever_wants_tls_or_a_login_gets_it(protocol: Any, logs_in: bool) -> None:
    config = ProducerConfig(bootstrap_servers="a:1", security_protocol=protocol, **PASSWORD)
    security = connection_security(config)
    assert security is not None
    assert (security.authentication_backoff is not None) is logs_in


async def test_what_was_left_is_taken_once_and_closed_if_nobody_takes_it() -> None:
    handover = Handover(ProducerConfig(bootstrap_servers="a:1"))
    async with ScriptedBroker() as broker:
        taken, left = [(broker.address, await open_connection(broker.address, settings())) for _ in range(2)]
        handover.leave([taken])
        assert handover.take() == [taken]
        assert handover.take() == []
        handover.leave([left])
        await handover.close()
        assert left[1].gone.done()
        assert not taken[1].closed
        taken[1].close()
        await taken[1].wait_closed()


def config_for(cluster: Cluster) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_options)


def engine(cluster: Cluster, handover: Handover) -> Engine:
    return Engine(
        config_for(cluster),
        InterceptorChain(()),
        on_crash=lambda _: None,
        on_fatal=lambda: None,
        on_transaction=lambda _: None,
        handover=handover,
    )


async def send(engine: Engine) -> None:
    intake = engine.intake
    now = asyncio.get_running_loop().time()
    await (await intake.append_when_possible(intake.check("orders", b"v", None, 0, (), None), now, None))


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL"])
@in_virtual_time
async def test_one_producer_after_the_other_opens_one_connection_and_logs_in_once(protocol: Any) -> None:
    users = {"alice": "hunter2"} if protocol == "SASL_SSL" else None
    async with Cluster(
        topics={"orders": 1}, transport="memory", security_protocol=protocol, users=users
    ) as cluster:
        handover = Handover(config_for(cluster))
        for _ in range(3):
            running = engine(cluster, handover)
            await running.start()
            await send(running)
            assert running.report()["producer"]["connection_count"] == 1
            await running.drained()
            await running.stop()
            assert running.report()["producer"]["connection_count"] == 0
        assert cluster.request_count("api_versions") == 1
        assert cluster.request_count("sasl_handshake") == (0 if users is None else 1)
        await handover.close()


@in_virtual_time
async def test_who_has_not_sent_all_leaves_nothing() -> None:
    """What is written late must not end up on a connection of somebody else."""
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        handover = Handover(config_for(cluster))
        running = engine(cluster, handover)
        await running.start()
        await send(running)
        await running.stop()
        assert handover.take() == []


@pytest.mark.parametrize("how", ["disconnect", "restart", "freeze"])
@in_virtual_time
async def test_a_connection_that_died_meanwhile_costs_a_second_at_most(how: str) -> None:
    async with Cluster(brokers=2, topics={"orders": 1}, transport="memory") as cluster:
        handover = Handover(config_for(cluster))
        for left in (True, False):
            running = engine(cluster, handover)
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
        await handover.close()


@in_virtual_time
async def test_after_a_start_that_failed_nothing_is_left_open() -> None:
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        handover = Handover(config_for(cluster))
        running = engine(cluster, handover)
        await running.start()
        await running.drained()
        await running.stop()
        await cluster.stop_broker(1)
        running = engine(cluster, handover)
        with pytest.raises(ConnectionFailed):
            await running.start()
        assert handover.take() == []
