"""Secrets that are planted, and then looked for wherever text comes out: on the way in, and when it is refused."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka.admin import AclOperation

from aioproducer import AuthenticationFailed, Producer
from aioproducer.config import ProducerOptions
from tests.kafka.apache.secured import PASSWORDS, REAUTH_MS, SecuredKafka
from tests.kafka.secured_clients import allow, options, reset, set_password, unsigned, written
from tests.unit._core.security.certificates import Authority

PASSWORD: Final = "planted-Pa55word-x7Qz"
KEY_PASSWORD: Final = "planted-K3y-password-9vLm"
USER: Final = "planted-user"


class Plant(NamedTuple):
    """A login and its secrets."""

    listener: str
    options: ProducerOptions
    secrets: list[str]


def by_password(mechanism: str, listener: str) -> Callable[[SecuredKafka, Path, bool], Plant]:
    def make(kafka: SecuredKafka, folder: Path, good: bool) -> Plant:
        user, password = ("alice", PASSWORDS["alice"]) if mechanism == "PLAIN" else (USER, PASSWORD)
        password += "" if good else "-wrong"
        chosen: ProducerOptions = options(kafka, listener, "PLAIN")
        chosen["sasl_mechanism"] = mechanism  # type: ignore[typeddict-item]
        chosen |= {"sasl_username": user, "sasl_password": password}
        in_base64 = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
        return Plant(listener, chosen, [password, in_base64[:40]])

    return make


def by_token(kafka: SecuredKafka, folder: Path, good: bool) -> Plant:
    token = unsigned("alice", 3_600 if good else -60)
    chosen = options(kafka, "REAUTH_TLS", "OAUTHBEARER")
    chosen["sasl_oauth_token_provider"] = lambda: token
    return Plant("REAUTH_TLS", chosen, [token.split(".")[1]])


def by_key(kafka: SecuredKafka, folder: Path, good: bool) -> Plant:
    issued = (kafka.authority if good else Authority("another")).issue(common_name="alice")
    key = issued.encrypted_key(KEY_PASSWORD)
    chosen = options(kafka, "TLS")
    chosen["ssl_keystore_certificate_chain"] = issued.chain
    chosen["ssl_keystore_key"] = key
    chosen["ssl_key_password"] = KEY_PASSWORD
    return Plant("MTLS", chosen, [KEY_PASSWORD, key.splitlines()[2], issued.key_pem.splitlines()[2]])


def by_key_file(kafka: SecuredKafka, folder: Path, good: bool) -> Plant:
    issued = (kafka.authority if good else Authority("another")).issue(common_name="alice")
    chosen = options(kafka, "TLS")
    chosen["ssl_keystore_location"] = written(folder / "both.pem", issued.chain, issued.key_pem)
    return Plant("MTLS", chosen, [issued.key_pem.splitlines()[2]])


WAYS: Final = {
    "PLAIN": by_password("PLAIN", "REAUTH"),
    "SCRAM": by_password("SCRAM-SHA-512", "REAUTH"),
    "OAUTHBEARER": by_token,
    "key": by_key,
    "key file": by_key_file,
}


def told(error: BaseException) -> list[str]:
    return [str(error), repr(error), "".join(traceback.format_exception(error))]


@pytest.mark.parametrize("good", [True, False], ids=["accepted", "refused"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_secret_is_shown_nowhere(
    secured: SecuredKafka,
    secured_topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    way: Callable[[SecuredKafka, Path, bool], Plant],
    good: bool,
) -> None:
    set_password(secured, USER, PASSWORD)
    allow(secured, USER, AclOperation.WRITE, [secured_topic])
    plant = way(secured, tmp_path, good)
    texts: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0  # each callback is logged with its arguments
    caplog.set_level(logging.DEBUG)
    producer = Producer(secured.at(plant.listener), **plant.options)
    try:
        await producer.start()
        began_at = time.monotonic()
        while not texts or (
            plant.listener.startswith("REAUTH") and "connection.reauthenticated" not in caplog.text
        ):
            assert time.monotonic() < began_at + REAUTH_MS / 1_000, "it has not logged in again"
            texts += [repr(handle) for handle in loop._scheduled]  # type: ignore[attr-defined]
            texts += [repr(task) + repr(task.get_coro()) for task in asyncio.all_tasks()]
            await producer.send(secured_topic, b"value")
            await asyncio.sleep(0.05)  # the pace of the load
        reset(producer)
        await producer.send(secured_topic, b"value")
    except AuthenticationFailed as error:
        assert not good
        texts += told(error)
    else:
        assert good
    texts += [
        repr(producer),
        str(producer),
        repr(producer.config),
        str(producer.config),
        repr(vars(producer)),
    ]
    if producer._engine is not None:
        texts += [repr(producer.metrics()), repr(vars(producer._engine))]
        texts += [repr(vars(each)) for each in producer._engine.pool._open]
    await producer.close()
    assert "Executing <" in caplog.text
    texts += [caplog.text, *(repr(each.__dict__) for each in caplog.records)]
    for secret in plant.secrets:
        shown = [text for text in texts if secret in text]
        assert not shown, [where[max(0, where.index(secret) - 200) :][:300] for where in shown[:3]]
