"""Logins on a connection: SaslHandshake, and SaslAuthenticate as often as the mechanism wants (KIP-43, KIP-152)."""

from __future__ import annotations

import asyncio
import logging
import random
from asyncio import Future
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.net.address import Address
from aioproducer._core.net.dial_failures import described, is_failure
from aioproducer._core.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from aioproducer._core.steps import Log
from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ProducerError,
    SaslAuthenticationFailed,
)

if TYPE_CHECKING:  # mechanisms bring much with them, which not everybody needs
    from aioproducer._core.backoff import Backoff
    from aioproducer._core.security.exchange import Exchange
    from aioproducer._core.security.secret import SecretBytes

log: Final = Log(__name__)

LOG_IN_AGAIN: Final = (0.85, 0.95)
"""When to log in again, in shares of a session's life: not on all connections at once."""
LOG_IN_AT_MOST_EVERY_S: Final = 1.1
"""Brokers refuse more than one in a second."""
LEAST_REST_S: Final = 5.0
"""How much of its life has to be left then, or half of it if that is less: the login waits in line behind whatever was
written before it, and brokers hang up on what they come to read after the end. …"""
REST_WORTH_S: Final = 1.25 * LOG_IN_AT_MOST_EVERY_S
"""… But not if it is less than this: with the same token as before the next session has no more than what is left of this
one, and there has to be time for one more login."""
LOG_IN_LATE_S: Final = 5.0
"""How long that may go on past the end of the session, which brokers look at with the next request only."""
REFUSAL_WAIT_S: Final = 2.0
"""Longest wait for a refusal after its reason, which a broker sends one message before (RFC 7628)."""
ONE_MESSAGE: Final = frozenset({"PLAIN", "OAUTHBEARER"})
"""They have said all with their first message, so other requests may follow it unanswered."""
SECRETLESS: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"})
"""Their first message may be sent before it is known whether the broker takes the mechanism."""


class LoginConnection(Protocol):
    """What is needed of `Connection`."""

    @property
    def address(self) -> Address:
        """Where the broker is."""

    @property
    def limits(self) -> LogLimits:
        """Log limits of the producer."""

    @property
    def closed(self) -> bool:
        """Whether it takes no requests."""

    @property
    def throttled_until(self) -> float:
        """Time at which the broker reads requests again, in loop time (KIP-219)."""

    @property
    def is_one_way(self) -> bool:
        """Whether requests were written that nobody answers."""

    def ask(self, request: Any) -> Future[Any]:
        """Write a request of a login; the future has its answer, or why there is none."""

    def logged_in(self) -> None:
        """Take requests from now on."""

    def hold(self) -> None:
        """Hold back other requests."""

    def release(self) -> None:
        """Write what was held back."""

    def close(self, cause: ProducerError | None = None) -> None:
        """Close, and tell everybody *cause*."""


class LoginSecurity(Protocol):
    """What is needed of `ConnectionSecurity`."""

    @property
    def backoff(self) -> Backoff:
        """Paces how often whoever has nothing to log in with is asked again."""

    def exchange(self, address: Address) -> Exchange:
        """Return what logs in at *address*, once. Raises: AuthenticationFailed."""

    async def admit(self, address: Address) -> None:
        """Return if a login at *address* may begin. Raises: AuthenticationFailed while logins are paused."""

    def refused(self, address: Address, error: AuthenticationFailed, proof: object) -> None:
        """Record that the broker at *address* refused the credentials *proof*."""

    def accepted(self, address: Address) -> None:
        """Record that the broker at *address* accepted the login."""

    def failed(self, address: Address) -> None:
        """Record that an admitted login ended without a response."""


class Term(NamedTuple):
    """From when to when a session lives, in loop time."""

    began_at: float
    ends_at: float


class Session:
    """The login of one connection, and the next ones for as long as it lives (KIP-368)."""

    def __init__(self, connection: LoginConnection, security: LoginSecurity) -> None:
        self._connection = connection
        self._security = security
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.story: str = "the login"
        """What it is that is not over yet, for people."""

    async def log_in(self) -> None:
        """Log in for the first time; the connection takes requests after that.

        Raises: AuthenticationFailed; what the connection was closed for.
        """
        exchange, message = await self._begun()
        term = await self._noted(exchange, message, again=False)
        self._connection.logged_in()
        self._wait(term)

    def end(self) -> None:
        """Log in no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _wait(self, term: Term) -> None:
        """Log in again before the session ends."""
        if isfinite(term.ends_at) and not self._connection.closed:
            lives_s = term.ends_at - term.began_at
            rest_s = min(LEAST_REST_S, lives_s / 2)
            latest_s = lives_s - rest_s if rest_s >= REST_WORTH_S else inf
            after_s = min(random.uniform(*LOG_IN_AGAIN) * lives_s, latest_s)
            begin_at = max(term.began_at + after_s, _now() + LOG_IN_AT_MOST_EVERY_S)
            ends_at = max(term.ends_at, begin_at)
            self._timer = asyncio.get_running_loop().call_at(begin_at, self._begin, ends_at)

    def _begin(self, ends_at: float) -> None:
        if not self._connection.closed:
            name = f"aioproducer: login at {self._connection.address}"
            self._task = asyncio.get_running_loop().create_task(self._log_in_again(ends_at), name=name)

    async def _log_in_again(self, ends_at: float) -> None:
        """Log in on the living connection; close it if that fails, or is not over soon after *ends_at*.

        What is held back then goes with the connection: a broker that has refused us would not take it.
        """
        connection = self._connection
        self._watch(ends_at)
        try:
            exchange, message = await self._started(ends_at)
            # a late or refused login would lose unanswered requests without an error
            holds = connection.is_one_way or exchange.mechanism.name not in ONE_MESSAGE
            if holds:
                connection.hold()
            term = await self._noted(exchange, message, again=True)
        except ProducerError as error:
            connection.close(error)
        except BaseException as error:
            if not is_failure(error):
                raise
            failed = ConnectionFailed(f"{connection}: {self.story} ended with {described(error)}")
            failed.__cause__ = error
            connection.close(failed)
        else:
            if holds:
                connection.release()
            log.debug("connection.logged_in address=%s", connection.address)
            if self._timer is not None:
                self._timer.cancel()
            self._wait(term)

    def _watch(self, ends_at: float) -> None:
        """Close the connection unless the login ends soon after *ends_at*, or after the broker's throttle (KIP-219)."""
        connection = self._connection
        late_at = max(ends_at, connection.throttled_until) + LOG_IN_LATE_S
        if late_at > _now():
            self._timer = asyncio.get_running_loop().call_at(late_at, self._watch, ends_at)
        else:
            connection.close(
                ConnectionFailed(f"{connection}: its session ended, and {self.story} was not over")
            )

    async def _started(self, ends_at: float) -> tuple[Exchange, SecretBytes]:
        """Return an exchange and its first message; whoever cannot give one is asked again until the session ends."""
        attempt = 0
        while True:
            try:
                await self._security.admit(self._connection.address)
                return await self._begun()
            except (AuthenticationFailed, ConnectionFailed) as error:
                delay_s = self._security.backoff.delay_s(attempt)
                if _now() + delay_s >= ends_at:
                    raise
                if not attempt:
                    subject = Pairs(address=self._connection.address)
                    self._connection.limits.log(
                        log, logging.WARNING, subject, "connection.login_delayed %s error=%s", subject, error
                    )
                attempt += 1
                await asyncio.sleep(delay_s)

    async def _begun(self) -> tuple[Exchange, SecretBytes]:
        exchange = self._security.exchange(self._connection.address)
        name = exchange.mechanism.name
        self.story = f"the login by {name} (nothing to log in with yet)"
        try:
            message = await exchange.start()
        except AuthenticationFailed as error:
            if (
                name == "GSSAPI" and exchange.proof is not None
            ):  # a KDC locks the principal of a keytab, as brokers do
                self._security.refused(self._connection.address, error, exchange.proof)
            raise
        self.story = f"the login by {name}"
        return exchange, message

    async def _noted(self, exchange: Exchange, message: SecretBytes, *, again: bool) -> Term:
        """Run `_exchange`, and pass the outcome to the login pace of the producer."""
        address = self._connection.address
        try:
            term = await self._exchange(exchange, message, again=again)
        except AuthenticationFailed as error:
            self._security.refused(address, error, exchange.proof)
            raise
        except BaseException:
            self._security.failed(address)
            raise
        self._security.accepted(address)
        return term

    async def _exchange(self, exchange: Exchange, message: SecretBytes, *, again: bool) -> Term:
        """Let *exchange*, whose first *message* this is, log in; return how long that holds.

        *again*: the broker takes the mechanism, as it did before.
        """
        ask, name = self._connection.ask, exchange.mechanism.name
        asked = ask(SaslHandshakeRequest(mechanism=name))
        answered: Future[SaslAuthenticateResponse] | None = None
        began_at = _now()
        if again or name in SECRETLESS:
            answered = ask(SaslAuthenticateRequest(auth_bytes=message.take()))
            answered.add_done_callback(_look_at)  # nobody awaits it if the handshake is refused
        handshake = await asked
        if handshake.error_code:
            raise exchange.refused(handshake.error_code, None, handshake.mechanisms)
        if answered is None:
            began_at = _now()
            answered = ask(SaslAuthenticateRequest(auth_bytes=message.take()))
        while True:
            answer = await answered
            if answer.error_code:
                raise exchange.refused(answer.error_code, answer.error_message)
            following = await exchange.answer(answer.auth_bytes)
            if following is None:
                # Only the broker knows when it began; this is the earliest that it can be.
                return Term(began_at, began_at + (answer.session_lifetime_ms / 1000 or inf))
            began_at = _now()
            answered = ask(SaslAuthenticateRequest(auth_bytes=following.take()))
            if exchange.is_refused:
                await asyncio.wait({answered}, timeout=REFUSAL_WAIT_S)
                if not answered.done() or answered.cancelled() or answered.exception() is not None:
                    answered.add_done_callback(_look_at)
                    raise exchange.refused(SaslAuthenticationFailed.code, None)


def _look_at(answered: Future[Any]) -> None:
    if not answered.cancelled():
        _ = answered.exception()


def _now() -> float:
    return asyncio.get_running_loop().time()
