"""Translation of aiokafka's options."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any

import aiokafka
import pytest

from aioproducer import ConfigError
from aioproducer._core.address import Address
from aioproducer._core.security.gssapi import Gssapi
from aioproducer.compat import aiokafka as compat
from aioproducer.compat.aiokafka.aiokafka_options import translated_config, translated_security, with_ports
from aioproducer.config import ProducerConfig
from tests.cases import for_each

DEFAULTS: dict[str, Any] = {
    "bootstrap_servers": "localhost",
    "acks": None,
    "enable_idempotence": False,
    "request_timeout_ms": 40_000,
    "max_batch_size": 16_384,
    "max_request_size": 1_048_576,
    "linger_ms": 0,
    "connections_max_idle_ms": 540_000,
}


def test_defaults_equal_those_of_aiokafka() -> None:
    config = translated_config(**DEFAULTS)
    assert config.bootstrap_servers == ("localhost:9092",)
    assert config.acks == 1
    assert not config.idempotent
    assert config.linger_ms == 0
    assert config.max_block_ms == config.delivery_timeout_ms == config.request_timeout_ms == 40_000


def test_lingering_comes_on_top_of_the_request_timeout() -> None:
    config = translated_config(**DEFAULTS | {"linger_ms": 2.5, "request_timeout_ms": 100})
    assert config.delivery_timeout_ms == 103


def test_idempotent_producer_uses_acks_all_and_no_deadline() -> None:
    config = translated_config(**DEFAULTS | {"enable_idempotence": True})
    assert config.idempotent
    assert config.acks == "all"
    assert config.batching_settings().outlives_deadline_if_led


def test_idempotent_producer_requires_acks_all() -> None:
    with pytest.raises(ConfigError, match="acks"):
        translated_config(**DEFAULTS | {"enable_idempotence": True, "acks": 1})


def test_acks_all_alone_is_not_idempotent() -> None:
    config = translated_config(**DEFAULTS | {"acks": -1})
    assert config.acks == "all"
    assert not config.idempotent


def test_connections_max_idle_ms_of_none_disables_the_check() -> None:
    assert translated_config(**DEFAULTS | {"connections_max_idle_ms": None}).connections_max_idle_ms == -1


def test_memory_is_no_limit_for_large_records() -> None:
    assert translated_config(**DEFAULTS).buffer_memory == 33_554_432
    assert translated_config(**DEFAULTS | {"max_request_size": 50_000_000}).buffer_memory == 100_000_000


def test_options_of_equal_name_are_passed_on() -> None:
    config = translated_config(**DEFAULTS, client_id="me", retry_backoff_ms=7, compression_type=None)
    assert (config.client_id, config.retry_backoff_ms, config.compression_type) == ("me", 7, "none")


@for_each(
    ("servers", "expected"),
    [
        ("localhost", ["localhost:9092"]),
        ("a:1, b", ["a:1", "b:9092"]),
        ("a:1, b,", ["a:1", "b:9092"]),
        ("", []),
        (["a", "b:2"], ["a:9092", "b:2"]),
        ("[::1]", ["[::1]:9092"]),
        ("[::1]:3", ["[::1]:3"]),
    ],
)
def test_broker_without_a_port_has_port_9092(servers: str | list[str], expected: list[str]) -> None:
    assert with_ports(servers) == expected


def test_transactional_producer_is_idempotent() -> None:
    config = translated_config(**DEFAULTS | {"transactional_id": "me", "transaction_timeout_ms": 5_000})
    assert (config.transactional_id, config.transaction_timeout_ms, config.acks) == ("me", 5_000, "all")
    assert config.idempotent
    assert config.batching_settings().outlives_deadline_if_led
    with pytest.raises(ValueError, match="acks"):
        translated_config(**DEFAULTS | {"transactional_id": "me", "acks": 1})


def test_transaction_timeout_is_ignored_without_an_id() -> None:
    assert translated_config(**DEFAULTS | {"transaction_timeout_ms": 0}).transactional_id is None


CONTEXT = ssl.create_default_context()
SECURITY: dict[str, Any] = {
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
}
LOGIN = {"sasl_plain_username": "alice", "sasl_plain_password": "hunter2"}


class Provider:
    def __init__(self, extensions: Mapping[str, str] | None = None) -> None:
        if extensions is not None:
            self.extensions = lambda: extensions

    async def token(self) -> str:
        return "token"


@for_each("client", [aiokafka, compat])
@for_each(
    "options",
    [
        {"security_protocol": "SOME"},
        {"security_protocol": "ssl", "ssl_context": CONTEXT},
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_SSL", **LOGIN},
        {"security_protocol": "SASL_PLAINTEXT"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "alice"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "plain", **LOGIN},
    ],
)
async def test_security_refuses_the_values_that_aiokafka_refuses(
    client: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError):
        client.AIOKafkaProducer(bootstrap_servers="localhost:1", **options)


@pytest.mark.parametrize("provider", [None, object(), "token"])
def test_oauthbearer_requires_a_token_provider(provider: object) -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    with pytest.raises(ValueError, match="AbstractTokenProvider"):
        translated_security(**SECURITY | options | {"sasl_oauth_token_provider": provider})


def test_security_drops_options_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    given = SECURITY | LOGIN | {"ssl_context": CONTEXT}
    assert translated_security(**given) == {"security_protocol": "PLAINTEXT"}
    assert translated_security(**given | {"security_protocol": "SSL"}) == {
        "security_protocol": "SSL",
        "ssl_context": CONTEXT,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_password_login_is_passed_on(mechanism: str) -> None:
    given = SECURITY | LOGIN | {"security_protocol": "SASL_SSL", "ssl_context": CONTEXT}
    ours = translated_security(**given | {"sasl_mechanism": mechanism})
    config = ProducerConfig(bootstrap_servers="a:1", **ours)
    assert (config.sasl_mechanism, config.sasl_username, config.ssl_context) == (mechanism, "alice", CONTEXT)
    assert config.sasl_password is not None
    assert config.sasl_password.reveal() == "hunter2"


@pytest.mark.parametrize("extensions", [None, {}, {"logicalCluster": "lkc-1"}])
async def test_token_provider_gives_token_and_extensions(extensions: Mapping[str, str] | None) -> None:
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    ours = translated_security(**SECURITY | given | {"sasl_oauth_token_provider": Provider(extensions)})
    ask: Callable[[], Any] = ours["sasl_oauth_token_provider"]
    token = await ask()
    assert (token.value, token.extensions, token.expires_at) == ("token", extensions or {}, None)


async def test_kerberos_may_know_the_brokers_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given = SECURITY | {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    assert translated_security(**given) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    asked: list[str] = []

    def run(self: Gssapi, step: object, host: str) -> bytes:
        asked.append(host)
        return b"ticket"

    monkeypatch.setattr(Gssapi, "_run", run)
    mechanism = translated_security(**given | {"sasl_kerberos_domain_name": "kafka.lab"})["sasl_mechanism"]()
    assert (mechanism.name, mechanism.complete) == ("GSSAPI", False)
    assert await mechanism.start(Address("10.0.0.7", 9092)) == b"ticket"
    assert asked == ["kafka.lab"]
