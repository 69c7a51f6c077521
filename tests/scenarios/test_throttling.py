"""Throttled brokers get no request for the throttle time, brokers that delayed their answer get one (KIP-219)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer import Producer, ProducerClosed
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.login_rig import producer_on, secured
from tests.scenarios.rig import TOPIC, now, producing, scenario, speak_no_newer, values


@pytest.mark.parametrize(
    ("version", "acknowledged_at", "next_at"), [(5, 2.0, 2.0), (6, 0.0, 2.0), (12, 0.0, 2.0)]
)
@scenario
async def test_throttle_pause_is_made_once(
    monkeypatch: pytest.MonkeyPatch, version: int, acknowledged_at: float, next_at: float
) -> None:
    speak_no_newer(monkeypatch, produce=version)
    async with producing(linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).throttle(2_000)
        began_at = now()
        await producer.send(TOPIC, b"a")
        assert now() - began_at == pytest.approx(acknowledged_at)
        await producer.send(TOPIC, b"b")
        assert now() - began_at == pytest.approx(next_at)
        assert producer.metrics()["producer"]["produce_throttle_time_max"] == 2_000


@pytest.mark.parametrize(("version", "sent_at"), [(5, 0.0), (6, 2.0)])
@scenario
async def test_throttle_of_metadata_pauses_records(
    monkeypatch: pytest.MonkeyPatch, version: int, sent_at: float
) -> None:
    speak_no_newer(monkeypatch, metadata=version)
    async with producing(linger_ms=0) as (producer, cluster):
        cluster.on("metadata").throttle(2_000)
        await producer.partitions_for("another")
        answered_at = now()
        arrived = cluster.on("produce", topic=TOPIC)
        await producer.send(TOPIC, b"v")
        assert now() - answered_at == pytest.approx(sent_at)
        assert arrived.hits == 1


QUOTA_MS = 8_000
"""A throttle that is longer than the request timeouts below."""


def no_disconnect(producer: Producer, connections: int = 2) -> None:
    """Check that each connection that was opened is still there, and that no record was sent again."""
    figures = producer.metrics()["producer"]
    assert figures["connection_creation_total"] <= connections
    assert figures["record_retry_total"] == 0


@for_each("records", [1, 12, 200])
@for_each("options", [{}, {"acks": 1}, {"max_in_flight_requests_per_connection": 1}])
@scenario
async def test_throttle_is_no_silence_for_records(records: int, options: dict[str, Any]) -> None:
    async with producing(
        partitions=6, request_timeout_ms=3_000, delivery_timeout_ms=600_000, batch_size=1_000, **options
    ) as (producer, cluster):
        cluster.on("produce", topic=TOPIC, times=None).throttle(QUOTA_MS)
        futures = [
            producer.send_nowait(
                TOPIC, b"x" * 400, key=b"%d" % each, headers=[("a", b"b")], partition=each % 6
            )
            for each in range(records)
        ]
        await asyncio.gather(*futures)
        no_disconnect(producer)


@scenario
async def test_metadata_waits_for_the_end_of_a_throttle() -> None:
    async with producing(request_timeout_ms=2_000, linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).throttle(20_000)
        await producer.send(TOPIC, b"a")
        began_at, asked = now(), cluster.on("metadata", times=None)
        assert await producer.partitions_for("another")
        assert now() - began_at == pytest.approx(20, abs=0.1)
        assert asked.hits == 1, "nothing is written to a broker that does not read"
        no_disconnect(producer)


@scenario
async def test_metadata_prefers_a_broker_that_does_not_throttle() -> None:
    async with producing(brokers=2, linger_ms=0) as (producer, cluster):
        cluster.on("produce", node=1).throttle(60_000)
        await producer.send("acquaintance", b"a", partition=0)
        began_at = now()
        assert await producer.partitions_for("another")
        await producer.send("acquaintance", b"b", partition=1)
        assert now() - began_at < 1


@scenario
async def test_metadata_request_in_flight_outlives_a_throttle(caplog: pytest.LogCaptureFixture) -> None:
    async with producing(request_timeout_ms=2_000, linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).throttle(20_000)
        sending = producer.send_nowait(TOPIC, b"a")
        asking = asyncio.create_task(producer.partitions_for("another"))
        await asyncio.gather(sending, asking)
        assert now() >= 20
        no_disconnect(producer)
        assert "metadata.failed" not in caplog.text


@scenario
async def test_producer_id_is_requested_after_a_throttle() -> None:
    async with Cluster(topics={TOPIC: 1}, transport="memory") as cluster:
        asked = cluster.on("init_producer_id", times=None)
        cluster.on("metadata").throttle(20_000)
        async with Producer(cluster.bootstrap_servers, request_timeout_ms=2_000) as producer:
            began_at = now()
            await producer.send(TOPIC, b"a")
            assert now() - began_at == pytest.approx(20, abs=0.3)
            assert asked.hits == 1
            no_disconnect(producer)


@for_each("request_name", ["produce", "init_producer_id", "add_partitions_to_txn", "end_txn"])
@for_each("transaction_version", [1, 2])
@scenario
async def test_throttle_is_no_silence_for_transactions(request_name: str, transaction_version: int) -> None:
    topics = {TOPIC: 2}
    async with Cluster(topics=topics, transport="memory", transaction_version=transaction_version) as cluster:
        cluster.on(request_name, times=None).throttle(QUOTA_MS)
        async with Producer(
            cluster.bootstrap_servers, transactional_id="t", request_timeout_ms=2_000
        ) as producer:
            for _ in range(3):
                async with producer.transaction():
                    for partition in range(2):
                        _ = await producer.enqueue(TOPIC, b"v", partition=partition)
            no_disconnect(producer)
        assert len(values(cluster)) == 3


@scenario
async def test_session_is_renewed_on_a_throttled_connection() -> None:
    async with (
        secured(session_lifetime_s=20) as cluster,
        producer_on(cluster, request_timeout_ms=2_000, linger_ms=0) as producer,
    ):
        await producer.send(TOPIC, b"warm")
        for _ in range(8):  # the session ends during a throttle, which is longer than all timeouts
            cluster.on("produce", topic=TOPIC).throttle(17_000)
            await producer.send(TOPIC, b"v")
        no_disconnect(producer)


@pytest.mark.parametrize("ms", [2**31 - 1, 60_000])
@scenario
async def test_throttle_is_limited_to_the_delivery_timeout(ms: int) -> None:
    async with producing(delivery_timeout_ms=10_000, request_timeout_ms=5_000, linger_ms=0) as (
        producer,
        cluster,
    ):
        cluster.on("produce", topic=TOPIC).rewrite(throttling(ms))
        await producer.send(TOPIC, b"a")
        await asyncio.sleep(5)
        began_at = now()
        await producer.send(TOPIC, b"b")
        assert now() - began_at == pytest.approx(5, abs=0.1)


@scenario
async def test_negative_throttle_is_ignored() -> None:
    async with producing(linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).rewrite(throttling(-(2**31)))
        await producer.send(TOPIC, b"a")
        began_at = now()
        await producer.send(TOPIC, b"b")
        assert now() - began_at < 0.1


@scenario
async def test_throttled_connection_is_not_closed_as_idle() -> None:
    async with producing(connections_max_idle_ms=3_000, linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).throttle(20_000)
        await producer.send(TOPIC, b"a")
        began_at = now()
        await producer.send(TOPIC, b"b")
        assert now() - began_at == pytest.approx(20, abs=0.1)
        no_disconnect(producer)


@scenario
async def test_close_with_a_timeout_does_not_wait_for_a_throttle() -> None:
    async with producing(linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).throttle(60_000)
        await producer.send(TOPIC, b"a")
        waiting = producer.send_nowait(TOPIC, b"b")
        began_at = now()
        with pytest.raises(TimeoutError):
            await producer.flush(timeout_s=1)
        assert await producer.close(timeout_s=1) == 1
        assert now() - began_at == pytest.approx(2, abs=0.1)
        assert isinstance(waiting.exception(), ProducerClosed)


@scenario
async def test_long_throttles_are_logged_at_begin_every_30_s_and_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with producing(linger_ms=0) as (producer, cluster):
        with caplog.at_level("INFO"):
            cluster.on("produce", topic=TOPIC, times=20).throttle(2_000)
            for _ in range(25):
                await producer.send(TOPIC, b"v")
    lines = [each.getMessage() for each in caplog.records if "throttled" in each.getMessage()]
    assert [line.partition(" ")[0] for line in lines] == [
        "connection.throttled",
        "connection.throttled",
        "connection.unthrottled",
    ]
    assert "throttle_s=2.000" in lines[0]
    assert "times=16 for_s=30.0" in lines[1]
    assert "times=20 for_s=40.0" in lines[2]
    assert [each.levelname for each in caplog.records if "connection.throttled" in each.getMessage()] == [
        "WARNING",
        "WARNING",
    ]


@scenario
async def test_short_throttle_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with producing(linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC, times=3).throttle(999)
        for _ in range(5):
            await producer.send(TOPIC, b"v")
    assert "throttled" not in caplog.text


def throttling(ms: int) -> Callable[[bytes], bytes]:
    """Return a rewrite that puts a throttle of *ms* into a Produce response without tagged fields behind."""
    return lambda frame: frame[:-5] + ms.to_bytes(4, "big", signed=True) + frame[-1:]
