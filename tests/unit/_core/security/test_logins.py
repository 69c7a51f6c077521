from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.security import logins as module
from aioproducer._core.security.aws_msk_iam import AwsCredentials
from aioproducer._core.security.credentials import Login
from aioproducer._core.security.gssapi import KerberosSettings
from aioproducer._core.security.logins import Logins
from aioproducer._core.security.scram import Scram
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import EndpointSettings, SaslSettings, UnsecuredSettings
from aioproducer._core.security.tokens import Token
from aioproducer.errors import AuthenticationFailed
from tests.unit._core.security.conversation import BROKER

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


async def proof_of_a_login(logins: Logins) -> object:
    exchange = logins.exchange(BROKER)
    await exchange.start()
    return exchange.proof


async def test_pair_that_does_not_change_never_differs() -> None:
    logins = Logins(SaslSettings("PLAIN", BACKOFF, credentials=LOGIN))
    assert not await logins.differ(await proof_of_a_login(logins))


async def test_next_login_takes_the_pair_that_differs() -> None:
    passwords = iter(["one", "one", "two", "three"])
    logins = Logins(SaslSettings("SCRAM-SHA-256", BACKOFF, credentials=lambda: ("u", next(passwords))))
    refused = await proof_of_a_login(logins)
    assert not await logins.differ(refused)
    assert await logins.differ(refused)
    assert await proof_of_a_login(logins) == ("u", Secret("two"))
    assert await proof_of_a_login(logins) == ("u", Secret("three"))


async def test_token_differs_when_the_provider_gives_another_one() -> None:
    tokens = iter(["one", "two", "three"])
    logins = Logins(SaslSettings("OAUTHBEARER", BACKOFF, tokens=lambda: next(tokens)))
    assert await logins.differ(await proof_of_a_login(logins))
    assert await proof_of_a_login(logins) == Secret("two")
    logins.close()


async def test_keytab_differs_when_the_file_changes(tmp_path: Path) -> None:
    keytab = tmp_path / "keytab"
    keytab.write_bytes(b"one")
    settings = KerberosSettings("kafka", keytab=str(keytab))
    logins = Logins(SaslSettings("GSSAPI", BACKOFF, kerberos=settings))
    refused = settings.keytab_state()
    assert not await logins.differ(refused)
    keytab.write_bytes(b"another")
    assert await logins.differ(refused)


async def test_aws_credentials_differ_when_botocore_has_others(monkeypatch: pytest.MonkeyPatch) -> None:
    current = AwsCredentials("key", Secret("hunter2"), None, "eu-west-1")
    monkeypatch.setattr(module, "BotocoreCredentials", lambda: lambda: current)
    logins = Logins(SaslSettings("AWS_MSK_IAM", BACKOFF))
    refused = await proof_of_a_login(logins)
    assert not await logins.differ(refused)
    current = current._replace(access_key="another")
    assert await logins.differ(refused)


async def test_mechanism_of_the_user_never_differs() -> None:
    assert not await Logins(SaslSettings(Scram, BACKOFF)).differ(None)  # type: ignore[arg-type]
