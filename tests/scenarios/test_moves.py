"""Brokers that move: to another address, or to each other's."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import Producer, State
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, cluster, now, producing, scenario, settle, values

COUNTS = pytest.mark.parametrize("records", [1, 10, 2_000])


async def send_to_all(producer: Producer, records: int, partitions: int) -> None:
    await producer.send_many(TOPIC, [b"v"] * records, partitions=[n % partitions for n in range(records)])


@COUNTS
@for_each("idempotent", [True, False])
@scenario
async def test_records_follow_a_broker_that_moves(records: int, idempotent: bool) -> None:
    async with producing(2, 2, enable_idempotence=idempotent) as (producer, opened):
        await send_to_all(producer, records, 2)
        await opened.move_broker(1)
        await send_to_all(producer, records, 2)
        assert sum(len(values(opened, partition)) for partition in range(2)) == 2 * records
        assert producer.state == "ready"


@COUNTS
@scenario
async def test_records_follow_brokers_that_exchange_addresses(records: int) -> None:
    async with producing(2, 2) as (producer, opened):
        for _ in range(3):
            await send_to_all(producer, records, 2)
            await opened.exchange_addresses(1, 2)
        began_at = now()
        await send_to_all(producer, records, 2)
        assert now() - began_at < 2
        assert sum(len(values(opened, partition)) for partition in range(2)) == 4 * records


@scenario
async def test_silent_old_address_delays_records_for_two_seconds() -> None:
    """A node that froze at its old address answers at another one: its requests there do not wait for 30 s."""
    async with producing(2, 2) as (producer, opened):
        opened.on("produce", times=1).drop(before_append=False)
        sending = producer.send_nowait(TOPIC, b"v", partition=0)
        await settle()
        quiet = opened.on("produce", node=1).drop()
        assert producer._engine is not None
        broker = opened._broker(1)
        broker.disconnect = lambda: None  # type: ignore[method-assign]  # its connections stay, and are silent
        await opened.move_broker(1)
        quiet.remove()
        producer._engine.updater.request_refresh()
        began_at = now()
        await sending
        assert 2 <= now() - began_at < 3
        assert values(opened, 0) == [b"v"]
        del broker.disconnect


@scenario
async def test_idle_producer_follows_a_broker_that_moves() -> None:
    async with producing(2, 2, metadata_max_age_ms=1_000) as (producer, opened):
        await opened.move_broker(1)
        await asyncio.sleep(2)
        assert producer._engine is not None
        connection = producer._engine.pool.get(1)
        assert connection is not None
        assert connection.address == opened._state.nodes[1].address


@scenario
async def test_transaction_continues_when_its_coordinator_moves() -> None:
    async with producing(2, 2, acquainted=False, transactional_id="tx") as (producer, opened):
        node = opened._state.coordinator_node("tx")
        assert node is not None
        async with producer.transaction():
            await producer.send(TOPIC, b"before", partition=0)
            await opened.move_broker(node.node_id)
            await producer.send(TOPIC, b"after", partition=1)
        await opened.exchange_addresses(1, 2)
        async with producer.transaction():
            await producer.send(TOPIC, b"again", partition=0)
        committed = [
            record.value
            for partition in range(2)
            for record in opened.records(TOPIC, partition, isolation_level="read_committed")
        ]
        assert sorted(map(str, committed)) == ["b'after'", "b'again'", "b'before'"]


@pytest.mark.parametrize("brokers", [1, 3])
@scenario
async def test_idle_producer_is_ready_after_a_reset(brokers: int) -> None:
    async with cluster(brokers) as opened, Producer(opened.bootstrap_servers) as producer:
        await asyncio.sleep(1)
        for node in range(1, brokers + 1):
            opened.disconnect(node)
        states = set()
        for _ in range(400):
            states.add(producer.state)
            await asyncio.sleep(0.01)
        assert states == {State.READY}
        assert producer._engine is not None
        assert producer._engine.pool.least_loaded(range(1, brokers + 1)) is not None


@pytest.mark.parametrize("used", [False, True])
@scenario
async def test_idle_producer_is_ready_after_a_restart(used: bool) -> None:
    async with cluster(3, 3) as opened, Producer(opened.bootstrap_servers) as producer:
        if used:
            await send_to_all(producer, 3, 3)
            await asyncio.sleep(1_000)  # the topic is forgotten, and so is its leader
        for node in 1, 2, 3:
            await opened.stop_broker(node)
        await asyncio.sleep(20)
        assert producer.state == "degraded"
        for node in 1, 2, 3:
            await opened.start_broker(node)
        await asyncio.sleep(2)
        assert producer.state == "ready"


@scenario
async def test_idle_producer_behind_balancer_is_ready_after_restart() -> None:
    """The bootstrap address belongs to no broker, so its connection is not a connection to one."""
    async with cluster(2) as opened, Cluster(transport="memory") as balancer:
        balancer._state.nodes, balancer.cluster_id = opened._state.nodes, opened.cluster_id
        async with Producer(balancer.bootstrap_servers) as producer:
            await producer.send(TOPIC, b"v")
            for node in 1, 2:
                await opened.stop_broker(node)
            opened._state.nodes[1].alive = True  # the metadata of the balancer is never empty
            await asyncio.sleep(20)
            assert producer.state == "degraded"
            for node in 1, 2:
                await opened.start_broker(node)
            await asyncio.sleep(5)
            assert producer.state == "ready"
            assert producer._engine is not None
            assert producer._engine.pool.least_loaded([1, 2]) is not None


@scenario
async def test_idle_connections_are_not_replaced() -> None:
    rare_ms = 3_600_000
    async with producing(2, 2, connections_max_idle_ms=5_000, metadata_max_age_ms=rare_ms) as (
        producer,
        opened,
    ):
        await asyncio.sleep(60)
        assert producer.state == "ready"
        assert opened.request_count("api_versions") == 2


@scenario
async def test_exchanged_brokers_are_found_without_bootstrap_servers() -> None:
    async with producing(2, 2, linger_ms=0) as (producer, opened):
        for node_id in 1, 2:
            await opened.move_broker(node_id)
            await send_to_all(producer, 10, 2)
        await opened.exchange_addresses(1, 2)
        await send_to_all(producer, 10, 2)
        assert producer.state == "ready"
