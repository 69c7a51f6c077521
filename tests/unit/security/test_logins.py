from __future__ import annotations

from typing import Any

import pytest

from aioproducer.backoff import Backoff
from aioproducer.errors import AuthenticationFailed
from aioproducer.security import logins as module
from aioproducer.security.credentials import Login
from aioproducer.security.gssapi import KerberosSettings
from aioproducer.security.logins import Logins
from aioproducer.security.secret import Secret
from aioproducer.security.security_settings import EndpointSettings, SaslSettings, UnsecuredSettings
from aioproducer.security.tokens import Token
from tests.unit.security.conversation import BROKER

BACKOFF = Backoff(0.1, 1.0)
LOGIN = Login("u", Secret("hunter2"))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("PLAIN", {"credentials": LOGIN}),
        ("SCRAM-SHA-256", {"credentials": LOGIN}),
        ("SCRAM-SHA-512", {"credentials": LOGIN}),
        ("OAUTHBEARER", {"tokens": lambda: "abc"}),
        ("GSSAPI", {"kerberos": KerberosSettings("kafka")}),
        ("AWS_MSK_IAM", {}),
    ],
)
def test_each_mechanism_is_made_anew_for_each_login(name: str, more: dict[str, Any]) -> None:
    logins = Logins(SaslSettings(name, BACKOFF, **more))
    first, second = logins.exchange(BROKER), logins.exchange(BROKER)
    assert first.mechanism.name == name
    assert first.mechanism is not second.mechanism
    assert first.broker == BROKER
    logins.close()


async def test_settings_reach_the_mechanism() -> None:
    token = Logins(SaslSettings("SCRAM-SHA-256", BACKOFF, credentials=LOGIN, token_auth=True))
    assert b",tokenauth=true" in (await token.exchange(BROKER).start()).take()
    shared = Logins(SaslSettings("OAUTHBEARER", BACKOFF, tokens=lambda: "abc"))
    assert (await shared.exchange(BROKER).start()).take() == b"n,,\x01auth=Bearer abc\x01\x01"
    shared.close()


async def test_tokens_come_from_where_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    unsecured = Logins(
        SaslSettings("OAUTHBEARER", BACKOFF, tokens=UnsecuredSettings(), extensions={"a": "b"})
    )
    assert b"\x01a=b\x01" in (await unsecured.exchange(BROKER).start()).take()
    unsecured.close()
    missing = Logins(SaslSettings("OAUTHBEARER", BACKOFF, tokens="file:///missing/token"))
    with pytest.raises(AuthenticationFailed, match="'/missing/token': No such file"):
        await missing.exchange(BROKER).start()
    asked: list[object] = []

    class Endpoint:
        def __init__(self, *given: object) -> None:
            asked.append(given)

        async def fetch(self) -> Token:
            return Token(Secret("abc"))

    monkeypatch.setattr(module, "TokenEndpoint", Endpoint)
    endpoint = EndpointSettings("https://idp", BACKOFF)
    Logins(SaslSettings("OAUTHBEARER", BACKOFF, tokens=endpoint, extensions={"a": "b"}))
    assert asked == [(endpoint, {"a": "b"})]


def test_a_factory_of_the_users_that_raises_or_gives_something_else() -> None:
    def broken() -> Any:
        raise OSError("hunter2")

    def other() -> Any:
        return "hunter2"

    with pytest.raises(
        AuthenticationFailed, match="sasl_mechanism raised OSError, which is the cause"
    ) as raised:
        Logins(SaslSettings(broken, BACKOFF)).exchange(BROKER)
    assert "hunter2" not in str(raised.value)
    with pytest.raises(AuthenticationFailed, match=r"with name, start and respond, and returned str$"):
        Logins(SaslSettings(other, BACKOFF)).exchange(BROKER)


async def test_a_mechanism_has_a_name() -> None:
    class Nameless:
        name = None

        def start(self, _broker: object) -> bytes:
            return b""

        def respond(self, _challenge: bytes) -> bytes:
            return b""

    factory: Any = Nameless
    with pytest.raises(AuthenticationFailed, match="returned Nameless"):
        Logins(SaslSettings(factory, BACKOFF)).exchange(BROKER)
