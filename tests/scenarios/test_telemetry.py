"""Client metrics (KIP-714): the pushes, the answers of the cluster, and no effect on records."""

from __future__ import annotations

import asyncio
import base64
import logging
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer._core import telemetry_session
from aioproducer.testing import Cluster, MetricsPushed
from tests.scenarios.rig import TOPIC, cluster, now, producing, scenario, settle, values

INTERVAL_S = 60.0
SENT = "org.apache.kafka.producer.record.send.total"
INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, TOO_LARGE, NEW_CODE = 42, 89, 118, 999


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first push is sent after one interval."""
    monkeypatch.setattr(telemetry_session, "FIRST_PUSH", (1.0, 1.0))


def sums(pushed: list[MetricsPushed], name: str = SENT) -> list[float]:
    return [metric.value for each in pushed for metric in each.metrics if metric.name == name]


async def subscribed(opened: Cluster, *prefixes: str, **how: Any) -> Producer:
    """Return a started producer on a cluster that wants metrics."""
    opened.subscribe_metrics(*(prefixes or ("*",)), push_interval_s=INTERVAL_S, **how)
    producer = Producer(opened.bootstrap_servers)
    await producer.start()
    await settle()
    return producer


@scenario
async def test_telemetry_is_not_requested_without_support() -> None:
    async with producing() as (producer, opened):
        await producer.send(TOPIC, b"v")
        await asyncio.sleep(1_000)
        assert producer.client_instance_id is None
    assert opened.request_count("get_telemetry_subscriptions") == 0
    assert opened.pushed_metrics() == []


@scenario
async def test_telemetry_pushes_deltas_and_a_last_push() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send_many(TOPIC, [b"v"] * 3)
        await asyncio.sleep(INTERVAL_S + 1)
        assert sums(opened.pushed_metrics()) == [3.0]
        await producer.send_many(TOPIC, [b"v"] * 2)
        await asyncio.sleep(INTERVAL_S)
        assert sums(opened.pushed_metrics()) == [3.0, 2.0]
        await producer.send(TOPIC, b"v")
        await producer.close()
        first, *_, last = opened.pushed_metrics()
        assert (sums([last]), last.terminating, first.terminating) == ([1.0], True, False)
        assert {each.client_instance_id for each in opened.pushed_metrics()} == {first.client_instance_id}
        [sent] = [each for each in last.metrics if each.name == SENT]
        assert (sent.kind, sent.attributes) == ("delta", {})
        topics = [each for each in first.metrics if each.attributes.get("topic") == TOPIC]
        assert "org.apache.kafka.producer.topic.record.send.total" in {each.name for each in topics}


@scenario
async def test_client_instance_id_has_the_format_of_kafka() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await asyncio.sleep(INTERVAL_S + 1)
        [push] = opened.pushed_metrics()
        told = producer.client_instance_id
        await producer.close()
    assert told is not None
    assert len(told) == 22
    assert base64.urlsafe_b64decode(told + "==") == push.client_instance_id.bytes
    assert producer.client_instance_id == told, "also afterwards, for who looks for it"


@scenario
async def test_telemetry_pushes_only_metrics_with_the_prefix() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened, "org.apache.kafka.producer.connection.creation", "nothing")
        await producer.close()
        [push] = opened.pushed_metrics()
    assert {each.name for each in push.metrics} == {
        "org.apache.kafka.producer.connection.creation.rate",
        "org.apache.kafka.producer.connection.creation.total",
    }


@scenario
async def test_switched_off_nothing_is_asked() -> None:
    async with cluster() as opened:
        opened.subscribe_metrics("*")
        async with Producer(opened.bootstrap_servers, enable_metrics_push=False) as producer:
            await producer.send(TOPIC, b"v")
        assert opened.request_count("get_telemetry_subscriptions") == 0


@scenario
async def test_empty_subscription_is_renewed_without_a_last_push() -> None:
    async with cluster() as opened:
        opened.subscribe_metrics(push_interval_s=INTERVAL_S)
        async with Producer(opened.bootstrap_servers) as producer:
            await producer.send(TOPIC, b"v")
            await asyncio.sleep(2 * INTERVAL_S + 1)
            assert opened.request_count("get_telemetry_subscriptions") == 3
        assert opened.request_count("push_telemetry") == 0


@scenario
async def test_changed_subscription_loses_no_delta() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send_many(TOPIC, [b"v"] * 3)
        opened.subscribe_metrics(SENT, push_interval_s=10.0)
        await asyncio.sleep(INTERVAL_S + 1)
        assert (opened.request_count("push_telemetry"), opened.pushed_metrics()) == (1, [])
        await asyncio.sleep(10)
        [push] = opened.pushed_metrics()
        assert [(each.name, each.value) for each in push.metrics] == [(SENT, 3.0)]
        await producer.close()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@scenario
async def test_telemetry_uses_the_first_accepted_codec(compression: str) -> None:
    async with cluster() as opened:
        types = [] if compression == "none" else [compression, "gzip"]
        producer = await subscribed(opened, compression_types=types)
        await producer.close()
        [push] = opened.pushed_metrics()
    assert str(push.codec) == compression


@scenario
async def test_cumulative_counters_are_pushed_whole() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened, delta_temporality=False)
        await producer.send_many(TOPIC, [b"v"] * 3)
        await asyncio.sleep(2 * INTERVAL_S + 1)
        assert sums(opened.pushed_metrics()) == [3.0, 3.0]
        await producer.close()


@scenario
async def test_too_large_push_omits_topics() -> None:
    async with cluster() as opened:
        for n in range(30):
            opened.create_topic(f"topic-{n}")
        producer = await subscribed(opened, max_bytes=10_000, compression_types=())
        for n in range(30):
            await producer.send(f"topic-{n}", b"v")
        await asyncio.sleep(INTERVAL_S + 1)
        [push] = opened.pushed_metrics()
        assert sums([push]) == [30.0]
        assert not [each for each in push.metrics if "topic" in each.attributes]
        await producer.close()


@scenario
async def test_push_that_never_fits_is_omitted() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened, max_bytes=10)
        await asyncio.sleep(INTERVAL_S + 1)
        await producer.close()
        assert opened.request_count("push_telemetry") == 0


@scenario
async def test_push_of_many_topics_is_encoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_session, "OFF_LOOP_TOPICS", 1)
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        await producer.close()
        assert sums(opened.pushed_metrics()) == [1.0]


@pytest.mark.parametrize("code", [TOO_LARGE, THROTTLING_QUOTA_EXCEEDED])
@scenario
async def test_retriable_telemetry_error_renews_the_subscription(
    code: int,
) -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        opened.on("push_telemetry").answer(code)
        await asyncio.sleep(2 * INTERVAL_S - 1)
        assert opened.request_count("get_telemetry_subscriptions") == 1
        await asyncio.sleep(INTERVAL_S + 2)
        assert sums(opened.pushed_metrics()) == [1.0]
        topics = [each for each in opened.pushed_metrics()[0].metrics if "topic" in each.attributes]
        assert bool(topics) == (code != TOO_LARGE)
        await producer.close()


@pytest.mark.parametrize("request_", ["get_telemetry_subscriptions", "push_telemetry"])
@pytest.mark.parametrize("code", [INVALID_REQUEST, NEW_CODE])
@scenario
async def test_final_telemetry_error_ends_telemetry(request_: Any, code: int) -> None:
    async with cluster() as opened:
        opened.on(request_, times=None).answer(code)
        producer = await subscribed(opened)
        await asyncio.sleep(20 * INTERVAL_S)
        assert opened.request_count(request_) == 1
        await producer.send(TOPIC, b"v")
        await producer.close()
        assert opened.request_count(request_) == 1, "nor is there a goodbye"


@scenario
async def test_lost_push_is_not_counted_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="aioproducer.telemetry")
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send_many(TOPIC, [b"v"] * 3)
        opened.on("push_telemetry").close()
        await asyncio.sleep(INTERVAL_S + 1)
        await producer.send_many(TOPIC, [b"v"] * 2)
        await asyncio.sleep(INTERVAL_S + 1)
        assert sums(opened.pushed_metrics()) == [2.0]
        await producer.close()
    assert [each for each in caplog.records if "telemetry" in each.name] == [], "not above DEBUG"


@scenario
async def test_lost_subscription_request_is_repeated_after_5_min() -> None:
    async with cluster() as opened:
        opened.on("get_telemetry_subscriptions").close()
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        await asyncio.sleep(301)
        assert opened.request_count("get_telemetry_subscriptions") == 2
        await producer.close()


@scenario
async def test_telemetry_opens_no_connection_and_loses_no_delta() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send_many(TOPIC, [b"v"] * 3)
        await opened.stop_broker(1)
        await asyncio.sleep(INTERVAL_S + 1)
        assert opened.request_count("push_telemetry") == 0
        await opened.start_broker(1)
        await asyncio.sleep(INTERVAL_S)
        assert sums(opened.pushed_metrics()) == [3.0]
        await producer.close()


@scenario
async def test_unanswered_last_push_delays_close_by_500_ms() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        opened.on("push_telemetry").drop()
        began_at = now()
        assert await producer.close() == 0
        assert now() - began_at == pytest.approx(0.5, abs=0.01)


@scenario
async def test_close_timeout_bounds_the_last_push() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        opened.on("push_telemetry").drop()
        began_at = now()
        assert await producer.close(timeout_s=0.1) == 0
        assert now() - began_at == pytest.approx(0.1, abs=0.01)


@scenario
async def test_close_0_sends_no_last_push() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.close(timeout_s=0)
        assert opened.request_count("push_telemetry") == 0


@scenario
async def test_last_push_replaces_a_push_in_flight() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        opened.on("push_telemetry").delay(0.2)
        await asyncio.sleep(INTERVAL_S + 0.1)
        await producer.close()
        first, last = opened.pushed_metrics()
        assert (sums([first]), sums([last]), last.terminating) == ([1.0], [0.0], True)


@scenario
async def test_bug_in_telemetry_ends_only_telemetry(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise RuntimeError("a bug")

    monkeypatch.setattr(telemetry_session, "encode", broken)
    async with cluster() as opened:
        producer = await subscribed(opened)
        await asyncio.sleep(INTERVAL_S + 1)
        await producer.send(TOPIC, b"v")
        await producer.close()
        assert values(opened) == [b"v"]
    assert "telemetry.bug" in caplog.text


@scenario
async def test_transactional_producer_pushes_transaction_metrics() -> None:
    async with cluster() as opened:
        opened.subscribe_metrics("*", push_interval_s=INTERVAL_S)
        async with (
            Producer(opened.bootstrap_servers, transactional_id="t-1") as producer,
            producer.transaction(),
        ):
            await producer.send(TOPIC, b"v")
        assert sums(opened.pushed_metrics(), "org.apache.kafka.producer.txn.commit.time.ns.total")
        assert opened.pushed_metrics()[-1].resource == {"transactional_id": "t-1"}
