"""Authentication by user name and password: PLAIN (RFC 4616), and SCRAM (RFC 5802, RFC 7677).

With PLAIN, the broker and every eavesdropper without TLS read the password. With SCRAM, both sides prove the password
without sending it. Kafka adds delegation tokens (KIP-48), with `tokenauth=true`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final

from aioproducer._core.security.credentials import Credentials, utf8
from aioproducer._core.security.mechanism import Broker, Refused
from aioproducer._core.security.secret import Secret
from aioproducer._core.worker_threads import WORK_THREADS


class Plain:
    """One authentication by PLAIN."""

    name: Final = "PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.complete: bool = False
        self.proof: object = None
        """Credentials of this login, for comparison with later credentials."""
        self.secrets: tuple[Secret, ...] = ()
        """Secrets of this login, for the redaction of broker messages."""

    async def start(self, broker: Broker) -> bytes:
        """Return the only message."""
        self.proof = login = await self._credentials.pair()
        username, password = login
        if not username or not password:
            raise Refused("user name and password may not be empty")
        if "\0" in username or "\0" in password.reveal():
            raise Refused("a NUL ends user name and password, so neither may have one")
        self.secrets = (password,)
        self.complete = True
        return b"\0%b\0%b" % (utf8(username, "the user name"), utf8(password, "the password"))

    def respond(self, challenge: bytes) -> bytes:
        """Accept any challenge: PLAIN has none."""
        return b""


HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FEWEST_ITERATIONS: Final = 4_096
"""Minimum of RFC 7677 and of Kafka. Fewer iterations would help an eavesdropper to guess the password."""
MOST_ITERATIONS: Final = 1_000_000
"""Maximum number of iterations, a third of a second of CPU. 2^31 would take ten minutes."""
IN_A_THREAD_FROM: Final = 16_384
"""Number of iterations from which on a worker thread computes the key, about 5 ms."""

_HEADER: Final = "n,,"
"""GS2 header without channel binding and authorization identity, the only one that Kafka accepts."""
_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9/+=]+),i=(?P<iterations>[0-9]{1,10})(?:,.*)?"
)
_FINAL = re.compile(r"v=(?P<signature>[A-Za-z0-9/+=]+)(?:,.*)?")
_ERROR = re.compile(r"e=([ -+\--~]{1,200})(?:,.*)?")


class Scram:
    """One authentication by SCRAM."""

    def __init__(
        self,
        name: str,
        credentials: Credentials,
        *,
        token_auth: bool = False,
        make_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        self.name: str = name
        self._hash = HASHES[name]
        self._credentials = credentials
        self._extension = ",tokenauth=true" if token_auth else ""
        self._nonce = make_nonce()
        self._password = b""
        self._first = ""
        self._signature: bytes | None = None
        self.complete: bool = False
        self.proof: object = None
        """Credentials of this login, for comparison with later credentials."""
        self.secrets: tuple[Secret, ...] = ()
        """Secrets of this login, for the redaction of broker messages."""

    async def start(self, broker: Broker) -> bytes:
        """Return the user name and the client nonce."""
        self.proof = login = await self._credentials.pair()
        username, password = login
        if not username or not password:
            raise Refused("user name and password may not be empty")
        if "\0" in username:
            raise Refused("the user name has a NUL, which SCRAM (RFC 5802) forbids")
        self.secrets = (password,)
        # UTF-8 without SASLprep, as Kafka's tools store passwords and brokers derive keys from them.
        self._password = utf8(password, "the password")
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={escaped},r={self._nonce}{self._extension}"
        return _HEADER.encode() + utf8(self._first, "the user name")

    async def respond(self, challenge: bytes) -> bytes:
        """Return the proof of the password; for the second challenge, verify the proof of the broker."""
        try:
            text = challenge.decode("ascii")
        except UnicodeDecodeError:
            raise Refused("the broker's SCRAM message is not ASCII") from None
        if said := _ERROR.fullmatch(text):
            raise Refused(f"the broker says {said[1]!r}")
        if self._signature is None:
            return await self._prove(text)
        self._check(text)
        return b""

    async def _prove(self, text: str) -> bytes:
        parts = _FIRST.fullmatch(text)
        if parts is None:
            raise Refused("the broker's first SCRAM message makes no sense")
        if not parts["nonce"].startswith(self._nonce) or len(parts["nonce"]) == len(self._nonce):
            raise Refused(
                "the broker's nonce does not begin with ours, or adds nothing: somebody else may be answering"
            )
        iterations = int(parts["iterations"])
        if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise Refused(
                f"the broker asks for {iterations} iterations; expected {FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        salt = _base64(parts["salt"], "salt")
        if iterations >= IN_A_THREAD_FROM:
            salted = await WORK_THREADS.run_anyway(
                hashlib.pbkdf2_hmac, self._hash, self._password, salt, iterations
            )
        else:
            salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        self._password = b""
        binding = base64.b64encode(_HEADER.encode()).decode()
        final = f"c={binding},r={parts['nonce']}"
        signed = f"{self._first},{text},{final}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _check(self, text: str) -> None:
        parts = _FINAL.fullmatch(text)
        if self.complete or parts is None:
            raise Refused("the broker's last SCRAM message makes no sense")
        signature = _base64(parts["signature"], "signature")
        if self._signature is None or not hmac.compare_digest(signature, self._signature):
            raise Refused("the broker does not know the password itself: somebody else may be answering")
        self.complete = True

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Refused(f"the broker's {what} is not base64") from None
