"""Tokens from an OAuth token endpoint (KIP-768, KIP-1139, KIP-1258), from a file, or unsigned (KIP-255)."""

from __future__ import annotations

import asyncio
import base64
import http.client
import importlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

from aioproducer._core.logfmt import escaped
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.oauthbearer import Token, finite
from aioproducer._core.security.secret import Secret, redacted, without_frames
from aioproducer._core.security.security_settings import (
    AssertionSettings,
    EndpointSettings,
    UnsecuredSettings,
    file_of,
)
from aioproducer._core.security.stores import open_regular
from aioproducer._core.worker_threads import CALL_THREADS, WORK_THREADS
from aioproducer.errors import AuthenticationFailed

LARGEST_BYTES: Final = 1024 * 1024


def assertion(
    settings: AssertionSettings, now_s: float, load: Callable[[str], Any] = importlib.import_module
) -> Secret:
    """Return an assertion that is valid from *now_s* on. Files are read at every call. Raises: Refused."""
    if settings.file is not None:
        return Secret(_read(settings.file, "sasl_oauthbearer_assertion_file").strip())
    if settings.private_key_file is None:
        raise Refused("an assertion needs a file, or a private key that signs it")
    header, payload = _template(settings.template_file)
    issued = int(now_s)
    claims = {
        "iss": settings.issuer,
        "sub": settings.subject,
        "aud": settings.audience,
        "iat": issued,
        "nbf": issued - settings.valid_before_s,
        "exp": issued + settings.lives_s,
        "jti": str(uuid.uuid4()) if settings.with_jti else None,
    }
    payload |= {name: value for name, value in claims.items() if value is not None}
    header |= {"alg": settings.algorithm, "typ": "JWT"}
    key_text = _read(settings.private_key_file, "sasl_oauthbearer_assertion_private_key_file")
    passphrase = settings.private_key_passphrase
    jwt, jwk = load("joserfc.jwt"), load("joserfc.jwk")
    try:
        kind = jwk.ECKey if settings.algorithm.startswith("ES") else jwk.RSAKey
        key = kind.import_key(key_text, password=passphrase.reveal() if passphrase else None)
        signed: str = jwt.encode(header, payload, key, algorithms=[settings.algorithm])
    except Exception as error:
        why = "the passphrase is wrong or missing, or the file has no key for this algorithm"
        raise Refused(
            f"{settings.private_key_file!r} cannot sign with {settings.algorithm}: {why}"
        ) from error
    return Secret(signed)


def _template(path: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    if path is None:
        return {}, {}
    try:
        template = json.loads(_read(path, "sasl_oauthbearer_assertion_template_file"))
        return dict(template.get("header") or {}), dict(template.get("payload") or {})
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise Refused(f"{path!r} is no template: JSON with header and payload") from None


def _read(path: str, option: str) -> str:
    try:
        with open_regular(path) as file:
            return file.read(LARGEST_BYTES).decode()
    except UnicodeDecodeError:
        raise Refused(f"{option} = {path!r}: the file is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise Refused(f"{option} = {path!r}: {getattr(error, 'strerror', None) or error}") from None


LONGEST_ERROR: Final = 300
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class _TemporaryFailure(Exception):
    """Raised for a temporary failure of the endpoint."""


class TokenEndpoint:
    """Client of a token endpoint, by urllib in a worker thread, with the proxies and authorities of the system."""

    def __init__(
        self, settings: EndpointSettings, extensions: Mapping[str, str], wall: Callable[[], float] = time.time
    ) -> None:
        """*extensions* are added to each token."""
        self._settings = settings
        self._extensions = dict(extensions)
        self._wall = wall

    async def fetch(self) -> Token:
        """Return a new token. Refusals (4xx) are final; other failures are retried for at most `backoff.max_s`.

        Raises: AuthenticationFailed, whose text contains no secret.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        limit_s = settings.connect_timeout_s + settings.read_timeout_s
        give_up_at = loop.time() + settings.backoff.max_s
        attempt = 0
        while True:
            connector = _Connector(settings.read_timeout_s)
            try:
                async with asyncio.timeout(limit_s):
                    return await CALL_THREADS.run(self._ask, connector)
            except Refused as error:
                without_frames(error)
                raise self._failed(str(error)) from error.__cause__
            except (_TemporaryFailure, TimeoutError) as error:
                without_frames(error)
                why = str(error) or f"it did not finish its answer within {limit_s:g} s"
                pause_s = settings.backoff.delay_s(attempt)
                if loop.time() + pause_s > give_up_at:
                    raise self._failed(f"{why}, after {attempt + 1} tries") from error.__cause__
            finally:
                connector.shut_down()
            attempt += 1
            await asyncio.sleep(pause_s)

    def _failed(self, why: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"no token from {shown(self._settings.url)}: {why}", mechanism="OAUTHBEARER"
        )

    def _ask(self, connector: _Connector) -> Token:
        settings = self._settings
        form, headers, secrets = self._request()
        request = urllib.request.Request(settings.url, urlencode(form).encode(), headers)  # noqa: S310 - checked by the configuration
        try:
            with _opener(connector).open(request, timeout=settings.connect_timeout_s) as response:
                body = response.read(LARGEST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                said = _said(_body(error), secrets)
            text = f"it answers {error.code} {_cleaned(error.reason, secrets)}{said}"
            if error.code >= 500 or error.code in {408, 429}:
                raise _TemporaryFailure(text) from None
            raise Refused(text) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            verify = getattr(reason, "verify_message", None)
            if verify:
                raise Refused(f"its certificate does not verify: {verify}") from None
            strerror = getattr(reason, "strerror", None)
            said = strerror if strerror and "_ssl.c" not in strerror else type(reason).__name__
            raise _TemporaryFailure(f"it cannot be reached: {said}") from None
        except ValueError:  # raised by urllib and http.client for a malformed Location or chunk size
            raise Refused("its answer is malformed") from None
        return self._token(body)

    def _request(self) -> tuple[dict[str, str], dict[str, str], list[Secret | str]]:
        """Return the form, the headers, and the secrets in form and headers."""
        settings = self._settings
        headers = {"Accept": "application/json", "Cache-Control": "no-cache"}
        form: dict[str, str] = {}
        secrets: list[Secret | str] = []
        if settings.assertion is not None:
            proof = assertion(settings.assertion, self._wall())
            secrets.append(proof)
            if settings.jwt_bearer:
                form = {"grant_type": _JWT_BEARER, "assertion": proof.reveal()}
            else:
                form = {
                    "grant_type": "client_credentials",
                    "client_assertion_type": _ASSERTION_TYPE,
                    "client_assertion": proof.reveal(),
                }
                if settings.client_id:
                    form["client_id"] = settings.client_id
        else:
            form["grant_type"] = "client_credentials"
            user, password = settings.client_id or "", (settings.client_secret or Secret("")).reveal()
            if settings.urlencode:
                user, password = quote_plus(user), quote_plus(password)
            basic = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {basic}"
            secrets += [settings.client_secret or "", password, basic]
        if settings.scope:
            form["scope"] = settings.scope
        return form, headers, secrets

    def _token(self, body: bytes) -> Token:
        try:
            answer = json.loads(body)
            value = answer.get("access_token") or answer.get("id_token")
            expires_in = answer.get("expires_in")
        except (ValueError, AttributeError, RecursionError):
            raise Refused("its answer is no JSON object") from None
        if not isinstance(value, str) or not value:
            raise Refused("its answer has no access_token")
        expires_at = expiry(value)
        if expires_at is None:
            try:
                lives_s = finite(float(expires_in) if isinstance(expires_in, str) else expires_in)
            except ValueError:
                lives_s = None
            expires_at = None if lives_s is None else self._wall() + lives_s
        return Token(Secret(value), expires_at, self._extensions)


def from_file(
    url: str, extensions: Mapping[str, str], wall: Callable[[], float] = time.time
) -> Callable[[], Awaitable[Token]]:
    """Return a function that reads a token from the file of a `file:` *url*."""
    path = file_of(url)
    assert path is not None, "checked by the configuration"

    def read() -> Token:
        value = assertion(AssertionSettings(file=path), wall())
        return Token(value, expiry(value.reveal()), dict(extensions))

    async def fetch() -> Token:
        return await WORK_THREADS.run_anyway(read)

    return fetch


def unsecured(
    settings: UnsecuredSettings, extensions: Mapping[str, str], wall: Callable[[], float] = time.time
) -> Callable[[], Awaitable[Token]]:
    """Return a function that creates unsigned tokens (KIP-255), for tests and never for production."""

    async def fetch() -> Token:
        now = wall()
        claims = {"iat": now, "exp": now + settings.lives_s, **settings.claims}
        value = f"{_part({'alg': 'none'})}.{_part(claims)}."
        return Token(Secret(value), now + settings.lives_s, dict(extensions))

    return fetch


def _part(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def expiry(token: str) -> float | None:
    """Return the unverified expiry of a JWT in seconds since the epoch; None without an expiry, or if *token* is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = claims.get("exp")
    except (ValueError, AttributeError, RecursionError):
        return None
    return finite(expires)


def shown(url: str) -> str:
    """Return *url* without user, password, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _body(error: urllib.error.HTTPError) -> bytes:
    """Return the body of an error response, or no bytes if the body is truncated or malformed."""
    try:
        return error.read(LARGEST_BYTES)
    except (OSError, http.client.HTTPException, ValueError):
        return b""


def _said(body: bytes, secrets: list[Secret | str]) -> str:
    """Return the error text of the endpoint (RFC 6749), without *secrets*."""
    try:
        answer = json.loads(body)
        parts = [answer[name] for name in ("error", "error_description") if isinstance(answer.get(name), str)]
    except (ValueError, AttributeError, RecursionError):
        return ""
    text = _cleaned(": ".join(parts), secrets)
    return f" ({text})" if text else ""


def _cleaned(text: str, secrets: list[Secret | str]) -> str:
    """Return a text of the endpoint without *secrets*, escaped, cut at `LONGEST_ERROR`."""
    return escaped(redacted(text, *secrets), LONGEST_ERROR)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that refuses redirects, so secrets reach only the configured endpoint."""

    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


class _Connector(urllib.request.AbstractHTTPHandler):
    """Handler of one request, whose connection another thread can close: socket timeouts never end a byte-by-byte response."""

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def __init__(self, read_timeout_s: float) -> None:
        super().__init__()
        self._read_timeout_s = read_timeout_s
        self._lock = threading.Lock()
        self._duplicate: socket.socket | None = None
        self._is_shut_down = False

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(http.client.HTTPConnection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(http.client.HTTPSConnection, req)

    def _open(
        self, kind: type[http.client.HTTPConnection], req: urllib.request.Request
    ) -> http.client.HTTPResponse:
        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            made = kind(host, **options)
            made.__dict__["_create_connection"] = self._connect  # http.client calls this attribute
            return made

        make: Any = connection
        return self.do_open(make, req)

    def _connect(self, *args: Any, **options: Any) -> socket.socket:
        """Connect as `socket.create_connection` does, and keep a duplicate socket, because TLS takes over the original."""
        connected = socket.create_connection(*args, **options)
        connected.settimeout(self._read_timeout_s)
        with self._lock:
            if self._is_shut_down:
                connected.close()
                raise TimeoutError("the connection was shut down")
            self._duplicate = connected.dup()
        return connected

    def shut_down(self) -> None:
        """Shut down an open connection, and refuse later connections."""
        with self._lock:
            duplicate, self._duplicate, self._is_shut_down = self._duplicate, None, True
        if duplicate is not None:
            with duplicate, suppress(OSError):
                duplicate.shutdown(socket.SHUT_RDWR)


def _opener(connector: _Connector) -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()  # build_opener adds handlers that open files, FTP and data URLs
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _NoRedirects(),
        connector,
    ):
        opener.add_handler(handler)
    return opener
