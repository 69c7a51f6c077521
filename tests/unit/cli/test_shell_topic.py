from __future__ import annotations

import asyncio

import pytest

from aioproducer import MetadataTimeout, Producer, TopicAuthorizationFailed
from aioproducer.cli.shell import TOPIC_S, await_topic
from aioproducer.testing import Cluster, in_virtual_time


def cluster_with_orders() -> Cluster:
    return Cluster(topics={"orders": 1}, transport="memory", auto_create_topics=False)


@in_virtual_time
async def test_a_topic_that_is_there_is_not_waited_for() -> None:
    async with cluster_with_orders() as cluster, Producer(cluster.bootstrap_servers) as producer:
        began = asyncio.get_running_loop().time()
        await await_topic(producer, "orders")
        assert asyncio.get_running_loop().time() - began < 1


@in_virtual_time
async def test_a_topic_that_is_not_there_is_told_after_a_while_and_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster_with_orders() as cluster, Producer(cluster.bootstrap_servers) as producer:
        began = asyncio.get_running_loop().time()
        with pytest.raises(
            MetadataTimeout, match="no broker knew a topic 'odrers' in 5 s: is the name right"
        ):
            await await_topic(producer, "odrers")
        assert asyncio.get_running_loop().time() - began == pytest.approx(TOPIC_S)
        assert not caplog.records, "the error says it"


@in_virtual_time
async def test_what_the_brokers_have_against_it_is_raised() -> None:
    async with cluster_with_orders() as cluster, Producer(cluster.bootstrap_servers) as producer:
        cluster.on("metadata", times=None).answer(TopicAuthorizationFailed)
        with pytest.raises(TopicAuthorizationFailed):
            await await_topic(producer, "orders")
