"""Updater after a broker of another cluster has answered, or has required a rebootstrap."""

from __future__ import annotations

import asyncio

from aioproducer._core.protocol.metadata import MetadataResponse, MetadataResponseTopic
from aioproducer.errors import ConnectionFailed, ProducerError, RebootstrapRequired
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.metadata.answers import ANOTHER_ID, answer, leaders, topic
from tests.unit._core.metadata.updater_rig import Setup, started


def of_another_cluster(*topics: MetadataResponseTopic) -> MetadataResponse:
    told = answer(*topics)
    told.cluster_id = "another"
    return told


def require_rebootstrap(setup: Setup) -> None:
    """Lose the connection to node 2, which has another cluster id."""
    error = ConnectionFailed("b2:9002: another node")
    error.__cause__ = RebootstrapRequired()
    setup.updater.disconnected(2, error)


@in_virtual_time
async def test_required_rebootstrap_asks_a_bootstrap_address() -> None:
    async with started() as setup:
        setup.cluster.has(topic("orders", 1))
        await setup.knowing("orders")
        opened = len(setup.cluster.connections)
        require_rebootstrap(setup)
        await asyncio.sleep(1.0)
        assert [each.node_id for each in setup.cluster.connections[opened:]] == [1]
        assert setup.cluster.asked_for == [("orders",)]


@in_virtual_time
async def test_moved_bootstrap_address_replaces_the_cluster() -> None:
    async with started() as setup:
        setup.cluster.has(topic("orders", 1))
        await setup.knowing("orders")
        connected = [each for each in setup.cluster.open_connections if each.node_id in setup.pool.nodes]
        errors: list[ProducerError] = []
        setup.updater._on_another_cluster = errors.append
        setup.cluster.next_answers = [of_another_cluster(topic("orders", 2, topic_id=ANOTHER_ID))] * 9
        require_rebootstrap(setup)
        await asyncio.sleep(1.0)
        assert [str(each) for each in errors] == ["the cluster changed from 'c' to 'another'"]
        assert {each.error for each in connected} >= {errors[0]}
        assert setup.snapshot.cluster_id == setup.pool.cluster_id == "another"
        assert leaders(setup.snapshot, "orders") == [2]
        assert setup.changes[0] == {"orders"}, "the topic of the old cluster was dropped first"


@in_virtual_time
async def test_answer_of_another_cluster_triggers_a_rebootstrap() -> None:
    async with started() as setup:
        setup.cluster.has(topic("orders", 1))
        await setup.knowing("orders")
        opened = len(setup.cluster.connections)
        setup.cluster.next_answers = [of_another_cluster()]
        setup.updater.request_refresh()
        await asyncio.sleep(1.0)
        assert [each.node_id for each in setup.cluster.connections[opened:]] == [1]
        assert len(setup.cluster.asked) == 3
        assert leaders(setup.snapshot, "orders") == [1]
