"""The broker for tests, as tests of users see it."""

from __future__ import annotations

from typing import assert_type

from aioproducer import NotLeaderOrFollower
from aioproducer.testing import Cluster, DecodedRecord, Rule, ThreadedCluster


async def on_the_loop() -> None:
    async with Cluster(brokers=2, topics={"orders": 3}) as cluster:
        assert_type(cluster.bootstrap_servers, str)
        assert_type(cluster.records("orders", 0), list[DecodedRecord])
        rule = cluster.on("Produce", topic="orders", times=2)
        assert_type(rule, Rule)
        assert_type(rule.answer(NotLeaderOrFollower).delay(0.1), Rule)
        rule.answer("NOT_LEADER_OR_FOLLOWER")  # type: ignore[arg-type]
    Cluster(topics=["orders"])  # type: ignore[arg-type]


def on_a_thread(kafka_cluster: ThreadedCluster) -> None:
    assert_type(kafka_cluster.records("orders", 0), list[DecodedRecord])
