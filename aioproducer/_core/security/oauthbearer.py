"""OAUTHBEARER (RFC 7628, KIP-255, KIP-342), and its tokens, shared by all connections and renewed before they expire."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Final, TypeAlias

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import escaped
from aioproducer._core.security.mechanism import Refused, SaslClient, UserCall
from aioproducer._core.security.secret import Secret, redacted, revealed
from aioproducer._core.steps import Log
from aioproducer._core.worker_threads import NoThread
from aioproducer.errors import AuthenticationFailed


def finite(value: object) -> float | None:
    """Return *value* as a finite float; None if *value* is not a number or exceeds the range of floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


log: Final = Log(__name__)

RENEWED_AT: Final = 0.8
"""Share of a token's lifetime after which the token is renewed: `sasl.login.refresh.window.factor` of the Java client."""
TIMEOUT_S: Final = 1.0
"""Longest wait for a new token while the old token is valid, in seconds."""
LEAST_PAUSE_S: Final = 1.0
"""Minimum time between two token requests, in seconds, so that short-lived, failed or refused tokens cause no flood. No
minimum applies while the last token has no expiry."""
LONGEST_TIMER_S: Final = 86_400.0
"""Longest timer, in seconds. Later times are reached in steps, because event loops limit timers."""
TokenProvider: TypeAlias = Callable[[], Any]
"""Callable of the user that returns a str, an object with `value`, `expires_at` and `extensions`, or a coroutine."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token."""

    value: Secret
    expires_at: float | None = None
    """Expiry in seconds since the epoch; None: unknown, so each authentication fetches a token."""
    extensions: Mapping[str, str] = field(default_factory=dict)


def from_provider(provider: TokenProvider, limit_s: float = 30.0) -> Callable[[], Awaitable[Token]]:
    """Return a function that fetches a Token from the user's *provider*, and raises Refused after *limit_s*."""
    call = UserCall(provider, "sasl_oauth_token_provider")

    async def fetch() -> Token:
        return as_token(await call(limit_s))

    return fetch


def as_token(given: Any) -> Token:
    """Return the result of a provider as a Token.

    Raises: Refused, whose text has the type of the result without its value.
    """
    if isinstance(given, Token):
        return given
    if isinstance(given, str | Secret):
        return Token(Secret(revealed(given)))
    value = getattr(given, "value", None)
    if not isinstance(value, str | Secret):
        raise Refused(
            "sasl_oauth_token_provider has to return a str, or an object with value, expires_at and extensions;"
            f" it returned {type(given).__name__}"
        )
    expires_at = getattr(given, "expires_at", None)
    if expires_at is not None and finite(expires_at) is None:
        raise Refused("a token's expires_at has to be a number of seconds since the epoch, or None")
    extensions = getattr(given, "extensions", None) or {}
    if not isinstance(extensions, Mapping):
        raise Refused("a token's extensions have to be a mapping of names to values")
    return Token(Secret(revealed(value)), expires_at, dict(extensions))


class SharedTokens:
    """Token of all connections, renewed in the background after most of its lifetime.

    While fetching fails, the valid token stays in use, and fetching is retried after a growing pause. A token
    without an expiry is fetched for each login; if the fetch fails, the login uses the last token.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Token]],
        *,
        backoff: Backoff,
        wall: Callable[[], float] = time.time,
        limits: LogLimits | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        """*wall* returns the seconds since the epoch.

        If the last token has no expiry, a login waits *timeout_s* for a new token, and then uses the last token.
        """
        self._fetch = fetch
        self._backoff = backoff
        self._wall = wall
        self._limits = limits or LogLimits()
        self._timeout_s = timeout_s
        self._asked_at = -inf
        self._next: Token | None = None
        self._token: Token | None = None
        self._renew_at = 0.0
        self._failures = 0
        self._fetching: asyncio.Task[Token] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def token(self) -> Token:
        """Return a token that is still valid. Raises: Refused, AuthenticationFailed."""
        token, now = self._next, self._wall()
        self._next = None
        if token is not None and (token.expires_at is None or now < token.expires_at):
            return token
        token = self._token
        if token is not None and token.expires_at is not None and now < token.expires_at:
            if now < self._renew_at or (self._failures and self._timer):
                return token
            task = self._renew()
            await asyncio.wait({task}, timeout=min(TIMEOUT_S, token.expires_at - now))
            return self._token or token
        task = self._renew()
        if token is not None and token.expires_at is None:
            await asyncio.wait({task}, timeout=self._timeout_s)
            if not task.done() or task.cancelled() or task.exception() is not None:
                return token
        try:
            return await asyncio.shield(task)
        except (Refused, AuthenticationFailed, NoThread):
            raise
        except Exception as error:
            raise Refused(
                f"sasl_oauth_token_provider raised {type(error).__name__}, which is the cause"
            ) from error

    async def differs(self, refused: object) -> bool:
        """Return True if the current token differs from *refused*; the next login uses a token that differs."""
        if isinstance(refused, Secret):
            self.refused(refused)
        token = await self.token()
        self._next = token if token.value != refused else None
        return self._next is not None

    def refused(self, value: Secret) -> None:
        """Drop the token if it is *value*, which a broker refused: the next login gets a new token."""
        if self._token is not None and self._token.value == value:
            self._token = None
            self._cancel_timer()

    def close(self) -> None:
        """Cancel the renewal, and drop the token."""
        self._closed = True
        self._token = self._next = None
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
        loop = asyncio.get_running_loop()
        if self._token is None or self._token.expires_at is not None:
            await asyncio.sleep(self._asked_at + LEAST_PAUSE_S - loop.time())
        self._asked_at = loop.time()
        begun = self._wall()
        token = await self._fetch()
        if token.expires_at is not None and token.expires_at <= self._wall():
            raise Refused("the new token has expired already; is the clock right?")
        if not self._closed:
            self._limits.over("security.token.kept", "", "security.token.recovered")
            self._token, self._failures = token, 0
            if token.expires_at is not None:
                self._renew_at = begun + RENEWED_AT * (token.expires_at - begun)
                self._wait()
        return token

    def _done(self, task: asyncio.Task[Token]) -> None:
        self._fetching = None
        error = None if task.cancelled() else task.exception()
        if error is None or self._closed or self._token is None:
            return
        self._limits.log(log, logging.WARNING, "", "security.token.kept error=%s", type(error).__name__)
        if self._token.expires_at is not None and self._wall() < self._token.expires_at:
            self._after(self._backoff.delay_s(self._failures))
        self._failures += 1

    def _wait(self) -> None:
        """Start the timer that renews the token."""
        rest_s = self._renew_at - self._wall()
        if rest_s <= LONGEST_TIMER_S:
            self._after(rest_s)
        else:
            self._cancel_timer()
            self._timer = asyncio.get_running_loop().call_later(LONGEST_TIMER_S, self._wait)

    def _after(self, delay_s: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._renew)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_TOKEN = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
LONGEST_STATUS: Final = 200


class OAuthBearer(SaslClient):
    """One authentication by OAUTHBEARER; `proof` is the token."""

    name = "OAUTHBEARER"
    proof: Secret | None

    def __init__(self, tokens: SharedTokens, extensions: Mapping[str, str] | None = None) -> None:
        """*extensions* are sent with each token; extensions of a token override *extensions*."""
        super().__init__()
        self._tokens = tokens
        self._extensions = dict(extensions or {})
        self.detail: str = ""
        """The broker's reason for the refusal, which arrives one message before the refusal."""

    async def start(self, broker: Address) -> bytes:
        """Return the first message, with the token and its extensions."""
        token = await self._tokens.token()
        self.proof = token.value
        self.secrets = (token.value,)
        self.complete = True
        return first_message(token.value, {**self._extensions, **token.extensions})

    def respond(self, challenge: bytes) -> bytes:
        """Accept an empty challenge. Another challenge is a refusal, which needs a response (RFC 7628)."""
        if not challenge and not self.detail:
            return b""
        if self.detail:
            raise Refused(f"the broker refused the token and then took it: {self.detail}")
        self.complete = False
        self.detail = escaped(redacted(_status(challenge), *self.secrets), LONGEST_STATUS) or "refused"
        return b"\x01"

    def refused(self) -> None:
        """Drop the token: the broker refused it, so the next login needs another one."""
        if self.proof is not None:
            self._tokens.refused(self.proof)


def first_message(token: Secret, extensions: Mapping[Any, Any]) -> bytes:
    """Return the first message of OAUTHBEARER.

    Raises: Refused for a token or extension with invalid characters. The text contains no token and no value.
    """
    if not _TOKEN.fullmatch(token.reveal()):
        raise Refused("the token is empty, or has characters that a bearer token may not have")
    for key, value in extensions.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or key.lower() == "auth":
            raise Refused(f"the extension {key!r} needs a name of letters only, and not 'auth'")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise Refused(f"the extension {key!r} has a value that is no printable ASCII")
    pairs = "".join(f"\x01{key}={value}" for key, value in extensions.items())
    return f"n,,\x01auth=Bearer {token.reveal()}{pairs}\x01\x01".encode()


def _status(challenge: bytes) -> str:
    """Return the `status` in *challenge*, the broker's JSON; the whole text without a status."""
    text = challenge.decode("utf-8", "replace")
    try:
        said = json.loads(text)
        text = str(said.get("status", text)) if isinstance(said, dict) else text
    except (ValueError, RecursionError):
        pass
    return text
