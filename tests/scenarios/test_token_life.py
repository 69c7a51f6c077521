"""Recovery of a producer from refused tokens and from hanging token providers."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing import Cluster
from tests.scenarios.login_rig import secured
from tests.scenarios.rig import TOPIC, now, scenario


def options(opened: Cluster, provider: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": opened.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


@pytest.mark.parametrize("lives_s", [3_600, None])
@scenario
async def test_refused_token_is_replaced_long_before_its_expiry(lives_s: float | None) -> None:
    async with secured("OAUTHBEARER") as opened:
        current = "token"

        async def provider() -> object:
            return SimpleNamespace(value=current, expires_at=lives_s and time.time() + lives_s)

        async with Producer(**options(opened, provider)) as producer:
            await producer.send(TOPIC, b"before")
            names = opened.tokens
            assert isinstance(names, dict)
            del names["token"]
            names["second"] = "alice"
            opened.disconnect(1)
            current = "second"
            began_at = now()
            await producer.send(TOPIC, b"after")
            assert now() - began_at < 5


@scenario
async def test_refusal_keeps_its_reason_when_the_broker_falls_silent() -> None:
    async with secured("OAUTHBEARER") as opened:
        _ = opened.on("sasl_authenticate", after=1, times=None).drop()
        with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
            await Producer(**options(opened, lambda: "wrong")).start()
        assert now() < 5


@scenario
async def test_reason_of_a_refusal_is_kept_when_the_broker_hangs_up() -> None:
    async with secured("OAUTHBEARER") as opened:
        _ = opened.on("sasl_authenticate", after=1, times=None).close()
        with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
            await Producer(**options(opened, lambda: "wrong")).start()


@pytest.mark.parametrize("rotated", [False, True])
@scenario
async def test_producer_recovers_when_the_provider_hangs_once(rotated: bool) -> None:
    async with secured("OAUTHBEARER") as opened:
        calls = 0

        async def provider() -> str:
            nonlocal calls
            calls += 1
            if calls == 2:
                await asyncio.Event().wait()
            return "token" if calls == 1 else "second"

        chosen = options(opened, provider)
        async with Producer(**chosen, socket_connection_setup_timeout_ms=2_000) as producer:
            await producer.send(TOPIC, b"before")
            names = opened.tokens
            assert isinstance(names, dict)
            names["second"] = "alice"
            if rotated:
                del names["token"]
            opened.disconnect(1)
            await asyncio.sleep(10)
            assert (await producer.send(TOPIC, b"after")).offset == 1
            assert calls == 2 + rotated
