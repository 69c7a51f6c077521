"""Certificates, passwords and tokens that change under load: nobody restarts a producer, and no record is lost."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AclOperation

from aioproducer import Producer
from aioproducer.config import ProducerOptions
from aioproducer.errors import TopicAuthorizationFailed
from tests.kafka.apache.secured import SecuredKafka
from tests.kafka.numbered import assert_all_once_in_order, send_numbered
from tests.kafka.secured_clients import (
    allow,
    options,
    reset,
    set_password,
    unsigned,
    values,
    written,
)

COUNT: Final = 6_000
PER_S: Final = 1_000


async def test_a_renewed_certificate_is_shown_by_the_next_connection(
    secured: SecuredKafka, secured_topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, after, others = secured.client("before"), secured.client("after"), f"{secured_topic}-others"
    await asyncio.to_thread(secured.kafka.create_topic, others, 3)
    for name in ("before", "after"):
        allow(secured, f"CN={name},O=lab", AclOperation.WRITE, [secured_topic])
    allow(secured, "CN=after,O=lab", AclOperation.WRITE, [others])
    location = tmp_path / "both.pem"
    chosen: ProducerOptions = options(secured, "TLS")
    chosen["ssl_keystore_location"] = written(location, before.chain, before.key_pem)
    async with Producer(secured.at("MTLS"), **chosen) as producer:
        load = asyncio.create_task(send_numbered(producer, secured_topic, COUNT, per_s=2 * PER_S))
        with pytest.raises(TopicAuthorizationFailed):
            await producer.send(others, b"too early")
        for half_written in (after.chain, after.chain + after.key_pem[:80]):
            written(location, half_written)
            reset(producer)
            await producer.send(secured_topic, b"-1", partition=0)  # by the certificate from before
        assert "security.tls.kept" in caplog.text
        written(location, after.chain, after.key_pem)
        await asyncio.sleep(1)  # the next look at files that were no good: at the backoff's end
        reset(producer)
        await producer.send(others, b"now")
        await load
    assert values(secured, others) == [b"now"]
    found = [int(each or b"") for each in values(secured, secured_topic)]
    assert sorted(found) == [-1, -1, *range(COUNT)]


async def test_a_password_is_changed(secured: SecuredKafka, secured_topic: str) -> None:
    """On one side a second before the other: first on the broker's, then on ours."""
    user, current = secured_topic, "first"
    set_password(secured, user, current)
    allow(secured, user, AclOperation.WRITE, [secured_topic])
    asked: list[str] = []

    async def pair() -> tuple[str, str]:
        asked.append(current)
        return user, current

    async with Producer(
        secured.at("REAUTH"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_credentials=pair,
    ) as producer:
        load = asyncio.create_task(send_numbered(producer, secured_topic, 8 * PER_S, per_s=PER_S))
        await asyncio.sleep(2)
        await asyncio.to_thread(set_password, secured, user, "second")
        reset(producer)
        await asyncio.sleep(1)
        current = "second"
        await asyncio.sleep(2)
        current = "third"
        reset(producer)
        await asyncio.sleep(1)
        await asyncio.to_thread(set_password, secured, user, "third")
        await load
    assert set(asked) == {"first", "second", "third"}
    await asyncio.to_thread(assert_all_once_in_order, secured, secured_topic, 8 * PER_S)


@dataclass
class ShortLived:
    """A token of two seconds."""

    value: str
    expires_at: float
    extensions: dict[str, str]


async def test_tokens_of_two_seconds_are_renewed(
    secured: SecuredKafka, secured_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aioproducer")
    fetched: list[float] = []

    def provide() -> ShortLived:
        fetched.append(time.monotonic())
        return ShortLived(unsigned("alice", 2), time.time() + 2, {})

    chosen = options(secured, "SASL_TLS", "OAUTHBEARER")
    chosen["sasl_oauth_token_provider"] = provide
    async with Producer(secured.at("SASL_TLS"), **chosen) as producer:
        await send_numbered(producer, secured_topic, COUNT, per_s=PER_S)
    lasted_s = time.monotonic() - fetched[0]
    assert lasted_s / 2 <= len(fetched) <= 2 + lasted_s / 1.5
    assert not [each for each in caplog.messages if each.startswith(("connection.lost", "connection.failed"))]
    await asyncio.to_thread(assert_all_once_in_order, secured, secured_topic, COUNT)
