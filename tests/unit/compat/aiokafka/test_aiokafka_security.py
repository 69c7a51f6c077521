"""What aiokafka's options for TLS and logins become, and which are refused as there."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any

import aiokafka
import pytest

from aioproducer._core.security.gssapi import Gssapi
from aioproducer._core.security.mechanism import Broker
from aioproducer.compat import aiokafka as compat
from aioproducer.compat.aiokafka.aiokafka_security import our_security
from aioproducer.config import ProducerConfig

CONTEXT = ssl.create_default_context()
DEFAULTS: dict[str, Any] = {
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


@pytest.mark.parametrize("client", [aiokafka, compat], ids=["aiokafka", "compat"])
@pytest.mark.parametrize(
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
    ids=lambda options: "-".join(str(each) for each in options.values() if isinstance(each, str)),
)
async def test_what_aiokafka_refuses_is_refused_as_there(client: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        client.AIOKafkaProducer(bootstrap_servers="localhost:1", **options)


@pytest.mark.parametrize("provider", [None, object(), "token"])
def test_a_token_has_to_come_from_somewhere(provider: object) -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    with pytest.raises(ValueError, match="AbstractTokenProvider"):
        our_security(**DEFAULTS | options | {"sasl_oauth_token_provider": provider})


def test_what_the_protocol_has_no_use_for_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    given = DEFAULTS | LOGIN | {"ssl_context": CONTEXT}
    assert our_security(**given) == {"security_protocol": "PLAINTEXT"}
    assert our_security(**given | {"security_protocol": "SSL"}) == {
        "security_protocol": "SSL",
        "ssl_context": CONTEXT,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_by_password(mechanism: str) -> None:
    given = DEFAULTS | LOGIN | {"security_protocol": "SASL_SSL", "ssl_context": CONTEXT}
    ours = our_security(**given | {"sasl_mechanism": mechanism})
    config = ProducerConfig(bootstrap_servers="a:1", **ours)
    assert (config.sasl_mechanism, config.sasl_username, config.ssl_context) == (mechanism, "alice", CONTEXT)
    assert config.sasl_password is not None
    assert config.sasl_password.reveal() == "hunter2"


@pytest.mark.parametrize("extensions", [None, {}, {"logicalCluster": "lkc-1"}])
async def test_a_provider_is_asked_for_token_and_extensions(extensions: Mapping[str, str] | None) -> None:
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    ours = our_security(**DEFAULTS | given | {"sasl_oauth_token_provider": Provider(extensions)})
    ask: Callable[[], Any] = ours["sasl_oauth_token_provider"]
    token = await ask()
    assert (token.value, token.extensions, token.expires_at) == ("token", extensions or {}, None)


async def test_kerberos_may_know_the_brokers_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given = DEFAULTS | {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    assert our_security(**given) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    asked: list[str] = []

    def begin(self: Gssapi, host: str) -> bytes:
        asked.append(host)
        return b"ticket"

    monkeypatch.setattr(Gssapi, "_begin", begin)
    mechanism = our_security(**given | {"sasl_kerberos_domain_name": "kafka.lab"})["sasl_mechanism"]()
    assert (mechanism.name, mechanism.complete) == ("GSSAPI", False)
    assert await mechanism.start(Broker("10.0.0.7", 9092)) == b"ticket"
    assert asked == ["kafka.lab"]
