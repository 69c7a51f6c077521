"""An authenticator on a connection that records its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.net.authentication import AuthenticationBackoff, Authenticator
from aioproducer._core.protocol.client import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.security.exchange import Exchange
from aioproducer._core.security.mechanism import Refused
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProducerError
from tests.unit.floor_rig import settle

LIFETIME_S = 100.0


class TwoMessages:
    """As SCRAM: a first message, a proof, and a last look."""

    def __init__(self, name: str = "SCRAM-SHA-256", *, start: Callable[[], bytes] = lambda: b"first") -> None:
        self.name = name
        self.proof: object = None
        self._start = start

    def start(self, _: Address) -> bytes:
        return self._start()

    def respond(self, challenge: bytes) -> bytes:
        if challenge == b"nonsense":
            raise Refused("that is no challenge")
        return b"proof" if challenge == b"challenge" else b""


class ThreeMessages(TwoMessages):
    """As GSSAPI: its last message is behind the last challenge."""

    complete = False

    def respond(self, challenge: bytes) -> bytes:
        if challenge == b"offer":
            self.complete = True
            return b"choice"
        return super().respond(challenge)


class FakeSecurity:
    backoff = Backoff(1.0, 1.0, jitter=0)

    def __init__(self, name: str) -> None:
        self.name = name
        self.begun = 0
        self.outcomes: list[str] = []
        self.proof: object = None
        self.start: Callable[[], bytes] = lambda: b"first"

    def exchange(self) -> Exchange:
        self.begun += 1
        kind = ThreeMessages if self.name == "GSSAPI" else TwoMessages
        mechanism = kind(self.name, start=self.start)
        mechanism.proof = self.proof
        return Exchange(mechanism, Address("b", 1))

    async def admit(self, address: Address) -> None: ...

    def refused(self, address: Address, error: AuthenticationFailed, proof: object) -> None:
        self.outcomes.append("refused")

    def accepted(self, address: Address) -> None:
        self.outcomes.append("accepted")

    def failed(self, address: Address) -> None:
        self.outcomes.append("failed")


class FakeConnection:
    """Connection that records each call; the test gives the responses."""

    address: Address = Address("b", 1)

    def __init__(self) -> None:
        self.limits = LogLimits()
        self.is_one_way = False
        self.versions = ApiVersionTable({SaslHandshakeRequest.API_KEY: (0, 1)})
        self.throttled_until = 0.0
        self.told: list[str] = []
        self.waiting: list[asyncio.Future[Any]] = []
        self.closed = False
        self.cause: ProducerError | None = None
        self.authenticator: Authenticator | None = None
        self.spoken = asyncio.Event()
        self.gone = asyncio.Event()

    def __str__(self) -> str:
        return "b:1 (node 3)"

    def ask(self, request: Any) -> asyncio.Future[Any]:
        if self.closed:
            raise ConnectionFailed("closed", written=False)
        self.spoken.set()
        of_auth = isinstance(request, SaslAuthenticateRequest)
        self.told.append(request.auth_bytes.decode() if of_auth else f"by {request.mechanism}")
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    async def welcome(self, error_code: int = 0) -> None:
        await settle()
        self.waiting.pop(0).set_result(SaslHandshakeResponse(error_code=error_code, mechanisms=["PLAIN"]))
        await settle()

    async def answer(self, auth_bytes: bytes = b"", *, lifetime_s: float = 0, error_code: int = 0) -> None:
        await settle()
        self.waiting.pop(0).set_result(
            SaslAuthenticateResponse(
                error_code=error_code,
                error_message="no such user" if error_code else None,
                auth_bytes=auth_bytes,
                session_lifetime_ms=int(lifetime_s * 1000),
            )
        )
        await settle()

    def authenticated(self) -> None:
        self.told.append("logged in")

    def pause_requests(self) -> None:
        self.told.append("hold")

    def resume_requests(self) -> None:
        self.told.append("release")

    def close(self, cause: ProducerError | None = None) -> None:
        self.closed, self.cause = True, cause
        self.gone.set()
        if self.authenticator is not None:
            self.authenticator.stop()
        for each in self.waiting:
            if not each.done():
                each.set_exception(cause or ConnectionFailed("closed"))

    def take(self) -> list[str]:
        told, self.told = self.told, []
        return told


class Rig:
    def __init__(self, name: str = "SCRAM-SHA-256") -> None:
        self.connection = FakeConnection()
        self.security = FakeSecurity(name)
        security = self.security
        pace = cast("AuthenticationBackoff", security)
        self.authenticator = Authenticator(self.connection, security.exchange, pace, security.backoff)
        self.connection.authenticator = self.authenticator
        self.began_at = now()

    def log_in(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.authenticator.authenticate())

    async def authenticated(self, *, lifetime_s: float = LIFETIME_S) -> None:
        """Log in, and forget how."""
        logging_in = self.log_in()
        await self.connection.welcome()
        if self.security.name.startswith("SCRAM"):
            await self.connection.answer(b"challenge")
            self.began_at = now()
        await self.connection.answer(b"", lifetime_s=lifetime_s)
        await logging_in
        assert self.connection.take()[-1] == "logged in"

    async def at_the_next_login(self) -> float:
        """Return when it began, counted from the login before."""
        self.connection.spoken.clear()
        await self.connection.spoken.wait()
        begun_at = now()
        await settle()
        return begun_at - self.began_at


def now() -> float:
    return asyncio.get_running_loop().time()
