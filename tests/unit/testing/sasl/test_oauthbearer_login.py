from __future__ import annotations

import pytest

from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing import Refused
from aioproducer.testing.sasl.oauthbearer_login import OAuthBearerLogin
from aioproducer.testing.sasl.server_login import Accounts, InvalidCredentials

ACCOUNTS = Accounts(tokens={"good": "alice"})
REFUSED = b'{"status":"invalid_token"}'


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer good\x01\x01",
        b"n,a=alice,\x01auth=bearer  good\x01\x01",
        b"n,,\x01auth=Bearer good\x01logicalCluster=lkc-1\x01pool=p\x01\x01",
        b"n,,\x01pool=p\x01auth=Bearer good\x01\x01",
    ],
)
def test_a_known_token_is_enough(message: bytes) -> None:
    login = OAuthBearerLogin(ACCOUNTS)
    assert login.respond(message) == b""
    assert login.user == "alice"


def test_a_refusal_is_over_when_the_client_says_so() -> None:
    login = OAuthBearerLogin(ACCOUNTS)
    assert login.respond(b"n,,\x01auth=Bearer bad\x01\x01") == REFUSED
    assert login.user is None
    with pytest.raises(Refused, match=r"\{\"status\":\"invalid_token\"\}") as refused:
        login.respond(b"\x01")
    assert refused.value.code == SaslAuthenticationFailed.code


def test_a_good_token_after_a_bad_one_is_taken() -> None:
    login = OAuthBearerLogin(ACCOUNTS)
    login.respond(b"n,,\x01auth=Bearer bad\x01\x01")
    assert login.respond(b"n,,\x01auth=Bearer good\x01\x01") == b""
    assert login.user == "alice"


def test_a_callable_may_know() -> None:
    login = OAuthBearerLogin(Accounts(tokens=lambda token: token.removeprefix("of-") or None))
    assert login.respond(b"n,,\x01auth=Bearer of-\x01\x01") == REFUSED
    assert login.respond(b"n,,\x01auth=Bearer of-bob\x01\x01") == b""
    assert login.user == "bob"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01pool=p\x01\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01a1=v\x01\x01",
    ],
)
def test_what_makes_no_sense_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        OAuthBearerLogin(ACCOUNTS).respond(message)


def test_nobody_acts_for_somebody_else() -> None:
    with pytest.raises(Refused, match=r"authorization id \(bob\).*principal name \(alice\)"):
        OAuthBearerLogin(ACCOUNTS).respond(b"n,a=bob,\x01auth=Bearer good\x01\x01")
