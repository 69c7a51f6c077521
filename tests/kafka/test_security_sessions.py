"""Sessions of three seconds under load: re-authentication loses, duplicates and reorders no record (KIP-368).

`RECORDS=100000` makes it a long run.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final, Literal

import pytest

from aioproducer import Producer
from aioproducer.config import ProducerOptions
from tests.kafka.apache.secured import PASSWORDS, REAUTH_MS, SecuredKafka
from tests.kafka.numbered import (
    PARTITIONS,
    assert_all_once_in_order,
    assert_some_once_in_order,
    send_numbered,
)
from tests.kafka.secured_clients import MechanismName, options, unsigned

RECORDS: Final = int(os.environ.get("RECORDS", "20000"))
PER_S: Final = 2_000
LASTS_S: Final = RECORDS / PER_S
"""At least: with debugging on, on a busy machine, it takes longer."""
FEWEST_LOGINS: Final = int(LASTS_S * 1_000 / REAUTH_MS)
STREAMS: Final[list[tuple[str, MechanismName, Literal["all", 0]]]] = [
    ("REAUTH", "PLAIN", "all"),
    ("REAUTH_TLS", "SCRAM-SHA-256", "all"),
    ("REAUTH", "OAUTHBEARER", "all"),
    ("REAUTH_TLS", "PLAIN", 0),
    ("REAUTH", "SCRAM-SHA-512", 0),
    ("REAUTH_TLS", "OAUTHBEARER", 0),
]


class Counted:
    """Credentials that count their calls."""

    def __init__(self, mechanism: str) -> None:
        self.logins = 0
        self.asked = asyncio.Event()
        self._mechanism = mechanism

    @property
    def options(self) -> ProducerOptions:
        if self._mechanism == "OAUTHBEARER":
            return {"sasl_oauth_token_provider": self.token}
        return {"sasl_credentials": self.pair}

    async def token(self) -> str:
        self.logins += 1
        self.asked.set()
        return unsigned("alice")

    async def pair(self) -> tuple[str, str]:
        self.logins += 1
        self.asked.set()
        return "alice", PASSWORDS["alice"]


def asking(counted: Counted, kafka: SecuredKafka, listener: str, mechanism: MechanismName) -> ProducerOptions:
    """Return the options for a listener, with credentials that are asked for."""
    chosen = options(kafka, listener, mechanism)
    chosen.pop("sasl_username", None)
    chosen.pop("sasl_password", None)
    return chosen | counted.options


@pytest.mark.timeout(60 + 4 * LASTS_S)
async def test_reauthentication_harms_no_stream(
    secured: SecuredKafka, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    caplog.set_level("INFO", "aioproducer")

    async def stream(listener: str, mechanism: MechanismName, acks: Literal["all", 0]) -> None:
        topic = f"{request.node.originalname}-{mechanism}-{acks}"
        await asyncio.to_thread(secured.kafka.create_topic, topic, PARTITIONS)
        counted = Counted(mechanism)
        chosen = asking(counted, secured, listener, mechanism)
        chosen["acks"] = acks
        began_at = time.monotonic()
        async with Producer(secured.at(listener), **chosen) as producer:
            await send_numbered(producer, topic, RECORDS, per_s=PER_S)
        took_s = time.monotonic() - began_at
        # a busy machine may be later than the session: the broker hangs up, and acks=0 promises no more than order
        lossy = acks == 0 and bool(told_of_losses(caplog))
        judged = assert_some_once_in_order if lossy else assert_all_once_in_order
        await asyncio.to_thread(judged, secured, topic, RECORDS)
        assert FEWEST_LOGINS <= counted.logins <= 3 + took_s / (0.5 * REAUTH_MS / 1_000)

    async with asyncio.TaskGroup() as group:
        for each in STREAMS:
            group.create_task(stream(*each))


def told_of_losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines of lost connections; re-authentication keeps the connection."""
    lost = ("connection.lost", "connection.failed")
    return [each.getMessage() for each in caplog.records if each.getMessage().startswith(lost)]


async def test_session_continues_while_the_producer_is_idle(
    secured: SecuredKafka, secured_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aioproducer")
    counted = Counted("SCRAM-SHA-256")
    chosen = asking(counted, secured, "REAUTH", "SCRAM-SHA-256")
    async with Producer(secured.at("REAUTH"), **chosen) as producer:
        await producer.send(secured_topic, b"before")
        at_first = counted.logins
        async with asyncio.timeout(4 * REAUTH_MS / 1_000):
            while counted.logins < at_first + 2:
                counted.asked.clear()
                await counted.asked.wait()
        await producer.send(secured_topic, b"after")
    assert not told_of_losses(caplog)
