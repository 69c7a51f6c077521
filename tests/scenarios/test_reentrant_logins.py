"""Callables for credentials and tokens call the producer while it logs in again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aioproducer import Producer, ProducerError
from tests.cases import for_each
from tests.scenarios.login_rig import secured
from tests.scenarios.rig import TOPIC, scenario

CALLS: dict[str, Callable[[Producer], object]] = {
    "send_nowait": lambda producer: producer.send_nowait(TOPIC, b"again"),
    "purge": lambda producer: producer.purge(),
    "metrics": lambda producer: (producer.metrics(), len(producer), producer.state),
    "flush": lambda producer: producer.flush(),
    "send": lambda producer: producer.send(TOPIC, b"again"),
    "close": lambda producer: producer.close(),
    "close(0)": lambda producer: producer.close(0),
}


class Provider:
    """Callable for credentials or tokens that calls the producer first."""

    def __init__(self, call: Callable[[Producer], object]) -> None:
        self._call = call
        self.producer: Producer | None = None
        self.calls = 0
        self.tasks: set[asyncio.Task[Any]] = set()

    async def credentials(self) -> tuple[str, str]:
        self.call()
        return "alice", "hunter2"

    async def token(self) -> str:
        self.call()
        return "token"

    def call(self) -> None:
        if self.producer is None:
            return
        self.calls += 1
        try:
            work = self._call(self.producer)
        except ProducerError:
            return
        if isinstance(work, Awaitable):
            self.tasks.add(asyncio.ensure_future(_done(work)))


async def _done(work: Awaitable[Any]) -> None:
    with suppress(ProducerError):
        await work


@for_each("call", CALLS)
@for_each("site", ["sasl_credentials", "sasl_oauth_token_provider"])
@scenario
async def test_records_have_outcomes_when_a_provider_calls(site: str, call: str) -> None:
    provider = Provider(CALLS[call])
    mechanism = "PLAIN" if site == "sasl_credentials" else "OAUTHBEARER"
    async with secured(mechanism) as opened:
        options: dict[str, Any] = {site: provider.credentials if mechanism == "PLAIN" else provider.token}
        settings = {"sasl_mechanism": mechanism, "security_protocol": "SASL_PLAINTEXT", **options}
        producer = Producer(
            opened.bootstrap_servers, delivery_timeout_ms=4_000, request_timeout_ms=1_000, **settings
        )
        await producer.start()
        await producer.send(TOPIC, b"known")
        provider.producer = producer
        sent: list[asyncio.Future[Any]] = []
        for _ in range(5):
            opened.disconnect(1)
            if producer.state in ("ready", "degraded"):
                sent.append(asyncio.ensure_future(producer.send(TOPIC, b"v", timeout_s=3)))
                sent.append(producer.send_nowait(TOPIC, b"v"))
            await asyncio.sleep(0.3)
        done, pending = await asyncio.wait(sent, timeout=5)
        assert not pending
        for each in done:
            assert each.exception() is None or isinstance(each.exception(), ProducerError)
        provider.producer = None
        assert provider.calls
        if "close" not in call:
            assert (await producer.send(TOPIC, b"next")).offset >= 0
        await producer.close()
        if provider.tasks:
            await asyncio.wait(provider.tasks)
