from __future__ import annotations

import pytest

from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing import Refused
from aioproducer.testing.sasl.plain_login import PlainLogin
from aioproducer.testing.sasl.server_login import Accounts, InvalidCredentials

ACCOUNTS = Accounts({"alice": "pässword"})


@pytest.mark.parametrize("acts_for", ["", "alice"])
def test_the_right_password_is_enough(acts_for: str) -> None:
    login = PlainLogin(ACCOUNTS)
    assert login.user is None
    assert login.respond(f"{acts_for}\0alice\0pässword".encode()) == b""
    assert login.user == "alice"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("\0alice\0wrong", "Invalid username or password"),
        ("\0nobody\0pässword", "Invalid username or password"),
        ("bob\0alice\0pässword", "authorization id that is different from username"),
    ],
)
def test_what_is_wrong_is_told(message: str, told: str) -> None:
    login = PlainLogin(ACCOUNTS)
    with pytest.raises(Refused, match=told) as refused:
        login.respond(message.encode())
    assert refused.value.code == SaslAuthenticationFailed.code
    assert login.user is None


@pytest.mark.parametrize(
    "message", [b"", b"alice\0secret", b"\0alice\0secret\0", b"\0\0secret", b"\0alice\0", b"\0alice\0\xff"]
)
def test_what_makes_no_sense_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        PlainLogin(ACCOUNTS).respond(message)
