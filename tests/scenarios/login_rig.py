"""Rig of the login scenarios: a cluster that requires a login, a producer with credentials, a steady load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aioproducer import Producer
from aioproducer.errors import ProducerError
from aioproducer.testing import Cluster
from tests.scenarios.rig import TOPIC, cluster, now

USERS = {"alice": "hunter2"}
FAILS_WITHIN_S = 5.0
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


@asynccontextmanager
async def secured(
    mechanism: str = "SCRAM-SHA-256", *, security_protocol: str = "SASL_PLAINTEXT", **options: Any
) -> AsyncIterator[Cluster]:
    who: dict[str, Any] = {"tokens": {"token": "alice"}} if mechanism == "OAUTHBEARER" else {"users": USERS}
    async with cluster(
        security_protocol=security_protocol, sasl_mechanisms=[mechanism], **who, **options
    ) as opened:
        yield opened


def producer_on(opened: Cluster, **options: Any) -> Producer:
    return Producer(opened.bootstrap_servers, **{**opened.client_options, **options})


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


class Steady:
    """Sends records with pauses between them, and stores their outcomes."""

    def __init__(self, producer: Producer, *, pause_s: float) -> None:
        self.sent = 0
        self.errors: list[ProducerError] = []
        self._producer, self._pause_s = producer, pause_s
        self._waiting: list[asyncio.Future[Any]] = []

    async def run(self, for_s: float) -> None:
        until = now() + for_s
        while now() < until:
            self._waiting.append(await self._producer.enqueue(TOPIC, b"%d" % self.sent))
            self.sent += 1
            await asyncio.sleep(self._pause_s)
        for outcome in await asyncio.gather(*self._waiting, return_exceptions=True):
            if isinstance(outcome, ProducerError):
                self.errors.append(outcome)
