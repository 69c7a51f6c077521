"""Logins that are refused while a producer runs: every send says so soon, logins are paced, and all heals."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AclOperation

from aioproducer import AuthenticationFailed, Producer, ProducerError
from aioproducer._core.net.authentication import REFUSAL_BACKOFF
from aioproducer._core.net.connection_security import ConnectionSecurity
from aioproducer.config import ProducerOptions
from tests.kafka.apache.secured import SecuredKafka
from tests.kafka.secured_clients import (
    allow,
    delete_user,
    options,
    reset,
    set_password,
    unsigned,
    values,
    written,
)
from tests.unit._core.security.certificates import Authority

TOLD_WITHIN_S: Final = 5.0
OUTAGE_S: Final = 3.5
MOST_LOGINS: Final = 10
"""In an outage: after pauses of 0.05, 0.1, 0.2, 0.4, 0.8 s and then of a second, each a fifth more or less; and one at
the bootstrap address before the first."""
BACKOFF: Final[ProducerOptions] = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1_000}


class Outage:
    """Sends records while logins are refused, and stores their outcomes and durations."""

    def __init__(self, producer: Producer, topics: list[str]) -> None:
        self.failed: list[tuple[float, ProducerError]] = []
        self.acknowledged: list[bytes] = []
        self._producer = producer
        self._topics = topics
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, lasts_s: float) -> None:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + lasts_s
        while loop.time() < ends_at:
            for topic in self._topics:
                value = b"%d" % len(self._tasks)
                self._tasks.append(asyncio.create_task(self._send(topic, value)))
            await asyncio.sleep(0.2)  # the pace of the load
        await asyncio.gather(*self._tasks)

    async def _send(self, topic: str, value: bytes) -> None:
        began_at = time.monotonic()
        try:
            await self._producer.send(topic, value)
        except ProducerError as error:
            self.failed.append((time.monotonic() - began_at, error))
        else:
            self.acknowledged.append(value)


def is_refusal(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, AuthenticationFailed) or is_refusal(error.__cause__))


def check_outage(outage: Outage, *says: str) -> None:
    """Every record failed soon, with an error that names the cause."""
    assert not outage.acknowledged
    assert outage.failed
    assert max(took_s for took_s, _ in outage.failed) < TOLD_WITHIN_S
    for _, error in outage.failed:
        assert is_refusal(error), repr(error)
        told = str(error) + str(error.__cause__ or "")
        assert all(word in told for word in says), told
        assert "_ssl.c" not in str(error)


@pytest.fixture
def dials(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When connections were made."""
    at: list[float] = []
    dial = ConnectionSecurity.dial

    async def noted(self: ConnectionSecurity, *arguments: Any) -> None:
        at.append(time.monotonic())
        await dial(self, *arguments)

    monkeypatch.setattr(ConnectionSecurity, "dial", noted)
    return at


def assert_paced(at: list[float]) -> None:
    assert len(at) <= MOST_LOGINS, [f"{after - before:.2f}" for before, after in pairwise(at)]


@pytest.mark.parametrize("listener", ["SASL", "REAUTH"])
async def test_removed_user_can_write_again_when_restored(
    secured: SecuredKafka, secured_topic: str, dials: list[float], listener: str
) -> None:
    user, unknown_topic = secured_topic, f"{secured_topic}-unknown"
    await asyncio.to_thread(secured.kafka.create_topic, unknown_topic, 1)
    set_password(secured, user, "good")
    allow(secured, user, AclOperation.WRITE, [secured_topic, unknown_topic])
    chosen: ProducerOptions = options(secured, listener, "SCRAM-SHA-512") | BACKOFF
    chosen |= {"sasl_username": user, "sasl_password": "good"}
    async with Producer(secured.at(listener), **chosen) as producer:
        await producer.send(secured_topic, b"before")
        await asyncio.to_thread(delete_user, secured, user)
        if listener == "REAUTH":  # this case needs no lost connection
            await refused(producer)
        reset(producer)
        dials.clear()
        outage = Outage(producer, [secured_topic, unknown_topic])
        await outage.run(OUTAGE_S)
        assert_paced(dials)
        check_outage(outage, "SCRAM-SHA-512", secured.at(listener))
        await asyncio.to_thread(set_password, secured, user, "good")
        await healed(producer, secured_topic)
        await healed(producer, unknown_topic)
    assert sorted(map(str, values(secured, secured_topic))) == ["b'after'", "b'before'"]
    assert values(secured, unknown_topic) == [b"after"]


async def refused(producer: Producer) -> None:
    """Wait until *producer* has no connection any more, as its session could not be renewed."""
    assert producer._engine is not None
    [connection] = producer._engine.pool._open
    async with asyncio.timeout(TOLD_WITHIN_S):
        await asyncio.wait([connection.socket_closed])
    assert isinstance(connection.error, AuthenticationFailed)


async def healed(producer: Producer, topic: str, *, within_s: float = TOLD_WITHIN_S) -> None:
    """Send until a record is acknowledged, for *within_s* seconds at most."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                await producer.send(topic, b"after")
            except AuthenticationFailed:
                await asyncio.sleep(0.05)  # the pace of a caller that retries
            else:
                return


async def test_expired_certificate_fails_the_producer(
    secured: SecuredKafka, secured_topic: str, tmp_path: Path, dials: list[float]
) -> None:
    good, bad = secured.client("alice"), Authority("another").issue(common_name="alice")
    location = tmp_path / "both.pem"
    chosen: ProducerOptions = options(secured, "TLS") | BACKOFF
    chosen["ssl_keystore_location"] = written(location, good.chain, good.key_pem)
    async with Producer(secured.at("MTLS"), **chosen) as producer:
        await producer.send(secured_topic, b"before")
        written(location, bad.chain, bad.key_pem)
        reset(producer)
        dials.clear()
        outage = Outage(producer, [secured_topic])
        await outage.run(OUTAGE_S)
        assert_paced(dials)
        check_outage(outage, "does not accept the client certificate", str(location))
        written(location, good.chain, good.key_pem)
        await healed(producer, secured_topic)
    assert sorted(map(str, values(secured, secured_topic))) == ["b'after'", "b'before'"]


async def test_expired_token_fails_the_producer(
    secured: SecuredKafka, secured_topic: str, dials: list[float]
) -> None:
    lives_s = 3_600.0
    chosen: ProducerOptions = options(secured, "SASL_TLS", "OAUTHBEARER") | BACKOFF
    chosen["sasl_oauth_token_provider"] = lambda: unsigned("alice", lives_s)
    async with Producer(secured.at("SASL_TLS"), **chosen) as producer:
        await producer.send(secured_topic, b"before")
        lives_s = -60.0
        reset(producer)
        dials.clear()
        outage = Outage(producer, [secured_topic])
        await outage.run(OUTAGE_S)
        assert_paced(dials)
        check_outage(outage, "OAUTHBEARER", "invalid_token")
        lives_s = 3_600.0
        # Each refused token was a new one, so the next one is no sign of a repair, and waits for the pace of logins.
        await healed(producer, secured_topic, within_s=REFUSAL_BACKOFF.max_s + TOLD_WITHIN_S)
    assert sorted(map(str, values(secured, secured_topic))) == ["b'after'", "b'before'"]
