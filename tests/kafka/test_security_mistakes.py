"""Mistakes of users: the error of `start()` names the mistake and the remedy at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final, NamedTuple

import pytest

from aioproducer import AuthenticationFailed, ConnectionFailed, Producer
from aioproducer._core.net.dial import MakeProtocol, dial, routes
from aioproducer.config import ProducerOptions
from tests.kafka.apache.secured import SecuredKafka
from tests.kafka.secured_clients import MECHANISMS, identity, options, unsigned
from tests.unit._core.security.certificates import NOW, Authority

AT_ONCE_S: Final = 2.0
FAILS_WITHIN_S: Final = 5.0
STRANGER: Final = Authority("another authority")
TLS12: Final[ProducerOptions] = {"ssl_enabled_protocols": "TLSv1.2"}


class Unheard:
    """A mechanism that the broker supports but has not enabled."""

    name: Final = "GSSAPI"

    def start(self, broker: object) -> bytes:
        return b"hello"

    def respond(self, challenge: bytes) -> bytes:
        return b""


class Mistake(NamedTuple):
    """A mistake and its expected message."""

    listener: str
    given: Callable[[SecuredKafka], ProducerOptions]
    says: tuple[str, ...]
    error: type[Exception] = AuthenticationFailed


def trusting(kafka: SecuredKafka) -> ProducerOptions:
    return options(kafka, "TLS")


def unproven(kafka: SecuredKafka) -> ProducerOptions:
    return options(kafka, "TLS") | identity(STRANGER.issue(common_name="alice"))


def outdated(kafka: SecuredKafka) -> ProducerOptions:
    issued = kafka.authority.issue(
        common_name="alice", not_before=NOW - timedelta(days=9), not_after=NOW - timedelta(days=2)
    )
    return options(kafka, "TLS") | identity(issued)


def in_the_clear(kafka: SecuredKafka) -> ProducerOptions:
    return options(kafka, "PLAINTEXT")


MISTAKES: Final[dict[str, Mistake]] = {
    f"{what} {mechanism} {listener}": Mistake(
        listener,
        lambda kafka, listener=listener, mechanism=mechanism, wrong=wrong: (  # type: ignore[misc]
            options(kafka, listener, mechanism) | wrong
        ),
        (f"by {mechanism}", "Authentication failed", "check", "password"),
    )
    for what, wrong in {
        "wrong password": {"sasl_password": "wrong"},
        "unknown user": {"sasl_username": "nobody"},
    }.items()
    for mechanism in MECHANISMS
    if mechanism != "OAUTHBEARER"
    for listener in ("SASL", "SASL_TLS")
} | {
    "expired token": Mistake(
        "SASL_TLS",
        lambda kafka: (
            options(kafka, "SASL_TLS", "OAUTHBEARER")
            | {"sasl_oauth_token_provider": lambda: unsigned("alice", -60)}
        ),
        ("OAUTHBEARER", "invalid_token", "expiry"),
    ),
    "no token": Mistake(
        "SASL",
        lambda kafka: options(kafka, "SASL", "OAUTHBEARER") | {"sasl_oauth_token_provider": lambda: 1 // 0},
        ("OAUTHBEARER", "sasl_oauth_token_provider raised ZeroDivisionError"),
    ),
    "mechanism not offered": Mistake(
        "SASL",
        lambda _: {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": Unheard},
        ("does not take GSSAPI", "sasl_mechanism", *MECHANISMS),
    ),
    "authority not trusted": Mistake(
        "TLS",
        lambda _: {"security_protocol": "SSL", "ssl_truststore_certificates": STRANGER.pem},
        ("the issuer of its certificate (CN=lab authority) is not trusted", "ssl_truststore_certificates"),
    ),
    "authority not given": Mistake(
        "TLS",
        lambda _: {"security_protocol": "SSL"},
        ("the issuer of its certificate", "ssl_truststore_location"),
    ),
    "expired": Mistake("EXPIRED", trusting, ("has expired on", "UTC")),
    "another host's": Mistake(
        "ELSEWHERE", trusting, ("is not for localhost, but for kafka.elsewhere.example",)
    ),
    "no version in common": Mistake(
        "TLS12",
        lambda kafka: trusting(kafka) | {"ssl_enabled_protocols": "TLSv1.3"},
        ("it supports none of TLSv1.3", "ssl_enabled_protocols"),
    ),
    "TLS to a plaintext port": Mistake(
        "PLAINTEXT", trusting, ("TLS handshake", "listener for PLAINTEXT"), ConnectionFailed
    ),
    "TLS to a SASL port": Mistake("SASL", trusting, ("TLS handshake", "SASL_PLAINTEXT"), ConnectionFailed),
    "plaintext to a TLS port": Mistake("TLS", in_the_clear, ("expects TLS",), ConnectionFailed),
    "SASL in the clear to a TLS port": Mistake(
        "SASL_TLS", lambda kafka: options(kafka, "SASL", "PLAIN"), ("expects TLS",), ConnectionFailed
    ),
    "plaintext to a SASL port": Mistake("SASL", in_the_clear, ("may require SASL",), ConnectionFailed),
    "TLS without SASL": Mistake("SASL_TLS", trusting, ("may require SASL",), ConnectionFailed),
    "SASL to a plaintext port": Mistake(
        "PLAINTEXT", lambda kafka: options(kafka, "SASL", "PLAIN"), ("may have no SASL",)
    ),
    "SASL to a TLS port": Mistake(
        "TLS", lambda kafka: options(kafka, "SASL_TLS", "SCRAM-SHA-256"), ("may have no SASL",)
    ),
    "no certificate of ours": Mistake(
        "MTLS", trusting, ("requires a client certificate", "ssl_keystore_location")
    ),
    "no certificate of ours, 1.2": Mistake(
        "MTLS", lambda kafka: trusting(kafka) | TLS12, ("requires a client certificate",)
    ),
    "an unknown authority's": Mistake(
        "MTLS", unproven, ("does not accept the client certificate", "ssl_keystore_certificate_chain")
    ),
    "an unknown authority's, 1.2": Mistake(
        "MTLS", lambda kafka: unproven(kafka) | TLS12, ("does not accept the client certificate",)
    ),
    "ours has expired": Mistake("MTLS", outdated, ("does not accept the client certificate",)),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
async def test_start_fails_with_the_cause_of_the_refused_login(
    secured: SecuredKafka, mistake: Mistake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    at = secured.at(mistake.listener)
    producer = Producer(at, **mistake.given(secured))
    began_at = time.monotonic()
    with pytest.raises(mistake.error) as caught:
        await producer.start()
    took_s = time.monotonic() - began_at
    await producer.close()
    error, said = caught.value, str(caught.value)
    assert took_s < AT_ONCE_S
    assert all(word in said for word in (at, *mistake.says)), said
    assert "_ssl.c" not in said + caplog.text
    assert "Traceback" not in caplog.text
    if isinstance(error, AuthenticationFailed):
        assert not error.fatal
        assert not error.possibly_persisted
        assert error.broker == at


@pytest.mark.parametrize("order", [1, -1], ids=["refused first", "refused last"])
async def test_start_names_the_cause_when_other_servers_fail(secured: SecuredKafka, order: int) -> None:
    nobody = "127.0.0.1:1"
    servers = [secured.at("SASL"), nobody][::order]
    wrong: ProducerOptions = {"sasl_password": "wrong"}
    producer = Producer(servers, **(options(secured, "SASL", "SCRAM-SHA-256") | wrong))
    began_at = time.monotonic()
    with pytest.raises(AuthenticationFailed):
        await producer.start()
    assert time.monotonic() - began_at < AT_ONCE_S
    await producer.close()


async def test_start_succeeds_when_other_servers_are_not_proven(secured: SecuredKafka) -> None:
    servers = [secured.at(each) for each in ("EXPIRED", "ELSEWHERE", "TLS")]
    for _ in range(5):  # the order in which servers are asked is random
        producer = Producer(servers, **trusting(secured))
        await producer.start()
        await producer.close()


@pytest.fixture
def elsewhere(secured: SecuredKafka) -> Iterator[str]:
    """The address of a listener by the name in its certificate, which is not the name that it advertises."""
    _, _, port = secured.at("ELSEWHERE").rpartition(":")
    name = "kafka.elsewhere.example", int(port)

    async def resolved(_host: str, port: int, make_protocol: MakeProtocol, /) -> asyncio.Transport:
        return await dial("localhost", port, make_protocol)

    routes[name] = resolved
    yield f"{name[0]}:{name[1]}"
    del routes[name]


@pytest.mark.parametrize("given", [{}, {"enable_idempotence": False}, {"acks": 0}], ids=str)
async def test_send_fails_when_advertised_name_is_in_no_certificate(
    secured: SecuredKafka, secured_topic: str, elsewhere: str, given: ProducerOptions
) -> None:
    given = {"enable_idempotence": False, **given} if "acks" in given else given
    async with Producer(elsewhere, **(trusting(secured) | given)) as producer:
        for _ in range(2):
            began_at = time.monotonic()
            with pytest.raises(AuthenticationFailed, match=r"is not for localhost, but for kafka\.elsewhere"):
                await producer.send(secured_topic, b"value")
            assert time.monotonic() - began_at < FAILS_WITHIN_S


async def test_start_in_transactions_fails_when_name_is_in_no_cert(
    secured: SecuredKafka, elsewhere: str
) -> None:
    named: ProducerOptions = {"transactional_id": "advertised"}
    producer = Producer(elsewhere, **(trusting(secured) | named))
    began_at = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="is not for localhost"):
        await producer.start()
    assert time.monotonic() - began_at < FAILS_WITHIN_S
    await producer.close()
