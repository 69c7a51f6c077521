from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aioproducer._core.address import Address
from aioproducer._core.security.aws_msk_iam import AwsCredentials, AwsMskIam
from aioproducer._core.security.passwords import Credentials, Login, Scram
from aioproducer._core.security.secret import Secret
from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing import Refused
from aioproducer.testing.sasl_server import (
    Accounts,
    AwsMskIamLogin,
    InvalidCredentials,
    OAuthBearerLogin,
    PlainLogin,
    ScramLogin,
)
from tests.cases import for_each

ACCOUNTS = Accounts({"alice": "pässword"})


@pytest.mark.parametrize("acts_for", ["", "alice"])
def test_plain_accepts_right_password(acts_for: str) -> None:
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
def test_plain_reports_wrong_password(message: str, told: str) -> None:
    login = PlainLogin(ACCOUNTS)
    with pytest.raises(Refused, match=told) as refused:
        login.respond(message.encode())
    assert refused.value.code == SaslAuthenticationFailed.code
    assert login.user is None


@for_each(
    "message", [b"", b"alice\0secret", b"\0alice\0secret\0", b"\0\0secret", b"\0alice\0", b"\0alice\0\xff"]
)
def test_plain_refuses_malformed_message(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        PlainLogin(ACCOUNTS).respond(message)


TOKEN_ACCOUNTS = Accounts(tokens={"good": "alice"})
REFUSED = b'{"status":"invalid_token"}'


@for_each(
    "message",
    [
        b"n,,\x01auth=Bearer good\x01\x01",
        b"n,a=alice,\x01auth=bearer  good\x01\x01",
        b"n,,\x01auth=Bearer good\x01logicalCluster=lkc-1\x01pool=p\x01\x01",
        b"n,,\x01pool=p\x01auth=Bearer good\x01\x01",
    ],
)
def test_oauthbearer_accepts_known_token(message: bytes) -> None:
    login = OAuthBearerLogin(TOKEN_ACCOUNTS)
    assert login.respond(message) == b""
    assert login.user == "alice"


def test_oauthbearer_refusal_ends_with_confirmation() -> None:
    login = OAuthBearerLogin(TOKEN_ACCOUNTS)
    assert login.respond(b"n,,\x01auth=Bearer bad\x01\x01") == REFUSED
    assert login.user is None
    with pytest.raises(Refused, match=r"\{\"status\":\"invalid_token\"\}") as refused:
        login.respond(b"\x01")
    assert refused.value.code == SaslAuthenticationFailed.code


def test_oauthbearer_accepts_good_token_after_bad_one() -> None:
    login = OAuthBearerLogin(TOKEN_ACCOUNTS)
    login.respond(b"n,,\x01auth=Bearer bad\x01\x01")
    assert login.respond(b"n,,\x01auth=Bearer good\x01\x01") == b""
    assert login.user == "alice"


def test_oauthbearer_asks_callable_for_names() -> None:
    login = OAuthBearerLogin(Accounts(tokens=lambda token: token.removeprefix("of-") or None))
    assert login.respond(b"n,,\x01auth=Bearer of-\x01\x01") == REFUSED
    assert login.respond(b"n,,\x01auth=Bearer of-bob\x01\x01") == b""
    assert login.user == "bob"


@for_each(
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
def test_oauthbearer_refuses_malformed_message(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        OAuthBearerLogin(TOKEN_ACCOUNTS).respond(message)


def test_oauthbearer_refuses_foreign_authorization_id() -> None:
    with pytest.raises(Refused, match=r"authorization id \(bob\).*principal name \(alice\)"):
        OAuthBearerLogin(TOKEN_ACCOUNTS).respond(b"n,a=bob,\x01auth=Bearer good\x01\x01")


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


def test_scram_follows_example_of_rfc_7677() -> None:
    login = rfc_7677()
    assert login.respond(FIRST) == f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert login.user is None
    final = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert login.respond(final.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert login.user == "user"


@for_each(
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
def test_scram_refuses_wrong_proof(final: str) -> None:
    login = rfc_7677()
    login.respond(FIRST)
    with pytest.raises(InvalidCredentials):
        login.respond(final.encode())
    assert login.user is None


@for_each(
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
def test_scram_refuses_wrong_binding(first: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        rfc_7677().respond(first)


def test_scram_refuses_foreign_authorization_id() -> None:
    assert rfc_7677().respond(b"n,a=user,n=user,r=abc").startswith(b"r=abc")
    with pytest.raises(Refused, match="different from username"):
        rfc_7677().respond(b"n,a=bob,n=user,r=abc")


@for_each("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@for_each(("name", "password"), [("alice", "secret"), ("a,b=c=2C", "pässwörd"), ("=3D", "\u00aa")])
async def test_scram_authenticates_our_client(mechanism: str, name: str, password: str) -> None:
    login = ScramLogin(mechanism, Accounts({name: password}))
    client = Scram(mechanism, Credentials(Login(name, Secret(password))))
    message = await client.start(Address("localhost", 9092))
    for _ in range(2):
        message = await client.respond(login.respond(message))
    assert client.complete
    assert login.user == name


async def test_scram_reads_password_per_authentication() -> None:
    accounts = Accounts({"alice": "old"})
    accounts.users["alice"] = "new"
    login = ScramLogin("SCRAM-SHA-256", accounts)
    client = Scram("SCRAM-SHA-256", Credentials(Login("alice", Secret("old"))))
    answer = await client.respond(login.respond(await client.start(Address("localhost", 9092))))
    with pytest.raises(InvalidCredentials):
        login.respond(answer)


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def signed(*, secret: str = "secret", token: str | None = None) -> dict[str, Any]:
    credentials = AwsCredentials("AKIA1", Secret(secret), Secret(token) if token else None, "eu-central-1")
    message = await AwsMskIam(lambda: credentials, now=lambda: NOW).start(Address("127.0.0.1", 9092))
    said: dict[str, Any] = json.loads(message)
    return said


def login(message: object, *, late: timedelta = timedelta()) -> str | None:
    login = AwsMskIamLogin(Accounts({"AKIA1": "secret"}), now=lambda: NOW + late)
    answer = login.respond(json.dumps(message).encode())
    assert json.loads(answer)["version"] == "2020_10_22"
    return login.user


@for_each("token", [None, "session/token+="])
@for_each("late", [timedelta(minutes=-4), timedelta(minutes=14)])
async def test_aws_msk_iam_accepts_valid_signature(token: str | None, late: timedelta) -> None:
    assert login(await signed(token=token), late=late) == "AKIA1"


@pytest.mark.parametrize("late", [timedelta(minutes=-6), timedelta(minutes=16)])
async def test_aws_msk_iam_signature_expires(late: timedelta) -> None:
    with pytest.raises(Refused, match="Access denied"):
        login(await signed(), late=late)


async def test_aws_msk_iam_refuses_wrong_secret() -> None:
    with pytest.raises(Refused, match=r"^\[[-0-9a-f]{36}\]: Access denied$") as refused:
        login(await signed(secret="wrong"))
    assert refused.value.code == SaslAuthenticationFailed.code


@for_each(
    "change",
    [
        {"host": "elsewhere"},
        {"action": "kafka-cluster:Delete"},
        {"version": "2020_10_23"},
        {"x-amz-credential": "AKIA2/20260101/eu-central-1/kafka-cluster/aws4_request"},
        {"x-amz-credential": "AKIA1/20260101/us-east-1/kafka-cluster/aws4_request"},
        {"x-amz-credential": "AKIA1/20260101/eu-central-1/s3/aws4_request"},
        {"x-amz-credential": "AKIA1"},
        {"x-amz-expires": "901"},
        {"x-amz-expires": "9" * 99},
        {"x-amz-expires": "soon"},
        {"x-amz-date": "20260101T120001Z"},
        {"x-amz-date": 5},
        {"x-amz-security-token": "another"},
        {"x-amz-algorithm": "none"},
        {"x-amz-signedheaders": "user-agent"},
        {"x-amz-signature": None},
        {"x-amz-signature": 5},
        {"x-amz-signature": ""},
    ],
)
async def test_aws_msk_iam_refuses_changed_request(change: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="Access denied"):
        login(await signed() | change)


@for_each("message", [None, 5, "text", [], {}])
def test_aws_msk_iam_refuses_malformed_message(message: object) -> None:
    with pytest.raises(Refused, match="Access denied"):
        login(message)


def test_aws_msk_iam_refuses_malformed_json() -> None:
    for message in (b"", b"\xff", b"[" * 100_000):
        with pytest.raises(Refused, match="Access denied"):
            AwsMskIamLogin(Accounts({"AKIA1": "secret"})).respond(message)
