"""Authentication by user name and password: PLAIN (RFC 4616), SCRAM (RFC 5802, RFC 7677), and the source of the credentials.

With PLAIN, the broker and, without TLS, every eavesdropper read the password. With SCRAM, client and broker prove the
password without sending the password. Kafka adds delegation tokens (KIP-48), with `tokenauth=true`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from aioproducer._core.address import Address
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.security.mechanism import Refused, SaslClient, UserCall, utf8
from aioproducer._core.security.secret import Secret
from aioproducer._core.steps import Log
from aioproducer._core.worker_threads import WORK_THREADS, NoThread

log: Final = Log(__name__)

Pair: TypeAlias = tuple[str, str | Secret]
CredentialsCallable: TypeAlias = Callable[[], Pair | Awaitable[Pair]]


class Login(NamedTuple):
    """User name and password."""

    username: str
    password: Secret


class Credentials:
    """Source of user name and password: a constant pair, or a callable of the user.

    If the callable raises, its last result is used again, and the failure is logged under `LogLimits`. A broker refuses
    outdated credentials.
    """

    def __init__(
        self, source: Login | CredentialsCallable, limits: LogLimits | None = None, limit_s: float = 10.0
    ) -> None:
        """*limit_s* is the time limit of a callable; with an earlier result, the limit is half of *limit_s*."""
        self._call = None if isinstance(source, Login) else UserCall(source, "sasl_credentials")
        self._limit_s = limit_s
        self._next: Login | None = None
        self._last: Login | None = source if isinstance(source, Login) else None
        self._limits = limits or LogLimits()

    async def differs(self, refused: object) -> bool:
        """Return True if the current pair differs from *refused*; the next login then uses the current pair."""
        if self._call is None:
            return False
        login = await self.pair()
        self._next = login if login != refused else None
        return self._next is not None

    async def pair(self) -> Login:
        """Return user name and password. Raises: Refused if the callable has never returned a valid pair."""
        if self._next is not None:
            login, self._next = self._next, None
            return login
        if self._call is None:
            assert self._last is not None, "a constant pair is set"
            return self._last
        try:
            login = _login(await self._call(self._limit_s if self._last is None else self._limit_s / 2))
        except Exception as error:
            if self._last is None:
                if isinstance(error, Refused | NoThread):
                    raise
                raise Refused(
                    f"sasl_credentials raised {type(error).__name__}, which is the cause"
                ) from error
            self._limits.log(
                log, logging.WARNING, "", "security.credentials.kept error=%s", type(error).__name__
            )
            return self._last
        self._limits.over("security.credentials.kept", "", "security.credentials.recovered")
        self._last = login
        return login


def _login(pair: object) -> Login:
    match pair:
        case (str() as username, str() as password):
            return Login(username, Secret(password))
        case (str() as username, Secret() as secret):
            return Login(username, secret)
        case _:
            raise Refused(
                f"sasl_credentials returned {type(pair).__name__}; return a user name and a password"
            )


class _PasswordClient(SaslClient):
    """Base class of PLAIN and SCRAM."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self._credentials = credentials

    async def _pair(self) -> Login:
        """Return the credentials of this login. Raises: Refused without credentials, or if one is empty."""
        self.proof = login = await self._credentials.pair()
        if not login.username or not login.password:
            raise Refused("user name and password may not be empty")
        self.secrets = (login.password,)
        return login


class Plain(_PasswordClient):
    """One authentication by PLAIN."""

    name = "PLAIN"

    async def start(self, broker: Address) -> bytes:
        """Return the only message of PLAIN, with user name and password."""
        username, password = await self._pair()
        if "\0" in username or "\0" in password.reveal():
            raise Refused("user name or password has a NUL, which PLAIN (RFC 4616) forbids")
        self.complete = True
        return b"\0%b\0%b" % (utf8(username, "the user name"), utf8(password, "the password"))

    def respond(self, challenge: bytes) -> bytes:
        """Accept any challenge: PLAIN has no challenges."""
        return b""


HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FEWEST_ITERATIONS: Final = 4_096
"""Minimum number of iterations in RFC 7677 and Kafka. Fewer iterations help an eavesdropper to guess the password."""
MOST_ITERATIONS: Final = 1_000_000
"""Maximum number of iterations, which take a third of a second of CPU. 2^31 iterations would take ten minutes."""
IN_A_THREAD_FROM: Final = 16_384
"""Minimum number of iterations for which a worker thread computes the key. 16,384 iterations take about 5 ms."""

_HEADER: Final = "n,,"
"""GS2 header without channel binding and authorization identity, the only GS2 header that Kafka accepts."""
_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9/+=]+),i=(?P<iterations>[0-9]{1,10})(?:,.*)?"
)
_FINAL = re.compile(r"v=(?P<signature>[A-Za-z0-9/+=]+)(?:,.*)?")
_ERROR = re.compile(r"e=([ -+\--~]{1,200})(?:,.*)?")


class Scram(_PasswordClient):
    """One authentication by SCRAM."""

    def __init__(
        self,
        name: str,
        credentials: Credentials,
        *,
        token_auth: bool = False,
        make_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        super().__init__(credentials)
        self.name = name
        self._hash = HASHES[name]
        self._extension = ",tokenauth=true" if token_auth else ""
        self._nonce = make_nonce()
        self._password = b""
        self._first = ""
        self._signature: bytes | None = None

    async def start(self, broker: Address) -> bytes:
        """Return the user name and the client nonce."""
        username, password = await self._pair()
        if "\0" in username:
            raise Refused("the user name has a NUL, which SCRAM (RFC 5802) forbids")
        # The password is UTF-8 without SASLprep: Kafka's tools and brokers derive keys from the UTF-8 bytes.
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
        if error := _ERROR.fullmatch(text):
            raise Refused(f"the broker reports {error[1]!r}")
        if self._signature is None:
            return await self._prove(text)
        self._check(text)
        return b""

    async def _prove(self, text: str) -> bytes:
        parts = _FIRST.fullmatch(text)
        if parts is None:
            raise Refused("the broker's first SCRAM message is malformed")
        if not parts["nonce"].startswith(self._nonce) or len(parts["nonce"]) == len(self._nonce):
            raise Refused(
                "the broker's nonce does not extend the nonce of this client: another server may be answering"
            )
        iterations = int(parts["iterations"])
        if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise Refused(
                f"the broker requires {iterations} iterations; expected {FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
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
            raise Refused("the broker's last SCRAM message is malformed")
        signature = _base64(parts["signature"], "signature")
        if self._signature is None or not hmac.compare_digest(signature, self._signature):
            raise Refused("the broker did not prove the password: another server may be answering")
        self.complete = True

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Refused(f"the broker's {what} is not base64") from None
