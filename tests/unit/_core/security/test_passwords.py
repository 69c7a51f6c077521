from __future__ import annotations

import hashlib
import threading

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.security import passwords as module
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.passwords import HASHES, Plain, Scram
from tests.cases import for_each
from tests.unit._core.security.conversation import ScramServer, credentials, first, reply


async def test_there_is_one_message() -> None:
    mechanism = Plain(credentials("ü", "p\u00a0w"))
    assert not mechanism.complete
    assert await first(mechanism) == b"\0\xc3\xbc\0p\xc2\xa0w"
    assert await reply(mechanism, b"") == b""
    assert mechanism.complete


@pytest.mark.parametrize(
    ("username", "password"), [("", "p"), ("u", ""), ("u\0root", "p"), ("u", "hunter\0")]
)
async def test_what_would_be_read_as_something_else_is_not_sent(username: str, password: str) -> None:
    with pytest.raises(Refused) as raised:
        await first(Plain(credentials(username, password)))
    assert "hunter" not in str(raised.value)


SERVER_256 = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_512 = "rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865"
PROOF_512 = "Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A=="
VECTORS = [
    (  # RFC 7677
        "SCRAM-SHA-256",
        f"r={SERVER_256},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"c=biws,r={SERVER_256},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
    (  # no RFC has one; several clients test with this
        "SCRAM-SHA-512",
        f"r={SERVER_512},s=Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=,i=4096",
        f"c=biws,r={SERVER_512},p={PROOF_512}",
        "v=BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw==",
    ),
]
NONCE = "rOprNGfwEbeRWgbNEkqO"


def scram(name: str = "SCRAM-SHA-256", *, token_auth: bool = False) -> Scram:
    return Scram(name, credentials(), token_auth=token_auth, make_nonce=lambda: NONCE)


@pytest.mark.parametrize(("name", "challenge", "proof", "verdict"), VECTORS)
async def test_known_vectors(name: str, challenge: str, proof: str, verdict: str) -> None:
    mechanism = scram(name)
    assert mechanism.name == name
    assert await first(mechanism) == f"n,,n=user,r={NONCE}".encode()
    assert await reply(mechanism, challenge.encode()) == proof.encode()
    assert not mechanism.complete
    assert await reply(mechanism, verdict.encode()) == b""
    assert mechanism.complete


@pytest.mark.parametrize("name", HASHES)
async def test_a_server_that_knows_the_password_is_convinced(name: str) -> None:
    server = ScramServer(HASHES[name], b"pencil")
    mechanism = Scram(name, credentials())
    verdict = server.verdict(await reply(mechanism, server.challenge(await first(mechanism))))
    assert verdict is not None
    assert await reply(mechanism, verdict) == b""
    assert mechanism.complete


async def test_a_wrong_password_convinces_nobody() -> None:
    server = ScramServer("sha256", b"pencils")
    mechanism = scram()
    assert server.verdict(await reply(mechanism, server.challenge(await first(mechanism)))) is None


async def test_names_may_have_commas_and_equals_signs() -> None:
    mechanism = Scram("SCRAM-SHA-256", credentials("a=b,c"), make_nonce=lambda: NONCE)
    assert await first(mechanism) == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


async def test_a_delegation_token_says_that_it_is_one() -> None:
    mechanism = scram(token_auth=True)
    message = await first(mechanism)
    assert message == f"n,,n=user,r={NONCE},tokenauth=true".encode()
    server = ScramServer("sha256", b"pencil")
    assert server.verdict(await reply(mechanism, server.challenge(message))) is not None


@for_each("password", ["I\u00adX", "a\u00a0b", "\u00aa", "\u06271", "\U0001f600", "a\x07", "\u2168"])
async def test_password_is_hashed_as_its_utf8_bytes(password: str) -> None:
    server = ScramServer("sha256", password.encode())
    mechanism = Scram("SCRAM-SHA-256", credentials("user", password))
    assert server.verdict(await reply(mechanism, server.challenge(await first(mechanism)))) is not None


async def test_each_login_has_a_nonce_of_its_own() -> None:
    assert await first(Scram("SCRAM-SHA-256", credentials())) != await first(
        Scram("SCRAM-SHA-256", credentials())
    )


@pytest.mark.parametrize(
    ("username", "password"), [("", "p"), ("u", ""), ("u\0", "p"), ("u\ud800", "p"), ("u", "p\udfff")]
)
async def test_what_cannot_be_sent_is_refused_without_being_shown(username: str, password: str) -> None:
    with pytest.raises(Refused, match=r"may not be empty|NUL|lone surrogate"):
        await first(Scram("SCRAM-SHA-256", credentials(username, password)))


@for_each(
    ("challenge", "why"),
    [
        (b"", "makes no sense"),
        (b"\xff", "not ASCII"),
        (b"r=abc,s=QQ==,i=4096", "does not begin with ours"),
        (f"r={NONCE},s=QQ==,i=4096".encode(), "adds nothing"),
        (f"r=x{NONCE},s=QQ==,i=4096".encode(), "does not begin with ours"),
        (f"r={NONCE}x,s=QQ==,i=4095".encode(), "asks for 4095 iterations"),
        (f"r={NONCE}x,s=QQ==,i=1000001".encode(), "asks for 1000001 iterations"),
        (f"r={NONCE}x,s=QQ==,i=2147483648".encode(), "asks for 2147483648"),
        (f"r={NONCE}x,s=QQ==,i=99999999999".encode(), "makes no sense"),
        (f"r={NONCE}x,s=QQ==,i=-1".encode(), "makes no sense"),
        (f"r={NONCE}x,s=Q,i=4096".encode(), "salt is not base64"),
        (f"m=x,r={NONCE}x,s=QQ==,i=4096".encode(), "makes no sense"),
        (b"e=other-error", "says 'other-error'"),
        (b"v=QQ==", "makes no sense"),
    ],
)
async def test_a_first_challenge_that_will_not_do(challenge: bytes, why: str) -> None:
    mechanism = scram()
    await first(mechanism)
    with pytest.raises(Refused, match=why):
        await reply(mechanism, challenge)
    assert not mechanism.complete


@for_each(
    ("verdict", "why"),
    [
        (b"", "makes no sense"),
        (b"v=", "makes no sense"),
        (b"v=Q", "signature is not base64"),
        (b"v=QQ==", "does not know the password itself"),
        (VECTORS[1][3].encode(), "does not know the password itself"),
        (b"e=invalid-proof", "says 'invalid-proof'"),
        (VECTORS[0][1].encode(), "makes no sense"),
    ],
)
async def test_a_broker_that_proves_nothing_is_not_believed(verdict: bytes, why: str) -> None:
    mechanism = scram()
    await first(mechanism)
    await reply(mechanism, VECTORS[0][1].encode())
    with pytest.raises(Refused, match=why):
        await reply(mechanism, verdict)
    assert not mechanism.complete


async def test_nothing_comes_after_the_end() -> None:
    mechanism = scram()
    await first(mechanism)
    for challenge in VECTORS[0][1], VECTORS[0][3]:
        await reply(mechanism, challenge.encode())
    with pytest.raises(Refused, match="makes no sense"):
        await reply(mechanism, VECTORS[0][3].encode())


@pytest.mark.parametrize(("iterations", "in_a_thread"), [(4096, False), (module.IN_A_THREAD_FROM, True)])
async def test_many_iterations_do_not_hold_up_the_loop(
    iterations: int, in_a_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    pbkdf2 = hashlib.pbkdf2_hmac

    def watched(algorithm: str, password: bytes, salt: bytes, rounds: int) -> bytes:
        threads.append(threading.current_thread() is not threading.main_thread())
        return pbkdf2(algorithm, password, salt, rounds)

    server = ScramServer("sha256", b"pencil", iterations=iterations)
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", watched)
    mechanism = scram()
    assert server.verdict(await reply(mechanism, server.challenge(await first(mechanism)))) is not None
    assert threads == [in_a_thread]


ALMOST = st.one_of(
    st.binary(max_size=80),
    st.text(alphabet="rsivem=,0123456789AQx/+" + NONCE, max_size=80).map(str.encode),
    st.builds(
        lambda nonce, salt, rounds: f"r={NONCE}{nonce},s={salt},i={rounds}".encode(),
        st.text(max_size=10),
        st.text(alphabet="AQ=", max_size=8),
        st.integers(-5, 10_000),
    ),
)


@given(st.lists(ALMOST, min_size=1, max_size=3))
async def test_whatever_a_broker_says_it_is_refused_or_answered(challenges: list[bytes]) -> None:
    mechanism = scram()
    await first(mechanism)
    for challenge in challenges:
        try:
            assert (await reply(mechanism, challenge)).startswith(b"c=biws,r=" + NONCE.encode())
        except Refused:
            break
    assert not mechanism.complete


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
    st.text(st.characters(codec="utf-8"), min_size=1),
)
async def test_any_pair_of_texts_logs_in(username: str, password: str) -> None:
    mechanism = Scram("SCRAM-SHA-256", credentials(username, password))
    message = await first(mechanism)
    name = message.decode().split(",")[2].removeprefix("n=")
    assert name.replace("=2C", ",").replace("=3D", "=") == username
    server = ScramServer("sha256", password.encode())
    verdict = server.verdict(await reply(mechanism, server.challenge(message)))
    assert verdict is not None
    await reply(mechanism, verdict)
    assert mechanism.complete
