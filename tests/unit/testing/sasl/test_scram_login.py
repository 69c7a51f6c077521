from __future__ import annotations

import base64

import pytest

from aioproducer._core.security.credentials import Credentials, Login
from aioproducer._core.security.mechanism import Broker
from aioproducer._core.security.scram import Scram
from aioproducer._core.security.secret import Secret
from aioproducer.testing import Refused
from aioproducer.testing.sasl.scram_login import ScramLogin
from aioproducer.testing.sasl.server_login import Accounts, InvalidCredentials

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def rfc_7677() -> ScramLogin:
    """Return the server of the example in RFC 7677, section 3."""
    return ScramLogin(
        "SCRAM-SHA-256",
        Accounts({"user": "pencil"}),
        make_nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        make_salt=lambda: SALT,
    )


def test_the_example_of_rfc_7677() -> None:
    login = rfc_7677()
    assert login.respond(FIRST) == f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert login.user is None
    final = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert login.respond(final.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert login.user == "user"


@pytest.mark.parametrize(
    "final",
    [
        f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVA=",
        f"c=biws,r={NONCE},p=dHzb",
        f"c=biws,r={NONCE},p=d",
        f"c=biws,r={NONCE}x,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        f"c=eSws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "nonsense",
    ],
)
def test_another_proof_is_none(final: str) -> None:
    login = rfc_7677()
    login.respond(FIRST)
    with pytest.raises(InvalidCredentials):
        login.respond(final.encode())
    assert login.user is None


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=nobody,r=abc",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,m=more,n=user,r=abc",
        b"\xff",
        b"",
    ],
)
def test_another_beginning_is_none(first: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        rfc_7677().respond(first)


def test_nobody_acts_for_somebody_else() -> None:
    assert rfc_7677().respond(b"n,a=user,n=user,r=abc").startswith(b"r=abc")
    with pytest.raises(Refused, match="different from username"):
        rfc_7677().respond(b"n,a=bob,n=user,r=abc")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("name", "password"), [("alice", "secret"), ("a,b=c=2C", "pässwörd"), ("=3D", "\u00aa")]
)
async def test_our_own_client_and_it_believe_each_other(mechanism: str, name: str, password: str) -> None:
    login = ScramLogin(mechanism, Accounts({name: password}))
    client = Scram(mechanism, Credentials(Login(name, Secret(password))))
    message = await client.start(Broker("localhost", 9092))
    for _ in range(2):
        message = await client.respond(login.respond(message))
    assert client.complete
    assert login.user == name


async def test_a_password_is_looked_up_anew_for_each_login() -> None:
    accounts = Accounts({"alice": "old"})
    accounts.users["alice"] = "new"
    login = ScramLogin("SCRAM-SHA-256", accounts)
    client = Scram("SCRAM-SHA-256", Credentials(Login("alice", Secret("old"))))
    answer = await client.respond(login.respond(await client.start(Broker("localhost", 9092))))
    with pytest.raises(InvalidCredentials):
        login.respond(answer)
