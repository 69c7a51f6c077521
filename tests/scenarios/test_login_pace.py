"""Refused logins: their pace across the brokers of a cluster, and credentials that change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer import Producer, SaslAuthenticationFailed
from aioproducer.errors import AuthenticationFailed, ProducerError
from aioproducer.testing import Cluster
from tests.scenarios.login_rig import FAILS_WITHIN_S, producer_on, secured
from tests.scenarios.rig import TOPIC, now, scenario


def logins(opened: Cluster) -> int:
    return opened.request_count("sasl_authenticate")


def disconnect_all(opened: Cluster, brokers: int) -> None:
    for node in range(1, brokers + 1):
        opened.disconnect(node)


async def keep_sending(producer: Producer, for_s: float, partitions: int = 1) -> None:
    """Send to all partitions all the time; each call has to fail in time, by the refusal."""
    until = now() + for_s

    async def one(partition: int) -> None:
        while now() < until:
            called_at = now()
            with pytest.raises(ProducerError) as failed:
                await producer.send(TOPIC, b"refused", partition=partition)
            assert now() - called_at <= FAILS_WITHIN_S
            causes = failed.value, failed.value.__cause__
            assert any(isinstance(each, AuthenticationFailed) for each in causes)
            await asyncio.sleep(0.2)

    await asyncio.gather(*map(one, range(partitions)))


@pytest.mark.parametrize("brokers", [1, 3, 8])
@pytest.mark.parametrize("backoff", [{}, {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 10}])
@scenario
async def test_refused_logins_of_all_brokers_are_few(brokers: int, backoff: dict[str, int]) -> None:
    async with (
        secured("PLAIN", brokers=brokers, partitions=brokers) as opened,
        producer_on(opened, **backoff) as producer,
    ):
        for partition in range(brokers):
            await producer.send(TOPIC, b"before", partition=partition)
        await asyncio.sleep(10)
        opened.users["alice"] = "rotated"
        before = logins(opened)
        disconnect_all(opened, brokers)
        await keep_sending(producer, 60, brokers)
        assert 6 <= logins(opened) - before <= 9  # at 0, 1, 3, 7, 15, 30, 45 and 60 s
        opened.users["alice"] = "hunter2"
        await asyncio.sleep(20)
        for partition in range(brokers):
            await producer.send(TOPIC, b"after", partition=partition)


@pytest.mark.parametrize("after_s", [0.5, 30])
@scenario
async def test_changed_credentials_are_tried_at_once(after_s: float) -> None:
    async with secured("SCRAM-SHA-256") as opened:
        pair, asked_at = ("alice", "hunter2"), []

        def credentials() -> tuple[str, str]:
            asked_at.append(now())
            return pair

        async def same_loop() -> tuple[str, str]:
            return credentials()

        options: dict[str, Any] = dict(opened.client_options)
        del options["sasl_username"], options["sasl_password"]
        async with Producer(opened.bootstrap_servers, **options, sasl_credentials=same_loop) as producer:
            await producer.send(TOPIC, b"before")
            opened.users["alice"] = "rotated"
            opened.disconnect(1)
            began_at, asked = now(), len(asked_at)
            await asyncio.sleep(after_s)
            before = logins(opened)
            pair = ("alice", "rotated")
            await asyncio.sleep(2.5)
            assert logins(opened) - before <= 3
            await asyncio.wait_for(producer.send(TOPIC, b"after"), 0.5)
            assert len(asked_at) - asked <= 4 + 2 * (now() - began_at)


def in_a_file(file: Path, current: Callable[[], str]) -> dict[str, Any]:
    return {"sasl_oauthbearer_token_endpoint_url": file.as_uri()}


def by_a_provider(_: Path, current: Callable[[], str]) -> dict[str, Any]:
    async def provider() -> object:
        return SimpleNamespace(value=current(), expires_at=time.time() + 3_600)

    return {"sasl_oauth_token_provider": provider}


def by_a_provider_of_texts(_: Path, current: Callable[[], str]) -> dict[str, Any]:
    async def provider() -> str:
        return current()

    return {"sasl_oauth_token_provider": provider}


@pytest.mark.parametrize("source", [in_a_file, by_a_provider, by_a_provider_of_texts])
@scenario
async def test_changed_token_is_tried_at_once(source: Any, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("token")
    async with secured("OAUTHBEARER") as opened:
        options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        options |= source(file, file.read_text)
        async with Producer(opened.bootstrap_servers, **options) as producer:
            await producer.send(TOPIC, b"before")
            names = opened.tokens
            assert isinstance(names, dict)
            del names["token"]
            names["second"] = "alice"
            opened.disconnect(1)
            before = logins(opened)
            await asyncio.sleep(40)
            assert logins(opened) - before <= 2 * 8  # two messages each
            file.write_text("second")
            await asyncio.sleep(2.5)
            await asyncio.wait_for(producer.send(TOPIC, b"after"), 0.5)


@pytest.mark.parametrize("lives_s", [None, 3_600])
@scenario
async def test_provider_of_ever_new_tokens_keeps_the_pace(lives_s: float | None) -> None:
    async with secured("OAUTHBEARER") as opened:
        asked_at: list[float] = []

        async def provider() -> object:
            asked_at.append(now())
            value = "token" if len(asked_at) == 1 else f"token{len(asked_at)}"
            return SimpleNamespace(value=value, expires_at=lives_s and time.time() + lives_s)

        options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        async with Producer(
            opened.bootstrap_servers, **options, sasl_oauth_token_provider=provider
        ) as producer:
            await producer.send(TOPIC, b"before")
            names = opened.tokens
            assert isinstance(names, dict)
            names.clear()
            opened.disconnect(1)
            before = logins(opened)
            await keep_sending(producer, 60)
            assert logins(opened) - before <= 2 * (9 + 3)
            assert len(asked_at) <= 16


@scenario
async def test_broker_that_refuses_alone_stops_no_other() -> None:
    async with secured("PLAIN", brokers=3, partitions=3) as opened:
        _ = opened.on("sasl_authenticate", node=2, times=None).answer(SaslAuthenticationFailed)
        async with producer_on(opened) as producer:
            for _number in range(20):
                for node in (1, 3):
                    opened.disconnect(node)
                outcomes = await asyncio.gather(
                    *[producer.send(TOPIC, b"value", partition=each) for each in range(3)],
                    return_exceptions=True,
                )
                failed = [each for each in outcomes if isinstance(each, BaseException)]
                assert len(failed) == 1, outcomes
                assert isinstance(failed[0], AuthenticationFailed)
                await asyncio.sleep(1)


@scenario
async def test_start_that_keeps_trying_keeps_the_pace() -> None:
    async with secured("PLAIN", brokers=3) as opened:
        producer = producer_on(opened, sasl_password="wrong")
        with pytest.raises(SaslAuthenticationFailed):
            await producer.start()
        assert logins(opened) == 3
