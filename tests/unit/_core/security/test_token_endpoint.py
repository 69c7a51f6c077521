from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from joserfc import jwk, jwt as joserfc_jwt

from aioproducer._core.backoff import Backoff
from aioproducer._core.security import token_endpoint as module
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import (
    AssertionSettings,
    EndpointSettings,
    UnsecuredSettings,
)
from aioproducer._core.security.token_endpoint import (
    TokenEndpoint,
    assertion,
    expiry,
    from_file,
    shown,
    unsecured,
)
from aioproducer.errors import AuthenticationFailed
from tests.cases import for_each
from tests.unit._core.security.certificates import Authority, server_context

KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
}
NOW = 1_700_000_000.5


def key_file(tmp_path: Path, algorithm: str, password: str | None = None) -> str:
    path = tmp_path / "key.pem"
    how = (
        serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    )
    path.write_bytes(
        KEYS[algorithm].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
    )
    return str(path)


def verified(value: Secret, algorithm: str) -> Any:
    pem = (
        KEYS[algorithm]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    kind: Any = jwk.ECKey if algorithm == "ES256" else jwk.RSAKey
    return joserfc_jwt.decode(value.reveal(), kind.import_key(pem), algorithms=[algorithm])


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("password", [None, "hunter2"])
def test_assertion_is_signed_with_the_claims_of_the_jvm(
    tmp_path: Path, algorithm: str, password: str | None
) -> None:
    settings = AssertionSettings(
        private_key_file=key_file(tmp_path, algorithm, password),
        private_key_passphrase=Secret(password) if password else None,
        algorithm=algorithm,
        audience="idp",
        issuer="me",
        subject="you",
    )
    token = verified(assertion(settings, NOW), algorithm)
    assert token.header == {"alg": algorithm, "typ": "JWT"}
    now = int(NOW)
    assert token.claims == {
        "iss": "me",
        "sub": "you",
        "aud": "idp",
        "iat": now,
        "nbf": now - 60,
        "exp": now + 300,
    }


def test_assertion_may_have_a_jti_and_a_template(tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text(
        json.dumps({"header": {"kid": "1", "alg": "none"}, "payload": {"iss": "x", "more": True}})
    )
    settings = AssertionSettings(
        private_key_file=key_file(tmp_path, "RS256"), template_file=str(template), issuer="me", with_jti=True
    )
    first, second = (verified(assertion(settings, NOW), "RS256") for _ in range(2))
    assert (first.header["kid"], first.header["alg"]) == ("1", "RS256")
    assert (first.claims["iss"], first.claims["more"]) == ("me", True)
    assert first.claims["jti"] != second.claims["jti"]


def test_assertion_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "jwt"
    for text in "a.b.c", "d.e.f":
        path.write_text(f"{text}\n")
        assert assertion(AssertionSettings(file=str(path)), NOW) == Secret(text)


def test_missing_assertion_input_is_named(tmp_path: Path) -> None:
    def refused(**settings: Any) -> str:
        with pytest.raises(Refused) as raised:
            assertion(AssertionSettings(**settings), NOW)
        assert "hunter2" not in str(raised.value)
        return str(raised.value)

    assert "needs a file, or a private key" in refused()
    assert "assertion_file = '/missing': No such file" in refused(file="/missing")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    assert refused(file=str(binary)).endswith("the file is not UTF-8 text")
    key = key_file(tmp_path, "RS256", "hunter2")
    assert "passphrase is wrong or missing" in refused(private_key_file=key)
    assert "passphrase is wrong" in refused(private_key_file=key, private_key_passphrase=Secret("hunter3"))
    assert "cannot sign with ES256" in refused(
        private_key_file=key, private_key_passphrase=Secret("hunter2"), algorithm="ES256"
    )
    for template in "hunter2", "[1]", '{"header": "hunter2"}':
        binary.write_text(template)
        assert "is no template" in refused(private_key_file=key, template_file=str(binary))


QUICK = Backoff(initial_s=0.001, max_s=0.05, jitter=0)


def jwt(**claims: Any) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{part}.sig"


class Asked(NamedTuple):
    headers: dict[str, str]
    form: dict[str, list[str]]
    body: str


class Endpoint(ThreadingHTTPServer):
    """Token endpoint that sends the given responses, and repeats the last one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, Any]] = [(200, {"access_token": "opaque", "expires_in": 60})]
        self.asked: list[Asked] = []
        self.hang = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect, because the tests provoke this."""


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(Asked(dict(self.headers), parse_qs(body), body))
        code, answer = self.server.answers[0]
        if len(self.server.answers) > 1:
            del self.server.answers[0]
        if answer is None:
            self.server.hang.wait(10)
            return
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code)
        if 300 <= code < 400:
            self.send_header("Location", self.server.url)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_args: object) -> None: ...


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "*")
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.hang.set()
        server.shutdown()
        thread.join()


def client(url: str, **options: Any) -> TokenEndpoint:
    settings = EndpointSettings(
        **{"url": url, "backoff": QUICK, "client_id": "me", "client_secret": Secret("hunter2"), **options}
    )
    return TokenEndpoint(settings, {"a": "b"}, wall=lambda: 1000.0)


async def failure(url: str, **options: Any) -> str:
    with pytest.raises(AuthenticationFailed) as raised:
        await client(url, **options).fetch()
    text = str(raised.value)
    assert "hunter2" not in text
    assert "_ssl.c" not in text
    assert raised.value.mechanism == "OAUTHBEARER"
    return text


async def test_client_credentials_are_asked_for_as_the_jvm_does(endpoint: Endpoint) -> None:
    token = await client(endpoint.url, scope="a b").fetch()
    assert (token.value.reveal(), token.expires_at, token.extensions) == ("opaque", 1060.0, {"a": "b"})
    (asked,) = endpoint.asked
    assert asked.body == "grant_type=client_credentials&scope=a+b"
    assert asked.headers["Authorization"] == "Basic " + base64.b64encode(b"me:hunter2").decode()
    assert asked.headers["Content-Type"] == "application/x-www-form-urlencoded"


@pytest.mark.parametrize(("urlencode", "sent"), [(False, b"m e:h%2"), (True, b"m+e:h%252")])
async def test_id_and_secret_may_be_form_encoded(endpoint: Endpoint, urlencode: bool, sent: bytes) -> None:
    await client(endpoint.url, client_id="m e", client_secret=Secret("h%2"), urlencode=urlencode).fetch()
    assert endpoint.asked[0].headers["Authorization"] == "Basic " + base64.b64encode(sent).decode()


@pytest.mark.parametrize("jwt_bearer", [False, True])
async def test_assertion_is_sent_as_client_credential_or_grant(
    endpoint: Endpoint, tmp_path: Path, jwt_bearer: bool
) -> None:
    path = tmp_path / "jwt"
    path.write_text("x.y.z")
    await client(endpoint.url, assertion=AssertionSettings(file=str(path)), jwt_bearer=jwt_bearer).fetch()
    (asked,) = endpoint.asked
    assert "Authorization" not in asked.headers
    if jwt_bearer:
        assert (
            asked.body == "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=x.y.z"
        )
    else:
        assert asked.form == {
            "grant_type": ["client_credentials"],
            "client_assertion_type": ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"],
            "client_assertion": ["x.y.z"],
            "client_id": ["me"],
        }


@pytest.mark.parametrize(
    ("answer", "expires_at"),
    [
        ({"access_token": jwt(exp=5000), "expires_in": 1}, 5000),
        ({"id_token": jwt(exp=5000)}, 5000),
        ({"access_token": "opaque", "expires_in": "30"}, 1030),
        ({"access_token": "opaque", "expires_in": "soon"}, None),
        ({"access_token": "opaque"}, None),
    ],
)
async def test_expiry_comes_from_the_token_or_the_endpoint(
    endpoint: Endpoint, answer: dict[str, object], expires_at: float | None
) -> None:
    endpoint.answers = [(200, answer)]
    assert (await client(endpoint.url).fetch()).expires_at == expires_at


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            (401, {"error": "invalid_client", "error_description": "not hunter2"}),
            "401 Unauthorized (invalid_client: not ***)",
        ),
        ((400, b"<html>hunter2"), "it answers 400 Bad Request"),
        ((302, b""), "it answers 302 Found"),
        ((200, b"hunter2"), "no JSON object"),
        ((200, ["hunter2"]), "no JSON object"),
        ((200, {"token": "hunter2"}), "no access_token"),
        ((200, {"access_token": 1}), "no access_token"),
        ((200, b"[" * 100_000), "no JSON object"),
    ],
)
async def test_refusal_of_the_endpoint_is_raised_without_retry(
    endpoint: Endpoint, answer: tuple[int, Any], why: str
) -> None:
    endpoint.answers = [answer]
    assert why in await failure(endpoint.url)
    assert len(endpoint.asked) == 1


async def test_temporary_error_of_the_endpoint_is_retried(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, {}), (500, {}), (429, {}), *endpoint.answers]
    patient = client(endpoint.url, backoff=Backoff(QUICK.initial_s, 60))
    assert (await patient.fetch()).value.reveal() == "opaque"
    assert len(endpoint.asked) == 4


async def test_retries_of_the_endpoint_end(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, {"error": "busy"})]
    text = await failure(endpoint.url)
    tries = len(endpoint.asked)
    assert f"it answers 503 Service Unavailable (busy), after {tries} tries" in text
    assert tries <= 6, (
        "1 + 2 + 4 + 8 + 16 ms of pauses, and the next one would be longer than what is left of 50"
    )


async def test_response_of_the_endpoint_has_a_read_timeout(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, None)]
    assert "it cannot be reached: TimeoutError" in await failure(
        endpoint.url, read_timeout_s=0.05, backoff=Backoff(0, 0)
    )


async def test_unreachable_endpoint_is_named_without_its_query() -> None:
    text = await failure("http://127.0.0.1:1/token?key=hunter2")
    assert text.startswith("no token from http://127.0.0.1:1/token: it cannot be reached: Connection refused")


async def test_invalid_certificate_of_the_endpoint_is_not_retried(endpoint: Endpoint, tmp_path: Path) -> None:
    context: ssl.SSLContext = server_context(Authority().issue("localhost", "127.0.0.1"), tmp_path)
    endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True, do_handshake_on_connect=False)
    assert "its certificate does not verify: " in await failure(endpoint.url.replace("http:", "https:"))


async def test_token_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    fetch = from_file(path.as_uri(), {"a": "b"}, wall=lambda: 0.0)
    for exp in 5, 6:
        path.write_text(jwt(exp=exp))
        token = await fetch()
        assert (token.value.reveal(), token.expires_at, token.extensions) == (jwt(exp=exp), exp, {"a": "b"})


@for_each("token", ["", "a.b", "a.b.c", "a.!.c", "a.W10.c", jwt(), jwt(exp="5"), jwt(exp=True)])
def test_token_without_an_exp_claim_has_no_expiry(token: str) -> None:
    assert expiry(token) is None


def test_shown_url_omits_user_query_and_fragment() -> None:
    assert shown("https://u:hunter2@idp:1/token?hunter2#hunter2") == "https://idp:1/token"
    assert module.LONGEST_ERROR < 1_000


async def test_unsecured_token_has_claims_and_no_signature() -> None:
    fetch = unsecured(UnsecuredSettings({"sub": "alice"}, lives_s=60), {"a": "b"}, wall=lambda: 1000.0)
    token = await fetch()
    header, payload, signature = token.value.reveal().split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims == {"sub": "alice", "iat": 1000.0, "exp": 1060.0}
    assert (token.expires_at, token.extensions) == (1060.0, {"a": "b"})


@pytest.mark.parametrize("scheme", ["FILE:", "file:", "ftp://a", "data:,"])
async def test_endpoint_opens_no_url_but_http(scheme: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text('{"access_token": "planted"}')
    with pytest.raises(AuthenticationFailed, match="cannot be reached"):
        await client(f"{scheme}{file}").fetch()


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-Infinity", "1e999", True, None, [], {}, float("nan"), 10**400]
)
async def test_expires_in_that_is_no_number_is_left_out(endpoint: Endpoint, value: Any) -> None:
    endpoint.answers = [(200, {"access_token": "opaque", "expires_in": value})]
    assert (await client(endpoint.url).fetch()).expires_at is None


@for_each("exp", [float("nan"), float("inf"), float("-inf"), 10**400, True, "5"])
def test_exp_that_is_no_number_is_left_out(exp: Any) -> None:
    assert expiry(jwt(exp=exp)) is None


@pytest.mark.parametrize("part", ["status", "header", "body"])
async def test_answer_that_drips_is_cut_at_the_deadline(part: str) -> None:
    """Each byte arrives within the read timeout, and the whole answer never."""
    writers: set[asyncio.StreamWriter] = set()
    watching: set[asyncio.Task[None]] = set()

    async def watch(reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            await reader.read()
        hung_up.set()

    hung_up = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        watching.add(asyncio.create_task(watch(reader)))
        begun = {"status": b"", "header": b"HTTP/1.1 200 OK\r\nX-A: ", "body": b"HTTP/1.1 200 OK\r\n\r\n"}
        with suppress(OSError):
            writer.write(begun[part])
            while not hung_up.is_set():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        began_at = asyncio.get_running_loop().time()
        text = await failure(
            f"http://127.0.0.1:{port}", connect_timeout_s=0.2, read_timeout_s=0.3, backoff=Backoff(1, 0.01)
        )
        assert "did not finish its answer within 0.5 s" in text
        assert asyncio.get_running_loop().time() - began_at < 3
        assert hung_up.is_set() or await asyncio.wait_for(hung_up.wait(), 5), "the thread would be held"
        for writer in writers:
            writer.transport.abort()


LOCATION = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
MALFORMED = {
    "location without an end": LOCATION % b"http://[hunter2",
    "location with a bracket": LOCATION % b"http://a]hunter2/",
    "location of a file": LOCATION % b"file:///hunter2",
    "status": b"HTTP/1.1 hunter2\r\n\r\n",
    "protocol": b"HTTP/hunter2 200 OK\r\n\r\n",
    "no protocol": b"hunter2\r\n\r\n",
    "reason": b"HTTP/1.1 401 hunter2\r\nContent-Length: 0\r\n\r\n",
    "chunk size of a token": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhunter2\r\n",
    "negative chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhunter2",
    "chunk size of an error": b"HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\nhunter2\r\n",
    "negative chunk size of an error": b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhunter2",
    "error that is cut off": b"HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\nhunter2",
    "no JSON": b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "hunter2"',
}


@for_each("response", MALFORMED.values())
async def test_malformed_response_fails_without_a_secret(
    response: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(AuthenticationFailed) as raised:
            await client(f"http://127.0.0.1:{port}/").fetch()
    error: BaseException | None = raised.value
    while error is not None:
        assert "hunter2" not in f"{error} {error!r} {vars(error)}"
        error = error.__cause__ or error.__context__
