from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.security.exchange import Exchange
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.oauthbearer import (
    OAuthBearer,
    SharedTokens,
    Token,
    as_token,
    first_message,
    from_provider,
)
from aioproducer._core.security.secret import Secret
from aioproducer.errors import AuthenticationFailed
from aioproducer.testing.virtual_time import in_virtual_time
from tests.cases import for_each
from tests.unit._core.security.conversation import first, reply

BACKOFF = Backoff(initial_s=1, max_s=8, jitter=0)
EPOCH = 1_700_000_000.0


class Endpoint:
    """Token provider with numbered tokens that live 100 s of loop time. May fail or be slow."""

    def __init__(self, *, life_s: float | None = 100, takes_s: float = 0) -> None:
        self.life_s = life_s
        self.takes_s = takes_s
        self.fails_with: Exception | None = None
        self.asked_at: list[float] = []
        self.tokens = SharedTokens(self.fetch, backoff=BACKOFF, wall=self.wall)

    def wall(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    async def fetch(self) -> Token:
        self.asked_at.append(asyncio.get_running_loop().time())
        number = len(self.asked_at)
        await asyncio.sleep(self.takes_s)
        if self.fails_with is not None:
            raise self.fails_with
        return Token(Secret(str(number)), None if self.life_s is None else self.wall() + self.life_s)

    async def token(self) -> str:
        return (await self.tokens.token()).value.reveal()


@in_virtual_time
async def test_concurrent_logins_share_one_token() -> None:
    endpoint = Endpoint(takes_s=1)
    assert await asyncio.gather(*[endpoint.token() for _ in range(5)]) == ["1"] * 5
    assert await endpoint.token() == "1"
    assert endpoint.asked_at == [0]
    endpoint.tokens.close()


@in_virtual_time
async def test_token_is_renewed_before_it_expires() -> None:
    endpoint = Endpoint()
    await endpoint.token()
    await asyncio.sleep(79.9)
    assert endpoint.asked_at == [0]
    await asyncio.sleep(0.2)
    assert await endpoint.token() == "2"
    assert endpoint.asked_at == [0, 80]
    endpoint.tokens.close()


@in_virtual_time
async def test_login_waits_one_second_for_a_renewed_token() -> None:
    endpoint = Endpoint()
    await endpoint.token()
    endpoint.takes_s = 0.5
    await asyncio.sleep(80.1)
    assert await endpoint.token() == "2"
    endpoint.takes_s = 10
    await asyncio.sleep(80.5)
    before = asyncio.get_running_loop().time()
    assert await endpoint.token() == "2"
    assert asyncio.get_running_loop().time() == before + 1
    await asyncio.sleep(10)
    assert await endpoint.token() == "3"
    endpoint.tokens.close()


@in_virtual_time
async def test_valid_token_is_kept_while_renewals_fail(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpoint()
    await endpoint.token()
    endpoint.fails_with = OSError("hunter2")
    await asyncio.sleep(90)
    assert await endpoint.token() == "1"
    assert endpoint.asked_at == [0, 80, 81, 83, 87]
    assert caplog.messages == ["security.token.kept error=OSError"]
    endpoint.fails_with = None
    await asyncio.sleep(6)
    assert await endpoint.token() == "6"
    endpoint.tokens.close()


@in_virtual_time
async def test_error_of_the_provider_is_raised_after_the_token_expired() -> None:
    endpoint = Endpoint()
    await endpoint.token()
    endpoint.fails_with = OSError("hunter2")
    await asyncio.sleep(200)
    asked = len(endpoint.asked_at)
    with pytest.raises(Refused, match="raised OSError, which is the cause"):
        await endpoint.token()
    assert len(endpoint.asked_at) == asked + 1
    endpoint.fails_with = AuthenticationFailed("401")
    with pytest.raises(AuthenticationFailed, match="401"):
        await endpoint.token()
    endpoint.fails_with = None
    assert await endpoint.token() == str(asked + 3)
    endpoint.tokens.close()


@in_virtual_time
async def test_token_without_expiry_is_fetched_for_each_login() -> None:
    endpoint = Endpoint(life_s=None)
    assert [await endpoint.token(), await endpoint.token()] == ["1", "2"]
    endpoint.fails_with = OSError()
    assert await endpoint.token() == "2"


@in_virtual_time
async def test_new_token_that_has_expired_is_refused() -> None:
    with pytest.raises(Refused, match="has expired already; is the clock right"):
        await Endpoint(life_s=-1).token()


@in_virtual_time
async def test_cancelled_login_does_not_cancel_the_shared_fetch() -> None:
    endpoint = Endpoint(takes_s=1)
    impatient = asyncio.ensure_future(endpoint.token())
    patient = asyncio.ensure_future(endpoint.token())
    await asyncio.sleep(0.5)
    impatient.cancel()
    assert await patient == "1"
    assert impatient.cancelled()
    endpoint.tokens.close()


@in_virtual_time
async def test_close_ends_the_renewals() -> None:
    endpoint = Endpoint()
    await endpoint.token()
    endpoint.takes_s = 5
    await asyncio.sleep(81)
    endpoint.tokens.close()
    await asyncio.sleep(500)
    assert endpoint.asked_at == [0, 80]


@pytest.mark.parametrize(
    ("given", "token"),
    [
        ("abc", Token(Secret("abc"))),
        (Secret("abc"), Token(Secret("abc"))),
        (
            SimpleNamespace(value="abc", expires_at=5, extensions={"a": "b"}),
            Token(Secret("abc"), 5, {"a": "b"}),
        ),
        (SimpleNamespace(value=Secret("abc"), expires_at=None, extensions=None), Token(Secret("abc"))),
        (SimpleNamespace(value="abc", expires_at=5.5), Token(Secret("abc"), 5.5)),
        (Token(Secret("abc")), Token(Secret("abc"))),
    ],
)
async def test_provider_may_return_a_string_or_an_object(given: Any, token: Token) -> None:
    assert as_token(given) == token
    assert await from_provider(lambda: given)() == token


@for_each(
    ("given", "why"),
    [
        (None, "it returned NoneType"),
        (b"hunter2", "it returned bytes"),
        (("hunter2", 5), "it returned tuple"),
        (SimpleNamespace(value="hunter2", expires_at="5"), "expires_at has to be a number"),
        (SimpleNamespace(value="hunter2", expires_at=True), "expires_at has to be a number"),
        (SimpleNamespace(value="hunter2", expires_at=float("nan")), "expires_at has to be a number"),
        (SimpleNamespace(value="hunter2", expires_at=float("-inf")), "expires_at has to be a number"),
        (SimpleNamespace(value="hunter2", expires_at=10**400), "expires_at has to be a number"),
        (
            SimpleNamespace(value="hunter2", expires_at=None, extensions=["a"]),
            "extensions have to be a mapping",
        ),
    ],
)
def test_provider_result_of_another_type_is_refused(given: Any, why: str) -> None:
    with pytest.raises(Refused, match=why) as raised:
        as_token(given)
    assert "hunter2" not in str(raised.value)


def test_repr_of_a_token_hides_its_value() -> None:
    assert "hunter2" not in repr(Token(Secret("hunter2"), 5))


@pytest.mark.parametrize("life_s", [0.001, 0.1, 1.0])
@in_virtual_time
async def test_tiny_life_causes_one_request_a_second(life_s: float) -> None:
    endpoint = Endpoint(life_s=life_s)
    for _ in range(50):
        await endpoint.token()
        await asyncio.sleep(0.1)
    asked = endpoint.asked_at
    assert len(asked) >= 5
    assert all(later - earlier > 0.999 for earlier, later in pairwise(asked))
    endpoint.tokens.close()


@pytest.mark.parametrize("life_s", [-5.0, 0.0])
@in_virtual_time
async def test_expired_tokens_cause_one_request_a_second(life_s: float) -> None:
    endpoint = Endpoint(life_s=life_s)
    for _ in range(5):
        with pytest.raises(Refused):
            await endpoint.token()
    assert endpoint.asked_at == pytest.approx([0, 1, 2, 3, 4])
    endpoint.tokens.close()


@in_virtual_time
async def test_renewal_timer_is_at_most_a_day_for_a_long_lived_token() -> None:
    endpoint = Endpoint(life_s=1e300)
    await endpoint.token()
    assert endpoint.tokens._timer is not None
    assert endpoint.tokens._timer.when() <= 86_400
    await asyncio.sleep(1_000_000)
    assert endpoint.asked_at == [0]
    endpoint.tokens.close()


@pytest.mark.parametrize("life_s", [100.0, None])
@in_virtual_time
async def test_refused_token_is_fetched_again_after_a_second(life_s: float | None) -> None:
    endpoint = Endpoint(life_s=life_s)
    assert await endpoint.token() == "1"
    endpoint.tokens.refused(Secret("another"))
    endpoint.tokens.refused(Secret("1"))
    assert await endpoint.token() == "2"
    assert endpoint.asked_at == [0, 1]
    endpoint.tokens.refused(Secret("1"))
    endpoint.fails_with = OSError()
    endpoint.tokens.refused(Secret("2"))
    with pytest.raises(Refused):
        await endpoint.token()
    endpoint.tokens.close()


@in_virtual_time
async def test_provider_that_hangs_once_is_asked_again() -> None:
    calls = 0

    async def provider() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()
        return str(calls)

    tokens = SharedTokens(from_provider(provider, 10), backoff=BACKOFF)
    with pytest.raises(Refused, match="sasl_oauth_token_provider did not return within 10 s"):
        await tokens.token()
    assert (await tokens.token()).value.reveal() == "2"
    assert asyncio.get_running_loop().time() == 10
    tokens.close()


@in_virtual_time
async def test_last_token_is_used_when_the_provider_hangs() -> None:
    endpoint = Endpoint(life_s=None)
    assert await endpoint.token() == "1"
    endpoint.takes_s = 1_000
    assert await endpoint.token() == "1"
    assert asyncio.get_running_loop().time() == 5
    endpoint.tokens.close()


class Tokens(SharedTokens):
    def __init__(self, value: str = "abc.def", extensions: dict[str, str] | None = None) -> None:
        super().__init__(self.fetch, backoff=Backoff(1.0, 1.0))
        self.given = Token(Secret(value), None, extensions or {})
        self.dropped: list[str] = []

    async def fetch(self) -> Token:
        return self.given

    def refused(self, value: Secret) -> None:
        self.dropped.append(value.reveal())


async def test_accepted_token_needs_one_message() -> None:
    mechanism = OAuthBearer(Tokens())
    assert await first(mechanism) == b"n,,\x01auth=Bearer abc.def\x01\x01"
    assert await reply(mechanism, b"") == b""
    assert mechanism.complete


async def test_extensions_of_the_token_override_those_of_the_options() -> None:
    mechanism = OAuthBearer(Tokens(extensions={"b": "2"}), {"a": "1", "b": "1"})
    assert await first(mechanism) == b"n,,\x01auth=Bearer abc.def\x01a=1\x01b=2\x01\x01"


async def test_refused_token_is_answered_with_kvsep() -> None:
    mechanism = OAuthBearer(Tokens())
    await first(mechanism)
    assert await reply(mechanism, b'{"status":"invalid_token"}') == b"\x01"
    assert not mechanism.complete
    assert mechanism.detail == "invalid_token"


@pytest.mark.parametrize("then", [b"", b"{}"])
async def test_acceptance_after_a_refusal_fails_the_login(then: bytes) -> None:
    mechanism = OAuthBearer(Tokens())
    await first(mechanism)
    await reply(mechanism, b'{"status":"invalid_token"}')
    with pytest.raises(Refused, match="refused the token and then took it: invalid_token"):
        await reply(mechanism, then)


@for_each("token", ["", "hunter 2", "hunter\x01b", "hünter", "=", "hunter=b", "hunter\n"])
async def test_token_with_invalid_characters_is_not_sent(token: str) -> None:
    with pytest.raises(Refused, match="the token is empty, or has characters") as raised:
        await first(OAuthBearer(Tokens(token)))
    assert "nter" not in str(raised.value)


@for_each(
    "extensions",
    [{"auth": "x"}, {"AUTH": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "x\x01auth=y"}, {"a": "ü"}],
)
async def test_invalid_extensions_are_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(Refused, match="the extension"):
        await first(OAuthBearer(Tokens(), extensions))


@pytest.mark.parametrize("extensions", [{1: "x"}, {"a": 1}, {"a": None}])
def test_extensions_are_text(extensions: dict[object, object]) -> None:
    with pytest.raises(Refused, match="the extension"):
        first_message(Secret("abc"), extensions)


@given(st.text(max_size=30), st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=3))
def test_first_message_has_the_given_token_and_extensions(token: str, extensions: dict[str, str]) -> None:
    try:
        message = first_message(Secret(token), extensions).decode()
    except Refused:
        return
    head, *pairs = message.removesuffix("\x01\x01").split("\x01")
    assert head == "n,,"
    assert dict(pair.split("=", 1) for pair in pairs) == {"auth": f"Bearer {token}", **extensions}


@given(st.lists(st.one_of(st.binary(max_size=300), st.just(b"[" * 100_000)), min_size=1, max_size=4))
async def test_detail_of_a_refusal_is_short_and_printable(challenges: list[bytes]) -> None:
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


@for_each("before", [0, 150, 199, 500])
@for_each("form", ["{}", '{{"status":"{}"}}', '["{}"]'])
async def test_long_token_that_a_broker_echoes_is_hidden(before: int, form: str) -> None:
    token = "0123456789abcdef" * 40
    mechanism = OAuthBearer(Tokens(token))
    await first(mechanism)
    assert await reply(mechanism, form.format("-" * before + token).encode()) == b"\x01"
    assert "0123456789" not in mechanism.detail
    assert len(mechanism.detail) < 300


async def test_refused_token_is_dropped() -> None:
    tokens = Tokens()
    exchange = Exchange(OAuthBearer(tokens), Address("b", 1))
    await exchange.start()
    assert not exchange.is_refused
    exchange.refused(33, None)
    assert tokens.dropped == []
    await exchange.answer(b'{"status":"invalid_token"}')
    assert exchange.is_refused
    assert "(invalid_token)" in str(exchange.refused(58, None))
    assert tokens.dropped == ["abc.def"]
