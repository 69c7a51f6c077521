"""State per topic and per node is forgotten with them; the totals of the producer stay."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any

import pytest

from aioproducer import MetadataTimeout, Producer, RoundRobinPartitioner, TopicPartition
from aioproducer.errors import DeliveryTimeout, TopicAuthorizationFailed
from aioproducer.testing import Cluster
from tests.scenarios.rig import TOPIC, cluster, producing, scenario

IDLE_S = 400.0
"""Longer than metadata_max_idle_ms of the test and the interval of complete refreshes."""


class Topics(str, Enum):  # noqa: UP042 - a StrEnum is shown as its value
    ORDERS = TOPIC


class Name(str):
    """String whose text differs from its value in comparisons, as in some frameworks."""

    __slots__ = ()

    def __str__(self) -> str:
        return "shown"

    def __repr__(self) -> str:
        return "<shown>"


async def use(producer: Producer, opened: Cluster, names: list[str]) -> None:
    for name in names:
        opened.create_topic(name, 2)
        for value in (b"1", b"2", b"3"):
            await producer.send(name, value)


def totals(producer: Producer) -> dict[str, Any]:
    metrics = producer.metrics()["producer"]
    return {name: metrics[name] for name in metrics if name.endswith(("_total", "delivered"))}


@scenario
async def test_idle_topics_are_forgotten_and_totals_stay() -> None:
    partitioner = RoundRobinPartitioner()
    async with producing(partitioner=partitioner) as (producer, opened):
        for generation in range(3):
            await use(producer, opened, [f"tenant-{generation}-{number}" for number in range(50)])
            before = totals(producer)
            await asyncio.sleep(IDLE_S)
            await producer.send(TOPIC, b"v")
            await asyncio.sleep(IDLE_S)
            after = totals(producer)
            assert all(after[name] >= before[name] for name in before)
        assert producer._engine is not None
        assert set(producer.metrics()["topics"]) <= {TOPIC, "acquaintance"}
        assert partitioner._sent.keys() <= {TOPIC, "acquaintance"}
        assert set(producer._engine.accumulator.topics) <= {TOPIC, "acquaintance"}
        assert totals(producer)["records_delivered"] == 3 * 50 * 3 + 3 + 1


@scenario
async def test_forgotten_topic_begins_again() -> None:
    async with producing(partitioner=RoundRobinPartitioner()) as (producer, opened):
        await use(producer, opened, ["tenant"])
        await asyncio.sleep(2 * IDLE_S)
        assert "tenant" not in producer.metrics()["topics"]
        sent = await producer.send("tenant", b"4")
        assert sent.partition == 0
        assert producer.metrics()["topics"]["tenant"]["record_send_total"] == 1
        assert producer.metrics()["producer"]["record_send_total"] == 5


@scenario
async def test_topics_in_use_are_kept() -> None:
    async with producing() as (producer, _):
        for number in range(10):
            await producer.send(TOPIC, b"v")
            await asyncio.sleep(200)
            assert producer.metrics()["topics"][TOPIC]["record_send_total"] == number + 1


@scenario
async def test_names_of_no_topic_leave_nothing_behind() -> None:
    async with (
        cluster(auto_create_topics=False) as opened,
        Producer(opened.bootstrap_servers, max_block_ms=1_000) as producer,
    ):
        calls = [producer.send(f"missing-{number}", b"v") for number in range(200)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in outcomes} == {MetadataTimeout}
        await asyncio.sleep(2 * IDLE_S)
        engine = producer._engine
        assert engine is not None
        assert not engine.accumulator.topics
        assert not engine.updater.snapshot.topics
        assert not engine.updater._schedule._in_use
        assert not producer.metrics()["topics"]


@scenario
async def test_nodes_that_left_are_forgotten_and_totals_stay() -> None:
    async with producing(brokers=3, partitions=1) as (producer, opened):
        before = totals(producer)
        for node_id in (2, 3):
            await opened.stop_broker(node_id)
        for _ in range(3):  # the topic with partitions on these nodes is forgotten meanwhile
            await producer.send(TOPIC, b"v")
            await asyncio.sleep(IDLE_S)
        engine = producer._engine
        assert engine is not None
        assert engine.updater.snapshot.brokers.keys() == {1}
        assert {each for each in engine.metrics.nodes if each >= 0} == {1}
        assert engine.accumulator.latencies.keys() == {1}
        assert engine.accumulator.schedule._lingering_for.keys() <= {1}
        after = totals(producer)
        assert all(after[name] >= before[name] for name in before)
        assert producer.metrics()["producer"]["connection_count"] >= 1


@pytest.mark.parametrize("topic", [Topics.ORDERS, Name(TOPIC)])
@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
@scenario
async def test_topic_of_a_str_subclass_is_a_plain_str_everywhere(topic: str, is_known: bool) -> None:
    async with cluster() as opened, Producer(opened.bootstrap_servers, linger_ms=0) as producer:
        if is_known:
            await producer.send(TOPIC, b"0")
        sent = await producer.send(topic, b"1", key=b"k", headers=[("h", b"v")])
        assert type(sent.topic) is str
        assert str(TopicPartition(sent.topic, 0)) == "orders-0"
        assert (await producer.send_many(topic, [b"2", b"3"])).delivered == 2
        assert await producer.partitions_for(topic) == {0}
        metrics = producer.metrics()["topics"]
        assert [(type(each), each) for each in metrics] == [(str, TOPIC)]
        opened.on("produce").answer(TopicAuthorizationFailed)
        with pytest.raises(TopicAuthorizationFailed, match=r"^orders-0 at "):
            await producer.send(TOPIC, b"4")
        await opened.stop_broker(1)
        with pytest.raises(DeliveryTimeout, match=r"^orders-0: "):
            await producer.send(topic, b"5", timeout_s=1)


@scenario
async def test_topic_of_a_str_subclass_that_does_not_exist_is_named() -> None:
    class Missing(str, Enum):  # noqa: UP042 - as above
        THAT = "that"

    async with (
        cluster(auto_create_topics=False) as opened,
        Producer(opened.bootstrap_servers, max_block_ms=1_000) as producer,
    ):
        with pytest.raises(MetadataTimeout, match="topic 'that'"):
            await producer.send(Missing.THAT, b"v")
