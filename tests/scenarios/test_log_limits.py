"""Log lines of events that repeat: the first, one every 30 s with counts, the end."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter

import pytest

from aioproducer import DeliveryTimeout, Producer
from aioproducer._core.batching.topic import BatchLimits
from aioproducer.errors import NotEnoughReplicas, TopicAuthorizationFailed
from tests.scenarios.rig import TOPIC, cluster, producing, scenario


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioproducer")


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.getMessage().startswith(event)]


@scenario
async def test_missing_acl_is_logged_first_then_every_30_s_then_at_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with producing(partitions=3) as (producer, cluster):
        await producer.send(TOPIC, b"warm")
        missing = cluster.on("produce", times=None).answer(TopicAuthorizationFailed)
        for number in range(6_500):
            _ = await producer.enqueue(TOPIC, b"v", partition=number % 3)
            await asyncio.sleep(0.01)
        await producer.flush()
        missing.remove()
        await producer.send(TOPIC, b"v")
        await asyncio.sleep(31)
        lines = told(caplog, "batch.failed")
    assert [line.split()[0] for line in lines] == ["batch.failed"] * 3 + ["batch.failed.ended"]
    assert re.search(r" times=\d+ for_s=30\.0$", lines[1])
    counted = re.search(r" topic=orders error=TopicAuthorizationFailed times=(\d+) for_s=6\d\.\d$", lines[-1])
    assert counted is not None
    assert int(counted[1]) > 1_000


@scenario
async def test_partition_that_failed_for_good_hides_no_later_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with producing(partitions=2, delivery_timeout_ms=3_000, request_timeout_ms=1_000) as (
        producer,
        cluster,
    ):
        rule = cluster.on("produce", partition=0, times=None).answer(NotEnoughReplicas)
        with pytest.raises(DeliveryTimeout):
            await producer.send(TOPIC, b"v", partition=0)
        rule.remove()
        await asyncio.sleep(60)
        caplog.clear()
        for _ in range(3):
            cluster.on("produce", times=2).answer(NotEnoughReplicas)
            await producer.send(TOPIC, b"v", partition=1)
            await asyncio.sleep(20)
    levels = [each.levelname for each in caplog.records if each.getMessage().startswith("batch.")]
    assert levels == ["WARNING", "INFO"] * 3


@scenario
async def test_flapping_partition_is_limited_as_one_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with producing() as (producer, cluster):
        for _ in range(500):
            cluster.on("produce").answer(NotEnoughReplicas)
            await producer.send(TOPIC, b"v")
        await asyncio.sleep(31)
    counts = Counter(each.getMessage().split()[0] for each in caplog.records)
    assert 1 < counts["batch.retry"] <= 3
    assert counts["batch.recovered"] == 2


@scenario
async def test_splits_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        cluster(message_max_bytes=3_000) as opened,
        Producer(opened.bootstrap_servers) as producer,
    ):
        for _ in range(100):
            await producer.send_many(TOPIC, [b"x" * 1_000] * 4)
            assert producer._engine is not None
            topic = producer._engine.accumulator.topics[TOPIC]
            topic.limits = BatchLimits(topic._settings)
            await asyncio.sleep(0.5)
        await asyncio.sleep(31)
        lines = told(caplog, "batch.split")
    assert [line.split()[0] for line in lines] == ["batch.split"] * 2 + ["batch.split.ended"]
