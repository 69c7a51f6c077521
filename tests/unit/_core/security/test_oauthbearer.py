from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.security.exchange import Exchange
from aioproducer._core.security.mechanism import Broker, Refused
from aioproducer._core.security.oauthbearer import OAuthBearer, first_message
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.tokens import Token
from tests.unit._core.security.conversation import first, reply


class Tokens:
    def __init__(self, value: str = "abc.def", extensions: dict[str, str] | None = None) -> None:
        self.given = Token(Secret(value), None, extensions or {})
        self.dropped: list[str] = []

    async def token(self) -> Token:
        return self.given

    def refused(self, value: Secret) -> None:
        self.dropped.append(value.reveal())

    async def differs(self, refused: object) -> bool:
        return False

    def close(self) -> None: ...


async def test_the_token_is_one_message() -> None:
    mechanism = OAuthBearer(Tokens())
    assert await first(mechanism) == b"n,,\x01auth=Bearer abc.def\x01\x01"
    assert await reply(mechanism, b"") == b""
    assert mechanism.complete


async def test_extensions_go_along_and_the_tokens_own_win() -> None:
    mechanism = OAuthBearer(Tokens(extensions={"b": "2"}), {"a": "1", "b": "1"})
    assert await first(mechanism) == b"n,,\x01auth=Bearer abc.def\x01a=1\x01b=2\x01\x01"


async def test_a_refusal_is_over_when_we_have_answered_it() -> None:
    mechanism = OAuthBearer(Tokens())
    await first(mechanism)
    assert await reply(mechanism, b'{"status":"invalid_token"}') == b"\x01"
    assert not mechanism.complete
    assert mechanism.detail == "invalid_token"


@pytest.mark.parametrize("then", [b"", b"{}"])
async def test_a_broker_that_refuses_and_then_takes_it_is_not_believed(then: bytes) -> None:
    mechanism = OAuthBearer(Tokens())
    await first(mechanism)
    await reply(mechanism, b'{"status":"invalid_token"}')
    with pytest.raises(Refused, match="refused the token and then took it: invalid_token"):
        await reply(mechanism, then)


@pytest.mark.parametrize("token", ["", "hunter 2", "hunter\x01b", "hünter", "=", "hunter=b", "hunter\n"])
async def test_a_token_that_could_be_read_as_something_else_is_not_sent(token: str) -> None:
    with pytest.raises(Refused, match="the token is empty, or has characters") as raised:
        await first(OAuthBearer(Tokens(token)))
    assert "nter" not in str(raised.value)


@pytest.mark.parametrize(
    "extensions",
    [{"auth": "x"}, {"AUTH": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "x\x01auth=y"}, {"a": "ü"}],
)
async def test_extensions_are_checked_too(extensions: dict[str, str]) -> None:
    with pytest.raises(Refused, match="the extension"):
        await first(OAuthBearer(Tokens(), extensions))


@pytest.mark.parametrize("extensions", [{1: "x"}, {"a": 1}, {"a": None}])
def test_extensions_are_text(extensions: dict[object, object]) -> None:
    with pytest.raises(Refused, match="the extension"):
        first_message(Secret("abc"), extensions)


@given(st.text(max_size=30), st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=3))
def test_a_message_has_what_was_given_or_there_is_none(token: str, extensions: dict[str, str]) -> None:
    try:
        message = first_message(Secret(token), extensions).decode()
    except Refused:
        return
    head, *pairs = message.removesuffix("\x01\x01").split("\x01")
    assert head == "n,,"
    assert dict(pair.split("=", 1) for pair in pairs) == {"auth": f"Bearer {token}", **extensions}


@given(st.lists(st.one_of(st.binary(max_size=300), st.just(b"[" * 100_000)), min_size=1, max_size=4))
async def test_whatever_a_broker_says_what_is_shown_is_short_and_printable(challenges: list[bytes]) -> None:
    mechanism = OAuthBearer(Tokens())
    await first(mechanism)
    for challenge in challenges:
        try:
            assert await reply(mechanism, challenge) == (b"\x01" if challenge else b"")
        except Refused:
            break
    assert len(mechanism.detail) < 1_000
    assert mechanism.detail.isprintable()
    assert not re.search("abc", mechanism.detail) or any(b"abc" in each for each in challenges)


@pytest.mark.parametrize("before", [0, 150, 199, 500])
@pytest.mark.parametrize("form", ["{}", '{{"status":"{}"}}', '["{}"]'])
async def test_long_token_that_a_broker_echoes_is_hidden(before: int, form: str) -> None:
    token = "0123456789abcdef" * 40
    mechanism = OAuthBearer(Tokens(token))
    await first(mechanism)
    assert await reply(mechanism, form.format("-" * before + token).encode()) == b"\x01"
    assert "0123456789" not in mechanism.detail
    assert len(mechanism.detail) < 300


async def test_refused_token_is_dropped() -> None:
    tokens = Tokens()
    exchange = Exchange(OAuthBearer(tokens), Broker("b", 1))
    await exchange.start()
    assert not exchange.is_refused
    exchange.refused(33, None)
    assert tokens.dropped == []
    await exchange.answer(b'{"status":"invalid_token"}')
    assert exchange.is_refused
    assert "(invalid_token)" in str(exchange.refused(58, None))
    assert tokens.dropped == ["abc.def"]
