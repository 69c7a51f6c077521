"""Logins at brokers before Kafka 1.0: after SaslHandshake v0, SASL messages have no header (KIP-43, KIP-152)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from aioproducer._core.protocol.client import SaslAuthenticateRequest, SaslHandshakeRequest
from aioproducer.errors import ConnectionFailed
from aioproducer.testing import broker as broker_module
from aioproducer.testing.handlers import connect
from tests.scenarios.login_rig import PROTOCOLS, producer_on, secured
from tests.scenarios.rig import TOPIC, scenario, values

BEFORE_1_0 = {SaslHandshakeRequest.API_KEY: (0, 0), SaslAuthenticateRequest.API_KEY: None}
CAPPED = {SaslHandshakeRequest.API_KEY: (0, 0)}
"""Offer of a proxy that caps versions in front of a new broker, which then expects messages without headers."""
in_each_case = pytest.mark.parametrize("offered", [BEFORE_1_0, CAPPED], ids=["0.11", "proxy"])


def offer(monkeypatch: pytest.MonkeyPatch, changes: Mapping[int, tuple[int, int] | None]) -> None:
    """Change the versions that brokers offer, by API key; None removes an API."""
    merged = {**connect.OFFERED, **changes}
    offered = {key: versions for key, versions in merged.items() if versions is not None}
    for module in connect, broker_module:
        monkeypatch.setattr(module, "OFFERED", offered)


@in_each_case
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@scenario
async def test_login_without_headers_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
    offered: Mapping[int, tuple[int, int] | None],
    mechanism: str,
    protocol: str,
) -> None:
    offer(monkeypatch, offered)
    async with secured(mechanism, security_protocol=protocol) as opened:
        async with producer_on(opened) as producer:
            await producer.send(TOPIC, b"first")
            opened.disconnect(1)
            await asyncio.sleep(1)
            await producer.send(TOPIC, b"second")
        assert values(opened) == [b"first", b"second"]


@in_each_case
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@scenario
async def test_refused_login_without_headers_names_the_likely_cause(
    monkeypatch: pytest.MonkeyPatch, offered: Mapping[int, tuple[int, int] | None], mechanism: str
) -> None:
    offer(monkeypatch, offered)
    async with secured(mechanism) as opened:
        with pytest.raises(
            ConnectionFailed, match=r"before Kafka 1\.0 close the connection after wrong credentials"
        ):
            await producer_on(opened, sasl_password="wrong").start()


@scenario
async def test_login_without_sasl_authenticate_names_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, {SaslAuthenticateRequest.API_KEY: None})
    async with secured() as opened:
        with pytest.raises(ConnectionFailed, match="SaslAuthenticate"):
            await producer_on(opened).start()
