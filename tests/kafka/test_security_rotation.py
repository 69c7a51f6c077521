"""Certificates, passwords and tokens that change under load, without a restart or a lost record."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AclOperation

from aioproducer import Producer
from aioproducer._core.net.authentication import AuthenticationBackoff
from aioproducer._core.security.oauthbearer import SharedTokens
from aioproducer._core.security.secret import Secret
from aioproducer.config import ProducerOptions
from aioproducer.errors import AuthenticationFailed, TopicAuthorizationFailed
from tests.kafka.apache.secured import SecuredKafka
from tests.kafka.logged import Logged
from tests.kafka.numbered import assert_all_once_in_order, send_numbered, send_numbered_until
from tests.kafka.secured_clients import (
    SOON_S,
    allow,
    connections,
    options,
    reset,
    set_password,
    unsigned,
    values,
    written,
)

COUNT: Final = 5_000
PER_S: Final = 1_000


async def test_next_connection_presents_a_renewed_certificate(
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
        over = asyncio.Event()
        load = asyncio.create_task(send_numbered_until(producer, secured_topic, over, per_s=PER_S))
        with pytest.raises(TopicAuthorizationFailed):
            await producer.send(others, b"too early")
        for half_written in (after.chain, after.chain + after.key_pem[:80]):
            written(location, half_written)
            reset(producer)
            await producer.send(secured_topic, b"-1", partition=0)  # by the certificate from before
        assert "security.tls.kept" in caplog.text
        written(location, after.chain, after.key_pem)
        async with asyncio.timeout(SOON_S):
            await sent_after_reset(producer, others, b"now")
        over.set()
        count = await load
    assert values(secured, others) == [b"now"]
    found = [int(each or b"") for each in values(secured, secured_topic)]
    assert sorted(found) == [-1, -1, *range(count)]


async def sent_after_reset(producer: Producer, topic: str, value: bytes) -> None:
    """Lose connections until a new one uses the new files; invalid files are read again after a while."""
    while True:
        reset(producer)
        try:
            await producer.send(topic, value)
        except TopicAuthorizationFailed:
            continue
        return


async def test_changed_password_is_used(secured: SecuredKafka, secured_topic: str) -> None:
    """The broker changes first, then the client."""
    user, current = secured_topic, "first"
    set_password(secured, user, current)
    allow(secured, user, AclOperation.WRITE, [secured_topic])
    asked: list[str] = []

    async def pair() -> tuple[str, str]:
        asked.append(current)
        return user, current

    over = asyncio.Event()
    with Logged.listening() as logged:
        async with Producer(
            secured.at("REAUTH"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_credentials=pair,
        ) as producer:
            load = asyncio.create_task(send_numbered_until(producer, secured_topic, over, per_s=PER_S))
            await logged.next("connection.reauthenticated")
            await asyncio.to_thread(set_password, secured, user, "second")
            reset(producer)
            assert "refused the login" in await logged.next("connection.failed")
            current = "second"
            await logged.next("connection.opened")
            await logged.next("connection.reauthenticated")
            current = "third"
            reset(producer)
            assert "refused the login" in await logged.next("connection.failed")
            await asyncio.to_thread(set_password, secured, user, "third")
            await logged.next("connection.opened")
            over.set()
            count = await load
    assert set(asked) == {"first", "second", "third"}
    await asyncio.to_thread(assert_all_once_in_order, secured, secured_topic, count)


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


async def test_refused_logins_are_few_until_the_password_changes(
    secured: SecuredKafka, secured_topic: str
) -> None:
    user, current, tried = secured_topic, "first", 0
    set_password(secured, user, current)
    allow(secured, user, AclOperation.WRITE, [secured_topic])

    async def pair() -> tuple[str, str]:
        return user, current

    with Logged.listening() as logged:
        async with Producer(
            secured.at("REAUTH"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_credentials=pair,
        ) as producer:
            await producer.send(secured_topic, b"before")
            await asyncio.to_thread(set_password, secured, user, "second")
            pace = producer_pace(producer)
            reset(producer)
            assert "refused the login" in await logged.next("connection.failed")
            began_at = time.monotonic()
            while time.monotonic() - began_at < 8:
                called_at = time.monotonic()
                with pytest.raises(AuthenticationFailed):
                    await producer.send(secured_topic, b"refused")
                assert time.monotonic() - called_at < 5
                await asyncio.sleep(0.2)
            tried = pace._failures
            current = "second"
            async with asyncio.timeout(SOON_S):
                await logged.next("connection.opened")
            await producer.send(secured_topic, b"after")
    assert 3 <= tried <= 4, "at 0, 1, 3 and 7 s"
    assert values(secured, secured_topic) == [b"before", b"after"]


def producer_pace(producer: Producer) -> AuthenticationBackoff:
    security = connections(producer)[0]._security
    assert security is not None
    assert security.authentication_backoff is not None
    return security.authentication_backoff


async def test_refused_token_is_replaced_at_once(secured: SecuredKafka, secured_topic: str) -> None:
    """A token that the broker refuses is not kept until 80 % of its life."""
    lives_s: list[float] = [3_600, -3_600]  # the broker looks at the token's own expiry
    given: list[str] = []

    def provide() -> ShortLived:
        given.append(unsigned("alice", lives_s.pop(0) if lives_s else 3_600))
        return ShortLived(given[-1], time.time() + 3_600, {})

    chosen = options(secured, "SASL_TLS", "OAUTHBEARER")
    chosen["sasl_oauth_token_provider"] = provide
    async with Producer(secured.at("SASL_TLS"), **chosen) as producer:
        await producer.send(secured_topic, b"before")
        tokens = connections(producer)[0]._security._logins._tokens  # type: ignore[union-attr]
        assert isinstance(tokens, SharedTokens)
        tokens.refused(Secret(given[0]))  # so that the next login gets the token that is refused
        reset(producer)
        async with asyncio.timeout(SOON_S):
            await producer.send(secured_topic, b"after")
    assert len(given) == 3
    assert values(secured, secured_topic) == [b"before", b"after"]
