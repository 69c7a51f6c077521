"""Sessions that expire: re-authentication while records are sent, and its failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer.errors import AuthenticationFailed
from tests.scenarios.login_rig import FAILS_WITHIN_S, Steady, numbers, producer_on, secured
from tests.scenarios.rig import TOPIC, now, scenario, values


@pytest.mark.parametrize(
    ("mechanism", "acks"), [("PLAIN", "all"), ("SCRAM-SHA-256", "all"), ("OAUTHBEARER", 0)]
)
@scenario
async def test_session_is_renewed_under_load(mechanism: str, acks: Any) -> None:
    """All records are stored once, in order, without a retry or a lost connection."""
    async with secured(mechanism, session_lifetime_s=3, latency_s=0.02) as opened:
        async with producer_on(opened, acks=acks, enable_idempotence=acks != 0, linger_ms=0) as producer:
            load = Steady(producer, pause_s=0.005)
            await load.run(for_s=12)
            report = producer.metrics()["producer"]
            assert load.errors == []
            assert report["record_retry_total"] == 0
            assert report["connection_close_total"] <= 1  # the first, if it was to a bootstrap address
            # a renewal each second and a half
            assert 8 <= opened.request_count("sasl_handshake") <= 10
            await producer.flush()
            await asyncio.sleep(1)
        assert values(opened) == numbers(load.sent)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@scenario
async def test_session_is_renewed_with_one_record_in_flight(mechanism: str) -> None:
    """The broker delays the record; the login follows it, and both are answered."""
    async with secured(mechanism, session_lifetime_s=3, latency_s=0.02) as opened:
        async with producer_on(opened) as producer:
            await producer.send(TOPIC, b"0")
            _ = opened.on("produce").delay(3.0)
            assert (await producer.send(TOPIC, b"1")).offset == 1
            assert (await producer.send(TOPIC, b"2")).offset == 2
            assert producer.metrics()["producer"]["record_retry_total"] == 0
        assert values(opened) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("mechanism", "round_trips"), [("PLAIN", 1), ("SCRAM-SHA-256", 3)])
@scenario
async def test_renewal_delays_a_record_by_its_round_trips(mechanism: str, round_trips: int) -> None:
    latency_s = 0.1
    async with (
        secured(mechanism, session_lifetime_s=10, latency_s=latency_s) as opened,
        producer_on(opened, linger_ms=0) as producer,
    ):
        await producer.send(TOPIC, b"value")
        slowest = 0.0
        while opened.request_count("sasl_handshake") < 4:
            called_at = now()
            await producer.send(TOPIC, b"value")
            slowest = max(slowest, now() - called_at)
        assert slowest == pytest.approx(2 * latency_s * round_trips, rel=0.5)
        assert slowest <= 2 * latency_s * round_trips + 0.01


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@scenario
async def test_session_is_renewed_in_time_over_a_slow_network(mechanism: str) -> None:
    async with secured(mechanism, session_lifetime_s=8, latency_s=1.0) as opened:
        async with producer_on(opened, linger_ms=0) as producer:
            load = Steady(producer, pause_s=0.05)
            await load.run(for_s=40)
            assert load.errors == []
            assert producer.metrics()["producer"]["record_retry_total"] == 0
        assert values(opened) == numbers(load.sent)


@scenario
async def test_refused_renewal_closes_the_connection_only() -> None:
    async with secured(session_lifetime_s=3) as opened, producer_on(opened, linger_ms=0) as producer:
        load = Steady(producer, pause_s=0.01)
        logins = opened.request_count("sasl_authenticate")
        refusing = opened.on("sasl_authenticate", after=0).answer(58)
        await load.run(for_s=6)
        assert logins
        assert refusing.hits == 1
        assert load.errors == []
        assert values(opened) == numbers(load.sent)


@scenario
async def test_unanswered_renewal_closes_the_connection_only() -> None:
    async with (
        secured(session_lifetime_s=3) as opened,
        producer_on(opened, linger_ms=0, request_timeout_ms=2_000) as producer,
    ):
        load = Steady(producer, pause_s=0.01)
        dropping = opened.on("sasl_authenticate").drop()
        await load.run(for_s=9)
        assert dropping.hits == 1
        assert load.errors == []
        assert values(opened) == numbers(load.sent)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@scenario
async def test_changed_broker_password_ends_the_session(mechanism: str) -> None:
    """Records held back at that moment were not written."""
    async with secured(mechanism, session_lifetime_s=3) as opened, producer_on(opened) as producer:
        await producer.send(TOPIC, b"before")
        opened.users["alice"] = "rotated"
        await asyncio.sleep(3)
        called_at = now()
        with pytest.raises(AuthenticationFailed) as failed:
            await producer.send(TOPIC, b"refused")
        assert now() - called_at <= FAILS_WITHIN_S
        assert not failed.value.possibly_persisted
        assert values(opened) == [b"before"]
