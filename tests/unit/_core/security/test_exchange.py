from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.security import exchange as module
from aioproducer._core.security.aws_msk_iam import AwsCredentials
from aioproducer._core.security.exchange import LONGEST_MESSAGE, MOST_ROUNDS, Exchange, ExchangeFactory
from aioproducer._core.security.gssapi import KerberosSettings
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.oauthbearer import Token
from aioproducer._core.security.passwords import Login, Plain, Scram
from aioproducer._core.security.secret import Secret, SecretBytes
from aioproducer._core.security.security_settings import EndpointSettings, SaslSettings, UnsecuredSettings
from aioproducer.errors import (
    AuthenticationFailed,
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from tests.cases import for_each
from tests.unit._core.security.conversation import BROKER, ScramServer, credentials


class Script:
    """Custom mechanism without `complete` that sends the given messages."""

    name = "MINE"

    def __init__(self, *messages: object) -> None:
        self.messages = list(messages)
        self.heard: list[object] = []

    def start(self, broker: object) -> bytes | Awaitable[bytes]:
        return self.respond(broker)

    def respond(self, challenge: object) -> bytes | Awaitable[bytes]:
        self.heard.append(challenge)
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message  # type: ignore[return-value]


class Whole(Script):
    complete = False


async def later(message: bytes) -> bytes:
    return message


def taken(message: SecretBytes | None) -> bytes:
    assert message is not None
    return message.take()


async def test_plain_login_sends_one_message() -> None:
    exchange = Exchange(Plain(credentials()), BROKER)
    assert taken(await exchange.start()) == b"\0user\0pencil"
    assert await exchange.answer(b"") is None


async def test_scram_login_sends_two_messages() -> None:
    server = ScramServer("sha256", b"pencil")
    exchange = Exchange(Scram("SCRAM-SHA-256", credentials()), BROKER)
    proof = await exchange.answer(server.challenge(taken(await exchange.start())))
    verdict = server.verdict(taken(proof))
    assert verdict is not None
    assert await exchange.answer(verdict) is None


async def test_scram_without_a_proof_of_the_brokers_is_no_login() -> None:
    exchange = Exchange(Scram("SCRAM-SHA-256", credentials()), BROKER)
    await exchange.start()
    with pytest.raises(AuthenticationFailed, match="is malformed"):
        await exchange.answer(b"")


async def test_custom_mechanism_may_be_sync_or_async() -> None:
    mechanism = Script(later(b"1"), b"2", later(b"3"))
    exchange = Exchange(mechanism, BROKER)
    assert taken(await exchange.start()) == b"1"
    assert taken(await exchange.answer(b"a")) == b"2"
    assert taken(await exchange.answer(b"b")) == b"3"
    assert await exchange.answer(b"") is None
    assert mechanism.heard == [BROKER, b"a", b"b"]


async def test_custom_mechanism_is_complete_after_an_empty_message() -> None:
    exchange = Exchange(Script(b"1", b""), BROKER)
    await exchange.start()
    assert await exchange.answer(b"welcome") is None


async def test_mechanism_with_complete_may_send_empty_messages() -> None:
    mechanism = Whole(b"1", b"", b"2", b"")
    exchange = Exchange(mechanism, BROKER)
    await exchange.start()
    assert taken(await exchange.answer(b"a")) == b""
    assert taken(await exchange.answer(b"")) == b"2"
    mechanism.complete = True
    assert await exchange.answer(b"") is None


@pytest.mark.parametrize("messages", [[Refused("no ticket")], [AuthenticationFailed("no ticket")]])
async def test_login_error_names_broker_and_mechanism(messages: list[object]) -> None:
    with pytest.raises(AuthenticationFailed) as raised:
        await Exchange(Script(*messages), BROKER).start()
    assert str(raised.value) == "no login by MINE at broker.example:9093: no ticket"
    assert (raised.value.broker, raised.value.mechanism) == ("broker.example:9093", "MINE")


async def test_text_of_a_custom_mechanism_error_is_in_the_cause_only() -> None:
    with pytest.raises(AuthenticationFailed, match=r": it raised ValueError, which is the cause$") as raised:
        await Exchange(Script(ValueError("hunter2")), BROKER).start()
    assert isinstance(raised.value.__cause__, ValueError)


async def test_message_of_a_custom_mechanism_must_be_bytes() -> None:
    with pytest.raises(AuthenticationFailed, match="returned str; it has to return bytes"):
        await Exchange(Script("text"), BROKER).start()


async def test_number_of_challenges_is_limited() -> None:
    exchange = Exchange(Whole(*[b"x"] * 100), BROKER)
    await exchange.start()
    for _ in range(MOST_ROUNDS):
        await exchange.answer(b"more")
    with pytest.raises(AuthenticationFailed, match="challenges; at most 16 are expected"):
        await exchange.answer(b"more")


async def test_length_of_a_challenge_is_limited() -> None:
    exchange = Exchange(Whole(b"x"), BROKER)
    await exchange.start()
    with pytest.raises(AuthenticationFailed, match="challenge of 1,048,577 bytes"):
        await exchange.answer(bytes(LONGEST_MESSAGE + 1))


def test_refused_login_error_has_the_brokers_message_and_a_hint() -> None:
    error = Exchange(Plain(credentials()), BROKER).refused(58, "Invalid username or password")
    assert isinstance(error, SaslAuthenticationFailed)
    assert str(error) == (
        "broker.example:9093 refused the login by PLAIN: Invalid username or password; "
        "check user name and password, and whether the listener knows this user"
    )
    assert (error.broker, error.mechanism, error.fatal) == ("broker.example:9093", "PLAIN", False)


def test_refused_login_error_has_the_detail_of_the_mechanism() -> None:
    mechanism = Script()
    mechanism.detail = "invalid_token"  # type: ignore[attr-defined]
    error = Exchange(mechanism, BROKER).refused(58, None)
    assert str(error) == (
        "broker.example:9093 refused the login by MINE (invalid_token); check the credentials"
    )
    said = str(Exchange(mechanism, BROKER).refused(58, '{"status":"invalid_token"}'))
    assert said.count("invalid_token") == 1


@for_each(
    ("code", "offered", "text", "cause"),
    [
        (
            33,
            ["PLAIN", "GSSAPI"],
            "it has PLAIN, GSSAPI: set sasl_mechanism to one of them",
            UnsupportedSaslMechanism,
        ),
        (33, [], "does not take MINE on this listener; it lists none", UnsupportedSaslMechanism),
        (34, [], "the listener may have no SASL", IllegalSaslState),
        (-1, [], "answered the login by MINE with UnknownServerError: oh", Exception),
        (999, [], "with ErrorCode999: oh", Exception),
    ],
)
def test_sasl_error_codes_are_explained(
    code: int, offered: list[str], text: str, cause: type[Exception]
) -> None:
    error = Exchange(Script(), BROKER).refused(code, "oh", offered)
    assert text in str(error)
    assert isinstance(error.__cause__, cause)
    assert not error.retriable


async def test_secret_among_offered_mechanisms_is_hidden() -> None:
    exchange = Exchange(Plain(credentials()), BROKER)
    await exchange.start()
    error = exchange.refused(UnsupportedSaslMechanism.code, None, ["SCRAM-SHA-256", "pencil"])
    assert "SCRAM-SHA-256, ***" in str(error)
    assert "pencil" not in f"{error} {error.__cause__}"


async def test_secret_in_the_error_of_a_scram_server_is_hidden() -> None:
    exchange = Exchange(Scram("SCRAM-SHA-256", credentials()), BROKER)
    await exchange.start()
    with pytest.raises(AuthenticationFailed, match=r"the broker reports '\*\*\*'"):
        await exchange.answer(b"e=pencil")


BACKOFF = Backoff(0.1, 1.0)
LOGIN = Login("u", Secret("hunter2"))


@for_each(
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
def test_mechanism_is_created_for_each_login(name: str, more: dict[str, Any]) -> None:
    logins = ExchangeFactory(SaslSettings(name, BACKOFF, **more))
    first, second = logins.exchange(BROKER), logins.exchange(BROKER)
    assert first.mechanism.name == name
    assert first.mechanism is not second.mechanism
    assert first.broker == BROKER
    logins.close()


async def test_settings_reach_the_mechanism() -> None:
    token = ExchangeFactory(SaslSettings("SCRAM-SHA-256", BACKOFF, credentials=LOGIN, token_auth=True))
    assert b",tokenauth=true" in (await token.exchange(BROKER).start()).take()
    shared = ExchangeFactory(SaslSettings("OAUTHBEARER", BACKOFF, tokens=lambda: "abc"))
    assert (await shared.exchange(BROKER).start()).take() == b"n,,\x01auth=Bearer abc\x01\x01"
    shared.close()


async def test_token_source_follows_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    unsecured = ExchangeFactory(
        SaslSettings("OAUTHBEARER", BACKOFF, tokens=UnsecuredSettings(), extensions={"a": "b"})
    )
    assert b"\x01a=b\x01" in (await unsecured.exchange(BROKER).start()).take()
    unsecured.close()
    missing = ExchangeFactory(SaslSettings("OAUTHBEARER", BACKOFF, tokens="file:///missing/token"))
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
    ExchangeFactory(SaslSettings("OAUTHBEARER", BACKOFF, tokens=endpoint, extensions={"a": "b"}))
    assert asked == [(endpoint, {"a": "b"})]


def test_broken_mechanism_factory_fails_the_login() -> None:
    def broken() -> Any:
        raise OSError("hunter2")

    def other() -> Any:
        return "hunter2"

    with pytest.raises(
        AuthenticationFailed, match="sasl_mechanism raised OSError, which is the cause"
    ) as raised:
        ExchangeFactory(SaslSettings(broken, BACKOFF)).exchange(BROKER)
    assert "hunter2" not in str(raised.value)
    with pytest.raises(AuthenticationFailed, match=r"with name, start and respond, and returned str$"):
        ExchangeFactory(SaslSettings(other, BACKOFF)).exchange(BROKER)


async def test_mechanism_without_a_name_fails_the_login() -> None:
    class Nameless:
        name = None

        def start(self, _broker: object) -> bytes:
            return b""

        def respond(self, _challenge: bytes) -> bytes:
            return b""

    factory: Any = Nameless
    with pytest.raises(AuthenticationFailed, match="returned Nameless"):
        ExchangeFactory(SaslSettings(factory, BACKOFF)).exchange(BROKER)


async def proof_of_a_login(logins: ExchangeFactory) -> object:
    exchange = logins.exchange(BROKER)
    await exchange.start()
    return exchange.proof


async def test_pair_that_does_not_change_never_differs() -> None:
    logins = ExchangeFactory(SaslSettings("PLAIN", BACKOFF, credentials=LOGIN))
    assert not await logins.differ(await proof_of_a_login(logins))


async def test_next_login_uses_the_changed_credentials() -> None:
    passwords = iter(["one", "one", "two", "three"])
    logins = ExchangeFactory(
        SaslSettings("SCRAM-SHA-256", BACKOFF, credentials=lambda: ("u", next(passwords)))
    )
    refused = await proof_of_a_login(logins)
    assert not await logins.differ(refused)
    assert await logins.differ(refused)
    assert await proof_of_a_login(logins) == ("u", Secret("two"))
    assert await proof_of_a_login(logins) == ("u", Secret("three"))


async def test_token_differs_when_the_provider_gives_another_one() -> None:
    tokens = iter(["one", "two", "three"])
    logins = ExchangeFactory(SaslSettings("OAUTHBEARER", BACKOFF, tokens=lambda: next(tokens)))
    assert await logins.differ(await proof_of_a_login(logins))
    assert await proof_of_a_login(logins) == Secret("two")
    logins.close()


async def test_keytab_differs_when_the_file_changes(tmp_path: Path) -> None:
    keytab = tmp_path / "keytab"
    keytab.write_bytes(b"one")
    settings = KerberosSettings("kafka", keytab=str(keytab))
    logins = ExchangeFactory(SaslSettings("GSSAPI", BACKOFF, kerberos=settings))
    refused = settings.keytab_state()
    assert not await logins.differ(refused)
    keytab.write_bytes(b"another")
    assert await logins.differ(refused)


async def test_aws_credentials_differ_when_botocore_has_others(monkeypatch: pytest.MonkeyPatch) -> None:
    current = AwsCredentials("key", Secret("hunter2"), None, "eu-west-1")
    monkeypatch.setattr(module, "BotocoreCredentials", lambda: lambda: current)
    logins = ExchangeFactory(SaslSettings("AWS_MSK_IAM", BACKOFF))
    refused = await proof_of_a_login(logins)
    assert not await logins.differ(refused)
    current = current._replace(access_key="another")
    assert await logins.differ(refused)


async def test_mechanism_of_the_user_never_differs() -> None:
    assert not await ExchangeFactory(SaslSettings(Scram, BACKOFF)).differ(None)  # type: ignore[arg-type]
