"""The authentication state of one connection, and the requests allowed in it.

Kafka requires this order: [ApiVersions], SaslHandshake, SaslAuthenticate…, then other requests. Re-authentication repeats
it without ApiVersions before the session expires (KIP-368).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Final

from aioproducer._core.protocol.client import SaslAuthenticateRequest, SaslHandshakeRequest
from aioproducer._core.protocol.metadata import ApiVersionsRequest
from aioproducer.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from aioproducer.testing.faults import CloseConnection, Refused
from aioproducer.testing.sasl_logins import (
    Accounts,
    AwsMskIamLogin,
    InvalidCredentials,
    Login,
    OAuthBearerLogin,
    PlainLogin,
    ScramLogin,
)

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
        self._versions_sent = False
        self._login: Login | None = None
        self._mechanism = ""
        self._user: str | None = None
        self._expires_at: float | None = None
        self._reauthenticated_at: float | None = None
        self._other_mechanism = False
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
            if not self._versions_sent:
                allowed.add(ApiVersionsRequest.API_KEY)
            if api_key not in allowed:
                raise CloseConnection(f"API {api_key} is not served {self._stage.value}")
            return True
        renews = api_key == SaslHandshakeRequest.API_KEY and self._may_reauthenticate()
        if self._expires_at is not None and _now() > self._expires_at and not renews:
            raise CloseConnection("the session is over")
        return True

    def mark_versions_sent(self) -> None:
        """Record the response to ApiVersions, which is served once before authentication."""
        self._versions_sent = True

    def refuse(self) -> None:
        """Record a refusal, which ends the connection unless it is authenticated."""
        self.must_close = self._stage is not _Stage.OPEN

    def choose(self, mechanism: str) -> None:
        """Begin an authentication. Raises: Refused."""
        if self._settings is None or not (self._stage is _Stage.START or self._may_reauthenticate()):
            raise Refused(IllegalSaslState)
        if self._stage is _Stage.OPEN:
            self._reauthenticated_at = _now()
            self._other_mechanism = mechanism != self._mechanism
        self._stage = _Stage.EXCHANGE
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
        """Return True if a handshake may begin a re-authentication; only sessions with a lifetime allow it."""
        if self._stage is not _Stage.OPEN or self._expires_at is None:
            return False
        return (
            self._reauthenticated_at is None or _now() - self._reauthenticated_at >= REAUTHENTICATION_PAUSE_S
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
