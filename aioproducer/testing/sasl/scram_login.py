"""The broker's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aioproducer._core.security.scram import FEWEST_ITERATIONS, HASHES
from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing.refusal import Refused
from aioproducer.testing.sasl.server_login import Accounts, InvalidCredentials

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
class _Asked:
    """A login between its two messages."""

    name: str
    password: bytes
    salt: bytes
    header: str
    nonce: str
    so_far: str
    """The two first messages, as they are signed."""


class ScramLogin:
    """One login by SCRAM: who; here is salt; the proof; ours."""

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
        self._asked: _Asked | None = None

    def respond(self, message: bytes) -> bytes:
        """Answer the first message, or the proof."""
        try:
            text = message.decode()
        except ValueError:
            raise InvalidCredentials from None
        return (self._begin(text) if self._asked is None else self._end(text, self._asked)).encode()

    def _begin(self, text: str) -> str:
        parts = _CLIENT_FIRST.fullmatch(text)
        if parts is None:
            raise InvalidCredentials
        name = _unescaped(parts["name"])
        password = self._accounts.users.get(name)
        if password is None or "tokenauth=true" in parts["extensions"].split(","):
            raise InvalidCredentials  # delegation tokens (KIP-48) are nobody's here
        if parts["acts_for"] is not None and _unescaped(parts["acts_for"]) != name:
            raise Refused(
                SaslAuthenticationFailed,
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        salt, nonce = self._make_salt(), parts["nonce"] + self._make_nonce()
        answer = f"r={nonce},s={base64.b64encode(salt).decode()},i={FEWEST_ITERATIONS}"
        self._asked = _Asked(
            name, password.encode(), salt, parts["header"], nonce, f"{parts['bare']},{answer}"
        )
        return answer

    def _end(self, text: str, asked: _Asked) -> str:
        parts = _CLIENT_FINAL.fullmatch(text)
        if (
            parts is None
            or parts["nonce"] != asked.nonce
            or _decoded(parts["binding"]) != asked.header.encode()
        ):
            raise InvalidCredentials
        salted = hashlib.pbkdf2_hmac(self._hash, asked.password, asked.salt, FEWEST_ITERATIONS)
        stored_key = self._digest(self._hmac(salted, b"Client Key"))
        signed = f"{asked.so_far},{parts['unproven']}".encode()
        signature = self._hmac(stored_key, signed)
        proof = _decoded(parts["proof"])
        if len(proof) != len(signature):
            raise InvalidCredentials
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(self._digest(client_key), stored_key):
            raise InvalidCredentials
        self.user = asked.name
        ours = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"v={base64.b64encode(ours).decode()}"

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
