"""The broker's side of the SASL mechanisms, and the accounts."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from aioproducer._core.security.aws_msk_iam import presigned
from aioproducer._core.security.passwords import FEWEST_ITERATIONS, HASHES
from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing.faults import Refused

Tokens: TypeAlias = dict[str, str] | Callable[[str], str | None]
"""Names by token, or a callable that returns the name of a token, or None for an invalid one."""


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


class PlainLogin:
    """Authentication by PLAIN (RFC 4616): one message, and an empty response."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self.user: str | None = None

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
            raise Refused(
                SaslAuthenticationFailed,
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self.user = name
        return b""


INVALID_TOKEN: Final = '{"status":"invalid_token"}'  # noqa: S105 - no secret

_FIRST = re.compile(
    r"n,(?:a=(?P<acts_for>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"bearer +(?P<token>[-_.A-Za-z0-9]+)", re.IGNORECASE)


class OAuthBearerLogin:
    """Authentication by OAUTHBEARER (RFC 7628, KIP-255): a token; the client confirms a refusal."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self.user: str | None = None
        self._refused = False

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
        self.user = user
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


class ScramLogin:
    """Authentication by SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677)."""

    def __init__(
        self,
        mechanism: str,
        accounts: Accounts,
        *,
        make_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
        make_salt: Callable[[], bytes] = lambda: secrets.token_bytes(16),
    ) -> None:
        self.user: str | None = None
        self._hash = HASHES[mechanism]
        self._accounts = accounts
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
            raise Refused(
                SaslAuthenticationFailed,
                "Authentication failed: Client requested an authorization id that is different from username",
            )
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
        self.user = state.name
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


class AwsMskIamLogin:
    """Authentication by AWS_MSK_IAM: a signed request, which the broker signs again and compares."""

    def __init__(
        self, accounts: Accounts, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._accounts = accounts
        self._now = now
        self.user: str | None = None

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


Login: TypeAlias = PlainLogin | OAuthBearerLogin | ScramLogin | AwsMskIamLogin
"""The broker's side of one login. `respond` raises InvalidCredentials or Refused; `user` is None before the login."""
