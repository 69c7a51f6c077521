from __future__ import annotations

import asyncio
import functools
import hashlib
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.security import passwords as module
from aioproducer._core.security.mechanism import Refused, called
from aioproducer._core.security.passwords import HASHES, Credentials, Login, Plain, Scram
from aioproducer._core.security.secret import Secret
from aioproducer.testing.virtual_time import in_virtual_time
from tests.cases import for_each
from tests.unit._core.security.conversation import ScramServer, credentials, first, reply


async def test_plain_sends_one_message() -> None:
    mechanism = Plain(credentials("ü", "p\u00a0w"))
    assert not mechanism.complete
    assert await first(mechanism) == b"\0\xc3\xbc\0p\xc2\xa0w"
    assert await reply(mechanism, b"") == b""
    assert mechanism.complete


@for_each(("username", "password"), [("", "p"), ("u", ""), ("u\0root", "p"), ("u", "hunter\0")])
async def test_plain_refuses_empty_values_and_nul(username: str, password: str) -> None:
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
async def test_scram_equals_the_published_vectors(
    name: str, challenge: str, proof: str, verdict: str
) -> None:
    mechanism = scram(name)
    assert mechanism.name == name
    assert await first(mechanism) == f"n,,n=user,r={NONCE}".encode()
    assert await reply(mechanism, challenge.encode()) == proof.encode()
    assert not mechanism.complete
    assert await reply(mechanism, verdict.encode()) == b""
    assert mechanism.complete


@pytest.mark.parametrize("name", HASHES)
async def test_scram_login_succeeds_with_the_right_password(name: str) -> None:
    server = ScramServer(HASHES[name], b"pencil")
    mechanism = Scram(name, credentials())
    verdict = server.verdict(await reply(mechanism, server.challenge(await first(mechanism))))
    assert verdict is not None
    assert await reply(mechanism, verdict) == b""
    assert mechanism.complete


async def test_scram_server_rejects_a_wrong_password() -> None:
    server = ScramServer("sha256", b"pencils")
    mechanism = scram()
    assert server.verdict(await reply(mechanism, server.challenge(await first(mechanism)))) is None


async def test_names_may_have_commas_and_equals_signs() -> None:
    mechanism = Scram("SCRAM-SHA-256", credentials("a=b,c"), make_nonce=lambda: NONCE)
    assert await first(mechanism) == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


async def test_delegation_token_sends_tokenauth() -> None:
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


async def test_nonce_is_new_for_each_login() -> None:
    assert await first(Scram("SCRAM-SHA-256", credentials())) != await first(
        Scram("SCRAM-SHA-256", credentials())
    )


@for_each(("username", "password"), [("", "p"), ("u", ""), ("u\0", "p"), ("u\ud800", "p"), ("u", "p\udfff")])
async def test_scram_refuses_empty_values_nul_and_surrogates(username: str, password: str) -> None:
    with pytest.raises(Refused, match=r"may not be empty|NUL|lone surrogate"):
        await first(Scram("SCRAM-SHA-256", credentials(username, password)))


@for_each(
    ("challenge", "why"),
    [
        (b"", "is malformed"),
        (b"\xff", "not ASCII"),
        (b"r=abc,s=QQ==,i=4096", "does not extend the nonce"),
        (f"r={NONCE},s=QQ==,i=4096".encode(), "does not extend the nonce"),
        (f"r=x{NONCE},s=QQ==,i=4096".encode(), "does not extend the nonce"),
        (f"r={NONCE}x,s=QQ==,i=4095".encode(), "requires 4095 iterations"),
        (f"r={NONCE}x,s=QQ==,i=1000001".encode(), "requires 1000001 iterations"),
        (f"r={NONCE}x,s=QQ==,i=2147483648".encode(), "requires 2147483648"),
        (f"r={NONCE}x,s=QQ==,i=99999999999".encode(), "is malformed"),
        (f"r={NONCE}x,s=QQ==,i=-1".encode(), "is malformed"),
        (f"r={NONCE}x,s=Q,i=4096".encode(), "salt is not base64"),
        (f"m=x,r={NONCE}x,s=QQ==,i=4096".encode(), "is malformed"),
        (b"e=other-error", "reports 'other-error'"),
        (b"v=QQ==", "is malformed"),
    ],
)
async def test_malformed_first_challenge_is_refused(challenge: bytes, why: str) -> None:
    mechanism = scram()
    await first(mechanism)
    with pytest.raises(Refused, match=why):
        await reply(mechanism, challenge)
    assert not mechanism.complete


@for_each(
    ("verdict", "why"),
    [
        (b"", "is malformed"),
        (b"v=", "is malformed"),
        (b"v=Q", "signature is not base64"),
        (b"v=QQ==", "did not prove the password"),
        (VECTORS[1][3].encode(), "did not prove the password"),
        (b"e=invalid-proof", "reports 'invalid-proof'"),
        (VECTORS[0][1].encode(), "is malformed"),
    ],
)
async def test_invalid_server_signature_is_refused(verdict: bytes, why: str) -> None:
    mechanism = scram()
    await first(mechanism)
    await reply(mechanism, VECTORS[0][1].encode())
    with pytest.raises(Refused, match=why):
        await reply(mechanism, verdict)
    assert not mechanism.complete


async def test_challenge_after_the_end_is_refused() -> None:
    mechanism = scram()
    await first(mechanism)
    for challenge in VECTORS[0][1], VECTORS[0][3]:
        await reply(mechanism, challenge.encode())
    with pytest.raises(Refused, match="is malformed"):
        await reply(mechanism, VECTORS[0][3].encode())


@pytest.mark.parametrize(("iterations", "in_a_thread"), [(4096, False), (module.IN_A_THREAD_FROM, True)])
async def test_large_iteration_count_is_hashed_in_a_thread(
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
async def test_challenge_is_answered_or_refused(challenges: list[bytes]) -> None:
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
async def test_scram_login_succeeds_with_any_user_name_and_password(username: str, password: str) -> None:
    mechanism = Scram("SCRAM-SHA-256", credentials(username, password))
    message = await first(mechanism)
    name = message.decode().split(",")[2].removeprefix("n=")
    assert name.replace("=2C", ",").replace("=3D", "=") == username
    server = ScramServer("sha256", password.encode())
    verdict = server.verdict(await reply(mechanism, server.challenge(message)))
    assert verdict is not None
    await reply(mechanism, verdict)
    assert mechanism.complete


LOGIN = Login("u", Secret("hunter2"))


async def pair() -> tuple[str, str]:
    return "u", "hunter2"


class Vault:
    async def __call__(self) -> tuple[str, Secret]:
        return "u", Secret("hunter2")


@for_each(
    "source",
    [LOGIN, lambda: ("u", "hunter2"), pair, lambda: pair(), functools.partial(pair), Vault()],  # noqa: PLW0108 - a plain function that returns a coroutine
)
async def test_credentials_may_be_a_value_or_any_callable(source: Any) -> None:
    assert await Credentials(source).pair() == LOGIN


async def test_plain_function_is_called_in_a_thread() -> None:
    async def here() -> threading.Thread:
        return threading.current_thread()

    assert await called(threading.current_thread) is not threading.main_thread()
    assert await called(here) is threading.main_thread()


async def test_credentials_callable_is_called_for_each_login() -> None:
    passwords = iter(["one", "two"])
    credentials = Credentials(lambda: ("u", next(passwords)))
    assert [(await credentials.pair()).password.reveal() for _ in range(2)] == ["one", "two"]


@pytest.mark.parametrize("given", ["ab", ("u",), ("u", b"p"), (1, "p"), None, ("u", "p", "x")])
async def test_credentials_of_another_type_are_refused_and_not_shown(given: Any) -> None:
    with pytest.raises(Refused, match=f"returned {type(given).__name__}; return a user name and a password$"):
        await Credentials(lambda: given).pair()


async def test_error_of_a_credentials_callable_is_the_cause() -> None:
    def broken() -> tuple[str, str]:
        raise OSError("hunter2")

    with pytest.raises(Refused, match="sasl_credentials raised OSError, which is the cause") as raised:
        await Credentials(broken).pair()
    assert isinstance(raised.value.__cause__, OSError)


async def test_last_credentials_are_kept_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [("u", "one"), OSError("hunter2"), OSError(), ("u", "two"), OSError()]

    def vault() -> tuple[str, str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    credentials = Credentials(vault)
    got = [(await credentials.pair()).password.reveal() for _ in range(5)]
    assert got == ["one", "one", "one", "two", "two"]
    assert caplog.messages == ["security.credentials.kept error=OSError"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_of_async_callable_is_raised_by_event_loop(interrupt: type[BaseException]) -> None:
    async def interrupted() -> None:
        raise interrupt

    async def main() -> str:
        with pytest.raises(RuntimeError, match="interrupted by") as raised:
            await called(interrupted)
        await asyncio.sleep(0)
        return type(raised.value.__cause__).__name__

    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    with pytest.raises(interrupt):
        loop.run_until_complete(task)
    assert loop.run_until_complete(task) == interrupt.__name__
    loop.close()


@in_virtual_time
async def test_callable_that_hangs_once_is_asked_again() -> None:
    calls = 0

    async def vault() -> tuple[str, str]:
        nonlocal calls
        calls += 1
        if calls in {1, 3}:
            await asyncio.Event().wait()
        return "u", str(calls)

    credentials = Credentials(vault, limit_s=10)
    with pytest.raises(Refused, match="sasl_credentials did not return within 10 s"):
        await credentials.pair()
    assert (await credentials.pair()).password.reveal() == "2"
    assert (await credentials.pair()).password.reveal() == "2", "the last answer helps out"
    assert (await credentials.pair()).password.reveal() == "4"
    assert asyncio.get_running_loop().time() == 15


async def test_calls_that_hang_in_threads_are_few() -> None:
    release = threading.Event()
    calls = 0

    def vault() -> tuple[str, str]:
        nonlocal calls
        calls += 1
        release.wait(10)
        return "u", "p"

    credentials = Credentials(vault, limit_s=0.05)
    for _ in range(5):
        with pytest.raises(Refused, match=r"did not return within|does not return"):
            await credentials.pair()
    assert calls == 2
    release.set()
    async with asyncio.timeout(5):
        while True:
            with suppress(Refused):
                assert (await credentials.pair()).password.reveal() == "p"
                return
            await asyncio.sleep(0.01)
