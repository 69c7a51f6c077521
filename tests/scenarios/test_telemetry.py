"""Client metrics (KIP-714): what is pushed when, what the cluster may say to it, and that records never notice."""

from __future__ import annotations

import asyncio
import base64
import logging
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer._core import telemetry_session
from aioproducer.testing import Cluster, MetricsPushed
from tests.scenarios.story import TOPIC, cluster, now, producing, settle, story, values

INTERVAL_S = 60.0
SENT = "org.apache.kafka.producer.record.send.total"
INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, TOO_LARGE, NEW_CODE = 42, 89, 118, 999


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first push comes after one interval."""
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


@story
async def test_nobody_is_asked_where_nobody_receives() -> None:
    async with producing() as (producer, opened):
        await producer.send(TOPIC, b"v")
        await asyncio.sleep(1_000)
        assert producer.client_instance_id is None
    assert opened.request_count("get_telemetry_subscriptions") == 0
    assert opened.pushed_metrics() == []


@story
async def test_what_is_asked_for_is_pushed_as_it_grows_and_once_more_at_the_end() -> None:
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


@story
async def test_the_id_of_the_instance_is_told_in_kafkas_spelling() -> None:
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


@story
async def test_only_what_begins_so_is_pushed() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened, "org.apache.kafka.producer.connection.creation", "nothing")
        await producer.close()
        [push] = opened.pushed_metrics()
    assert {each.name for each in push.metrics} == {
        "org.apache.kafka.producer.connection.creation.rate",
        "org.apache.kafka.producer.connection.creation.total",
    }


@story
async def test_switched_off_nothing_is_asked() -> None:
    async with cluster() as opened:
        opened.subscribe_metrics("*")
        async with Producer(opened.bootstrap_servers, enable_metrics_push=False) as producer:
            await producer.send(TOPIC, b"v")
        assert opened.request_count("get_telemetry_subscriptions") == 0


@story
async def test_who_wants_nothing_is_asked_again_after_an_interval_and_gets_no_goodbye() -> None:
    async with cluster() as opened:
        opened.subscribe_metrics(push_interval_s=INTERVAL_S)
        async with Producer(opened.bootstrap_servers) as producer:
            await producer.send(TOPIC, b"v")
            await asyncio.sleep(2 * INTERVAL_S + 1)
            assert opened.request_count("get_telemetry_subscriptions") == 3
        assert opened.request_count("push_telemetry") == 0


@story
async def test_another_subscription_is_fetched_and_nothing_is_lost_between_the_two() -> None:
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
@story
async def test_the_first_codec_of_the_list_is_used(compression: str) -> None:
    async with cluster() as opened:
        types = [] if compression == "none" else [compression, "gzip"]
        producer = await subscribed(opened, compression_types=types)
        await producer.close()
        [push] = opened.pushed_metrics()
    assert str(push.codec) == compression


@story
async def test_cumulative_counters_are_told_whole() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened, delta_temporality=False)
        await producer.send_many(TOPIC, [b"v"] * 3)
        await asyncio.sleep(2 * INTERVAL_S + 1)
        assert sums(opened.pushed_metrics()) == [3.0, 3.0]
        await producer.close()


@story
async def test_what_is_too_large_goes_without_the_topics() -> None:
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


@story
async def test_what_does_not_fit_at_all_is_not_pushed() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened, max_bytes=10)
        await asyncio.sleep(INTERVAL_S + 1)
        await producer.close()
        assert opened.request_count("push_telemetry") == 0


@story
async def test_with_many_topics_the_work_is_done_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_session, "OFF_LOOP_TOPICS", 1)
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        await producer.close()
        assert sums(opened.pushed_metrics()) == [1.0]


@pytest.mark.parametrize("code", [TOO_LARGE, THROTTLING_QUOTA_EXCEEDED])
@story
async def test_a_refusal_that_may_pass_is_followed_by_another_subscription_after_an_interval(
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
@story
async def test_any_other_refusal_is_the_end_of_it(request_: Any, code: int) -> None:
    async with cluster() as opened:
        opened.on(request_, times=None).answer(code)
        producer = await subscribed(opened)
        await asyncio.sleep(20 * INTERVAL_S)
        assert opened.request_count(request_) == 1
        await producer.send(TOPIC, b"v")
        await producer.close()
        assert opened.request_count(request_) == 1, "nor is there a goodbye"


@story
async def test_a_push_that_was_lost_may_have_come_and_is_not_told_twice(
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


@story
async def test_a_question_that_was_lost_is_asked_again_after_five_minutes() -> None:
    async with cluster() as opened:
        opened.on("get_telemetry_subscriptions").close()
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        await asyncio.sleep(301)
        assert opened.request_count("get_telemetry_subscriptions") == 2
        await producer.close()


@story
async def test_without_a_connection_nothing_is_dialled_and_nothing_is_lost() -> None:
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


@story
async def test_a_goodbye_that_nobody_answers_delays_the_end_by_half_a_second() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        opened.on("push_telemetry").drop()
        began_at = now()
        assert await producer.close() == 0
        assert now() - began_at == pytest.approx(0.5, abs=0.01)


@story
async def test_a_limit_of_the_close_is_one_of_the_goodbye_and_no_record_fails_of_it() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        opened.on("push_telemetry").drop()
        began_at = now()
        assert await producer.close(timeout_s=0.1) == 0
        assert now() - began_at == pytest.approx(0.1, abs=0.01)


@story
async def test_who_must_go_now_says_no_goodbye() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.close(timeout_s=0)
        assert opened.request_count("push_telemetry") == 0


@story
async def test_a_push_in_flight_at_the_end_is_given_up_for_the_last_one() -> None:
    async with cluster() as opened:
        producer = await subscribed(opened)
        await producer.send(TOPIC, b"v")
        opened.on("push_telemetry").delay(0.2)
        await asyncio.sleep(INTERVAL_S + 0.1)
        await producer.close()
        first, last = opened.pushed_metrics()
        assert (sums([first]), sums([last]), last.terminating) == ([1.0], [0.0], True)


@story
async def test_a_bug_of_ours_ends_telemetry_and_nothing_else(
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


@story
async def test_a_transactional_producer_says_so() -> None:
    async with cluster() as opened:
        opened.subscribe_metrics("*", push_interval_s=INTERVAL_S)
        async with (
            Producer(opened.bootstrap_servers, transactional_id="t-1") as producer,
            producer.transaction(),
        ):
            await producer.send(TOPIC, b"v")
        assert sums(opened.pushed_metrics(), "org.apache.kafka.producer.txn.commit.time.ns.total")
        assert opened.pushed_metrics()[-1].resource == {"transactional_id": "t-1"}
