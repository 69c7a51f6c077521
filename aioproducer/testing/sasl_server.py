"""The broker's side of SASL: mechanisms and accounts, the authentication state of a connection, and the allowed requests.

Kafka requires this order: [ApiVersions], SaslHandshake, SaslAuthenticate…, then other requests. Re-authentication
repeats the sequence without ApiVersions before the session expires (KIP-368).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from aioproducer._core.protocol.client import SaslAuthenticateRequest, SaslHandshakeRequest
from aioproducer._core.protocol.metadata import ApiVersionsRequest
from aioproducer._core.security.aws_msk_iam import presigned
from aioproducer._core.security.passwords import FEWEST_ITERATIONS, HASHES
from aioproducer.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from aioproducer.testing.faults import CloseConnection, Refused

Tokens: TypeAlias = dict[str, str] | Callable[[str], str | None]
"""Names by token, or a callable that returns the name of a token, or None for an invalid token."""


OTHER_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class InvalidCredentials(Exception):
    """Authentication failed; as in Kafka, all mistakes have the same message, which does not reveal the accounts."""


@dataclass(slots=True)
class Accounts:
    """Accounts of the cluster. Changes apply to the next authentication."""

    users: dict[str, str] = field(default_factory=dict)
    """Passwords by name; secret keys by access key."""
    tokens: Tokens = field(default_factory=dict)

    def owner(self, token: str) -> str | None:
        """Return the name of *token*, or None for an invalid token."""
        return self.tokens(token) if callable(self.tokens) else self.tokens.get(token)


class Login:
    """The broker's side of one login."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self.user: str | None = None
        """Authenticated user; None before the login."""

    def respond(self, message: bytes) -> bytes:
        """Return the response to *message*. Raises: InvalidCredentials, Refused."""
        raise NotImplementedError


class PlainLogin(Login):
    """Authentication by PLAIN (RFC 4616): one message, and an empty response."""

    def respond(self, message: bytes) -> bytes:
        """Check name and password."""
        try:
            authorization_id, name, password = message.decode().split("\0")
        except ValueError:
            raise InvalidCredentials from None
        if not name or not password:
            raise InvalidCredentials
        known = self._accounts.users.get(name)
        if known is None or not hmac.compare_digest(known.encode(), password.encode()):
            raise Refused(SaslAuthenticationFailed, "Authentication failed: Invalid username or password")
        if authorization_id not in {"", name}:
            raise Refused(SaslAuthenticationFailed, OTHER_ID)
        self.user: str | None = name
        return b""


INVALID_TOKEN: Final = '{"status":"invalid_token"}'  # noqa: S105 - no secret

_FIRST = re.compile(
    r"n,(?:a=(?P<acts_for>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"bearer +(?P<token>[-_.A-Za-z0-9]+)", re.IGNORECASE)


class OAuthBearerLogin(Login):
    """Authentication by OAUTHBEARER (RFC 7628, KIP-255): a token; the client confirms a refusal."""

    _refused = False

    def respond(self, message: bytes) -> bytes:
        """Check the token. A refusal is JSON with error 0; error 58 follows the client's 0x01."""
        if self._refused and message == b"\x01":
            raise Refused(SaslAuthenticationFailed, INVALID_TOKEN)
        parts = _FIRST.fullmatch(message.decode("latin-1"))
        if parts is None:
            raise InvalidCredentials
        pairs = [pair.split("=", 1) for pair in parts["pairs"].split("\x01")[:-1]]
        (auth, *more) = [value for key, value in pairs if key == "auth"] or [""]
        given = _AUTH.fullmatch(auth)
        if given is None or more:
            raise InvalidCredentials
        user = self._accounts.owner(given["token"])
        self._refused = user is None
        if user is None:
            return INVALID_TOKEN.encode()
        if parts["acts_for"] not in {None, user}:
            raise Refused(
                SaslAuthenticationFailed,
                f"Authentication failed: Client requested an authorization id ({parts['acts_for']}) that is "
                f"different from the token's principal name ({user})",
            )
        self.user: str | None = user
        return b""


_SASL_NAME: Final = r"(?:[^\x00=,]|=2C|=3D)+"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<acts_for>{_SASL_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^\x00,]+)*))"
)
_CLIENT_FINAL = re.compile(
    r"(?P<unproven>c=(?P<binding>[A-Za-z0-9/+=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^\x00,]+)*)"
    r",p=(?P<proof>[A-Za-z0-9/+=]+)"
)


@dataclass(frozen=True, slots=True)
class _ScramState:
    """State between the two messages of SCRAM."""

    name: str
    password: bytes
    salt: bytes
    header: str
    nonce: str
    messages: str
    """The two first messages, for the signature."""


class ScramLogin(Login):
    """Authentication by SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677)."""

    def __init__(
        self,
        mechanism: str,
        accounts: Accounts,
        *,
        make_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
        make_salt: Callable[[], bytes] = lambda: secrets.token_bytes(16),
    ) -> None:
        super().__init__(accounts)
        self._hash = HASHES[mechanism]
        self._make_nonce, self._make_salt = make_nonce, make_salt
        self._state: _ScramState | None = None

    def respond(self, message: bytes) -> bytes:
        """Respond to the first message or to the proof."""
        try:
            text = message.decode()
        except ValueError:
            raise InvalidCredentials from None
        return (self._begin(text) if self._state is None else self._end(text, self._state)).encode()

    def _begin(self, text: str) -> str:
        parts = _CLIENT_FIRST.fullmatch(text)
        if parts is None:
            raise InvalidCredentials
        name = _unescaped(parts["name"])
        password = self._accounts.users.get(name)
        if password is None or "tokenauth=true" in parts["extensions"].split(","):
            raise InvalidCredentials  # no delegation tokens (KIP-48)
        if parts["acts_for"] is not None and _unescaped(parts["acts_for"]) != name:
            raise Refused(SaslAuthenticationFailed, OTHER_ID)
        salt, nonce = self._make_salt(), parts["nonce"] + self._make_nonce()
        answer = f"r={nonce},s={base64.b64encode(salt).decode()},i={FEWEST_ITERATIONS}"
        self._state = _ScramState(
            name, password.encode(), salt, parts["header"], nonce, f"{parts['bare']},{answer}"
        )
        return answer

    def _end(self, text: str, state: _ScramState) -> str:
        parts = _CLIENT_FINAL.fullmatch(text)
        if (
            parts is None
            or parts["nonce"] != state.nonce
            or _decoded(parts["binding"]) != state.header.encode()
        ):
            raise InvalidCredentials
        salted = hashlib.pbkdf2_hmac(self._hash, state.password, state.salt, FEWEST_ITERATIONS)
        stored_key = self._digest(self._hmac(salted, b"Client Key"))
        signed = f"{state.messages},{parts['unproven']}".encode()
        signature = self._hmac(stored_key, signed)
        proof = _decoded(parts["proof"])
        if len(proof) != len(signature):
            raise InvalidCredentials
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(self._digest(client_key), stored_key):
            raise InvalidCredentials
        self.user: str | None = state.name
        server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"v={base64.b64encode(server_signature).decode()}"

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _digest(self, data: bytes) -> bytes:
        return hashlib.new(self._hash, data).digest()


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidCredentials from None


VERSION: Final = "2020_10_22"
ACTION: Final = "kafka-cluster:Connect"
MAX_CLOCK_SKEW: Final = timedelta(minutes=5)


class AwsMskIamLogin(Login):
    """Authentication by AWS_MSK_IAM: a signed request, which the broker signs again and compares."""

    def __init__(
        self, accounts: Accounts, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        super().__init__(accounts)
        self._now = now

    def respond(self, message: bytes) -> bytes:
        """Check the signature."""
        request_id = str(uuid.uuid4())
        try:
            self.user = self._signer(json.loads(message))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            self.user = None
        if self.user is None:
            raise Refused(SaslAuthenticationFailed, f"[{request_id}]: Access denied")
        return json.dumps({"version": VERSION, "request-id": request_id}).encode()

    def _signer(self, fields: dict[str, str]) -> str | None:
        """Return the access key of a valid signature, or None. Raises: various exceptions for a malformed message."""
        access_key, _, region, *_ = fields["x-amz-credential"].split("/")
        signed_at = datetime.strptime(fields["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        expires_s = int(fields["x-amz-expires"])
        secret_key = self._accounts.users.get(access_key)
        ages = signed_at - MAX_CLOCK_SKEW, signed_at + timedelta(seconds=expires_s)
        if secret_key is None or not ages[0] <= self._now() <= ages[1] or fields["version"] != VERSION:
            return None
        expected = presigned(
            host=fields["host"],
            service="kafka-cluster",
            region=region,
            parameters={"Action": ACTION},
            access_key=access_key,
            secret_key=secret_key,
            session_token=fields.get("x-amz-security-token"),
            now=signed_at,
            expires_s=expires_s,
        )
        received = {name: fields.get(name.lower()) for name in expected}
        signature = (received.pop("X-Amz-Signature") or "").encode()
        genuine = hmac.compare_digest(signature, expected.pop("X-Amz-Signature").encode())
        return access_key if genuine and received == expected else None


MECHANISMS: Final[Mapping[str, Callable[[Accounts], Login]]] = MappingProxyType(
    {
        "SCRAM-SHA-512": partial(ScramLogin, "SCRAM-SHA-512"),
        "SCRAM-SHA-256": partial(ScramLogin, "SCRAM-SHA-256"),
        "PLAIN": PlainLogin,
        "OAUTHBEARER": OAuthBearerLogin,
        "AWS_MSK_IAM": AwsMskIamLogin,
    }
)
REAUTHENTICATION_PAUSE_S: Final = 1.0
"""Shortest time between two re-authentications of a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """Settings of a listener with SASL."""

    accounts: Accounts
    mechanisms: tuple[str, ...]
    session_lifetime_s: float | None


class _Stage(Enum):
    START = "before the handshake"
    EXCHANGE = "during the exchange"
    OPEN = "logged in"


class Session:
    """Authentication state of one connection. Without *settings* the listener has no SASL and allows all requests."""

    def __init__(self, settings: SaslSettings | None) -> None:
        self._settings = settings
        self._stage = _Stage.OPEN if settings is None else _Stage.START
        self.versions_sent: bool = False
        """True after the response to ApiVersions, which is served once before authentication."""
        self._login: Login | None = None
        self._mechanism = ""
        self._user: str | None = None
        self._expires_at: float | None = None
        self._reauthenticated_at: float | None = None
        self._other_mechanism = False
        self._has_headers = True
        self.must_close: bool = False
        """True if the connection must be closed after the response."""

    @property
    def mechanisms(self) -> list[str]:
        """Mechanisms of the listener."""
        return [] if self._settings is None else list(self._settings.mechanisms)

    def admit(self, api_key: int) -> bool:
        """Return True if the request is allowed now; otherwise error 34 answers it, and the connection is closed.

        Raises: CloseConnection: a broker closes the connection without a response.
        """
        if self._stage is _Stage.EXCHANGE:
            self.must_close = api_key != SaslAuthenticateRequest.API_KEY
            return not self.must_close
        if self._stage is _Stage.START:
            allowed = {SaslHandshakeRequest.API_KEY}
            if not self.versions_sent:
                allowed.add(ApiVersionsRequest.API_KEY)
            if api_key not in allowed:
                raise CloseConnection(f"API {api_key} is not served {self._stage.value}")
            return True
        renews = api_key == SaslHandshakeRequest.API_KEY and self._may_reauthenticate()
        if self._expires_at is not None and _now() > self._expires_at and not renews:
            raise CloseConnection("the session is over")
        return True

    def refuse(self) -> None:
        """Record a refusal, which ends the connection unless it is authenticated."""
        self.must_close = self._stage is not _Stage.OPEN

    @property
    def reads_tokens(self) -> bool:
        """True if the next frame is a SASL token without a header (KIP-43)."""
        return self._stage is _Stage.EXCHANGE and not self._has_headers

    def choose(self, mechanism: str, *, has_headers: bool) -> None:
        """Begin an authentication. Raises: Refused."""
        if self._settings is None or not (self._stage is _Stage.START or self._may_reauthenticate()):
            raise Refused(IllegalSaslState)
        if self._stage is _Stage.OPEN:
            self._reauthenticated_at = _now()
            self._other_mechanism = mechanism != self._mechanism
        self._stage = _Stage.EXCHANGE
        self._has_headers = has_headers
        if mechanism not in self._settings.mechanisms:
            raise Refused(UnsupportedSaslMechanism)
        self._mechanism = mechanism
        self._login = MECHANISMS[mechanism](self._settings.accounts)

    def authenticate(self, message: bytes) -> tuple[bytes, int]:
        """Return the mechanism's response and the session lifetime in ms; 0 without an expiry or before the end.

        Raises: Refused, CloseConnection.
        """
        if self._settings is None or self._login is None or self._stage is not _Stage.EXCHANGE:
            raise Refused(
                IllegalSaslState, "SaslAuthenticate request received after successful authentication"
            )
        if self._other_mechanism:
            raise CloseConnection("a session is renewed by the mechanism that began it")
        try:
            answer = self._login.respond(message)
        except InvalidCredentials:
            when = "authentication" if self._user is None else "re-authentication"
            raise Refused(
                SaslAuthenticationFailed,
                f"Authentication failed during {when} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}",
            ) from None
        user = self._login.user
        if user is None:
            return answer, 0
        if self._user not in {None, user}:
            raise Refused(
                SaslAuthenticationFailed,
                f"Cannot change principals during re-authentication from User.{self._user}: User.{user}",
            )
        self._user, self._login, self._stage = user, None, _Stage.OPEN
        lifetime_s = self._settings.session_lifetime_s
        if lifetime_s is None:
            return answer, 0
        self._expires_at = _now() + lifetime_s
        return answer, int(lifetime_s * 1000)

    def _may_reauthenticate(self) -> bool:
        """Return True if a handshake may begin a re-authentication; only sessions with a lifetime allow re-authentication."""
        if self._stage is not _Stage.OPEN or self._expires_at is None:
            return False
        return (
            self._reauthenticated_at is None or _now() - self._reauthenticated_at >= REAUTHENTICATION_PAUSE_S
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
