"""Tokens for OAUTHBEARER: fetched once for all connections, renewed before they expire."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from aioproducer.backoff import Backoff
from aioproducer.errors import AuthenticationFailed
from aioproducer.log_limits import LogLimits
from aioproducer.security.credentials import called
from aioproducer.security.mechanism import Refused
from aioproducer.security.secret import Secret
from aioproducer.steps import Log
from aioproducer.worker_threads import NoThread

log: Final = Log(__name__)

RENEWED_AT: Final = 0.8
"""The share of a token's life after which a new one is fetched: `sasl.login.refresh.window.factor` of the JVM's."""
PATIENCE_S: Final = 1.0
"""How long a login waits for a new token where the old one would do."""
TokenProvider: TypeAlias = Callable[[], Any]
"""What users give: returns a str, or an object with `value`, `expires_at` and `extensions`; or a coroutine of it."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token."""

    value: Secret
    expires_at: float | None = None
    """Seconds since the epoch; None: nobody knows, so that it is for one login only."""
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenSource(Protocol):
    """Who has a token for a login."""

    async def token(self) -> Token:
        """Return a token that is good for now; raise Refused or AuthenticationFailed if there is none."""
        ...

    def close(self) -> None:
        """Renew nothing any more."""
        ...


def from_provider(provider: TokenProvider) -> Callable[[], Awaitable[Token]]:
    """Return what asks the user's *provider* for a Token."""

    async def fetch() -> Token:
        return as_token(await called(provider))

    return fetch


def as_token(given: Any) -> Token:
    """Return what a provider has *given* as a Token.

    Raises: Refused, with the type and not the value.
    """
    if isinstance(given, Token):
        return given
    if isinstance(given, str | Secret):
        return Token(_secret(given))
    value = getattr(given, "value", None)
    if not isinstance(value, str | Secret):
        raise Refused(
            "sasl_oauth_token_provider has to return a str, or an object with value, expires_at and extensions;"
            f" it returned {type(given).__name__}"
        )
    expires_at = getattr(given, "expires_at", None)
    if expires_at is not None and (
        isinstance(expires_at, bool)
        or not isinstance(expires_at, int | float)
        or not math.isfinite(expires_at)
    ):
        raise Refused("a token's expires_at has to be a number of seconds since the epoch, or None")
    extensions = getattr(given, "extensions", None) or {}
    if not isinstance(extensions, Mapping):
        raise Refused("a token's extensions have to be a mapping of names to values")
    return Token(_secret(value), expires_at, dict(extensions))


def _secret(value: str | Secret) -> Secret:
    return value if isinstance(value, Secret) else Secret(value)


class SharedTokens:
    """One token for all connections until most of its life is over; then the next one, fetched in the background.

    While fetching fails, the token that is still valid goes on, and fetching is tried with a growing pause. A token
    without an expiry is fetched for each login; if that fails, the last one is tried.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Token]],
        *,
        backoff: Backoff,
        wall: Callable[[], float] = time.time,
        limits: LogLimits | None = None,
    ) -> None:
        """*wall* tells the seconds since the epoch."""
        self._fetch = fetch
        self._backoff = backoff
        self._wall = wall
        self._limits = limits or LogLimits()
        self._token: Token | None = None
        self._renew_at = 0.0
        self._failures = 0
        self._fetching: asyncio.Task[Token] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def token(self) -> Token:
        """Return a token that is still valid.

        Raises: Refused, AuthenticationFailed.
        """
        token = self._token
        now = self._wall()
        if token is not None and token.expires_at is not None and now < token.expires_at:
            if now < self._renew_at or (self._failures and self._timer):
                return token
            task = self._renew()
            await asyncio.wait({task}, timeout=min(PATIENCE_S, token.expires_at - now))
            return self._token or token
        try:
            return await asyncio.shield(self._renew())
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if token is not None and token.expires_at is None:
                return token
            if isinstance(error, Refused | AuthenticationFailed | NoThread):
                raise
            raise Refused(
                f"sasl_oauth_token_provider raised {type(error).__name__}, which is the cause"
            ) from error

    def close(self) -> None:
        """Renew nothing any more, and forget the token."""
        self._closed = True
        self._token = None
        self._cancel_timer()
        if self._fetching is not None:
            self._fetching.cancel()

    def _renew(self) -> asyncio.Task[Token]:
        """Return the one task that fetches the next token."""
        self._cancel_timer()
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(
                self._fetched(), name="aioproducer: fetch a token"
            )
            self._fetching.add_done_callback(self._done)
        return self._fetching

    async def _fetched(self) -> Token:
        begun = self._wall()
        token = await self._fetch()
        if token.expires_at is not None and token.expires_at <= self._wall():
            raise Refused("the new token has expired already; is the clock right?")
        self._take(token, begun)
        return token

    def _take(self, token: Token, begun: float) -> None:
        if self._closed:
            return
        self._limits.over("security.token.kept", "", "security.token.recovered")
        self._token, self._failures = token, 0
        if token.expires_at is not None:
            self._renew_at = begun + RENEWED_AT * (token.expires_at - begun)
            self._after(self._renew_at - self._wall())

    def _done(self, task: asyncio.Task[Token]) -> None:
        self._fetching = None
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._closed or self._token is None:
            return
        self._limits.log(log, logging.WARNING, "", "security.token.kept error=%s", type(error).__name__)
        if self._token.expires_at is not None and self._wall() < self._token.expires_at:
            self._after(self._backoff.delay_s(self._failures))
        self._failures += 1

    def _after(self, delay_s: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._renew)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
