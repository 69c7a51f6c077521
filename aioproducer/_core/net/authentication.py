"""SASL authentication of a connection (KIP-43, KIP-152, KIP-368), and the backoff after refusals."""

from __future__ import annotations

import asyncio
import logging
import random
from asyncio import Future
from collections.abc import Awaitable, Callable
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.net.connection_protocol import caused
from aioproducer._core.net.dial import again, described, is_failure
from aioproducer._core.protocol.client import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.steps import Log
from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ProducerError,
    SaslAuthenticationFailed,
)

if TYPE_CHECKING:
    from aioproducer._core.security.exchange import Exchange
    from aioproducer._core.security.secret import SecretBytes


log: Final = Log(__name__)

REAUTHENTICATE_AT: Final = (0.85, 0.95)
"""Range of the reauthentication time, as a share of the session lifetime. A random share spreads the reauthentications."""
MIN_INTERVAL_S: Final = 1.1
"""Minimum time between two authentications, in seconds: brokers refuse more than one authentication per second."""
MIN_REST_S: Final = 5.0
"""Minimum rest of the session lifetime at reauthentication, in seconds, or half the lifetime if half is less. The broker
reads earlier requests first, and closes a connection whose session has ended."""
MIN_USEFUL_REST_S: Final = 1.25 * MIN_INTERVAL_S
"""Rest of the session lifetime below which `MIN_REST_S` is ignored. With the same token, the next session has only this
rest, which must suffice for another reauthentication."""
LATE_S: Final = 5.0
"""Time for a reauthentication after the end of the session. Brokers check the end only at the next request."""
REFUSAL_WAIT_S: Final = 2.0
"""Longest wait for a refusal, in seconds, after the message with the reason, which a broker sends first (RFC 7628)."""
ONE_MESSAGE: Final = frozenset({"PLAIN", "OAUTHBEARER"})
"""Mechanisms of one message. Other requests may follow the message before its response."""
SECRETLESS: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"})
"""Mechanisms whose first message contains no secret, and is sent before the broker accepts the mechanism."""


class AuthenticatedConnection(Protocol):
    """Members of `Connection`, which documents them, for an `Authenticator`. An import of `Connection` would be circular."""

    @property
    def address(self) -> Address: ...
    @property
    def limits(self) -> LogLimits: ...
    @property
    def closed(self) -> bool: ...
    @property
    def throttled_until(self) -> float: ...
    @property
    def is_one_way(self) -> bool: ...
    @property
    def versions(self) -> ApiVersionTable: ...
    def ask(self, request: Any) -> Future[Any]: ...
    def authenticated(self) -> None: ...
    def pause_requests(self) -> None: ...
    def resume_requests(self) -> None: ...
    def close(self, cause: ProducerError | None = None) -> None: ...


class Authenticator:
    """SASL authentication of one connection, and its reauthentications before a session ends (KIP-368)."""

    def __init__(
        self,
        connection: AuthenticatedConnection,
        new_exchange: Callable[[], Exchange],
        refusals: AuthenticationBackoff,
        backoff: Backoff,
    ) -> None:
        """*backoff* is the pause after an exchange that could not start, for example without a token."""
        self._connection = connection
        self._new_exchange = new_exchange
        self._refusals = refusals
        self._backoff = backoff
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.stage: str = "the login"
        """Current stage, for messages."""

    async def authenticate(self) -> None:
        """Authenticate for the first time; the connection accepts requests afterwards.

        Raises: AuthenticationFailed; the error of a connection that is closed meanwhile.
        """
        exchange, message = await self._begun()
        session = await self._recorded(exchange, message, again=False)
        self._connection.authenticated()
        self._schedule(*session)

    def stop(self) -> None:
        """Cancel a scheduled or running reauthentication."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _schedule(self, began_at: float, ends_at: float) -> None:
        """Set the timer of the next reauthentication, before the end of the session."""
        if isfinite(ends_at) and not self._connection.closed:
            lives_s = ends_at - began_at
            rest_s = min(MIN_REST_S, lives_s / 2)
            latest_s = lives_s - rest_s if rest_s >= MIN_USEFUL_REST_S else inf
            after_s = min(random.uniform(*REAUTHENTICATE_AT) * lives_s, latest_s)
            begin_at = max(began_at + after_s, _now() + MIN_INTERVAL_S)
            self._timer = asyncio.get_running_loop().call_at(begin_at, self._begin, max(ends_at, begin_at))

    def _begin(self, ends_at: float) -> None:
        if not self._connection.closed:
            name = f"aioproducer: reauthenticate at {self._connection.address}"
            self._task = asyncio.get_running_loop().create_task(self._reauthenticate(ends_at), name=name)

    async def _reauthenticate(self, ends_at: float) -> None:
        """Authenticate again on an open connection; close the connection after a failure, or soon after *ends_at*.

        Requests that are held back fail with the connection, because the broker would refuse these requests.
        """
        connection = self._connection
        self._watch(ends_at)
        try:
            exchange, message = await self._started(ends_at)
            # If the authentication is late or refused, requests without a response would be lost without an error.
            holds = connection.is_one_way or exchange.mechanism.name not in ONE_MESSAGE
            if holds:
                connection.pause_requests()
            session = await self._recorded(exchange, message, again=True)
        except ProducerError as error:
            connection.close(error)
        except BaseException as error:
            if not is_failure(error):
                raise
            failed = ConnectionFailed(f"{connection}: {self.stage} ended with {described(error)}")
            connection.close(caused(failed, error))
        else:
            if holds:
                connection.resume_requests()
            log.debug("connection.reauthenticated address=%s", connection.address)
            self.stop()  # cancels the timer of `_watch`, because this task is the running task
            self._schedule(*session)

    def _watch(self, ends_at: float) -> None:
        """Close the connection unless the authentication ends soon after *ends_at*, or after a throttle (KIP-219)."""
        connection = self._connection
        late_at = max(ends_at, connection.throttled_until) + LATE_S
        if late_at > _now():
            self._timer = asyncio.get_running_loop().call_at(late_at, self._watch, ends_at)
        else:
            connection.close(
                ConnectionFailed(f"{connection}: its session ended, and {self.stage} was not over")
            )

    async def _started(self, ends_at: float) -> tuple[Exchange, SecretBytes]:
        """Return an exchange and its first message; retry after failures until the session ends."""
        attempt = 0
        while True:
            try:
                await self._refusals.admit(self._connection.address)
                return await self._begun()
            except (AuthenticationFailed, ConnectionFailed) as error:
                delay_s = self._backoff.delay_s(attempt)
                if _now() + delay_s >= ends_at:
                    raise
                if not attempt:
                    subject = Pairs(address=self._connection.address)
                    self._connection.limits.log(
                        log,
                        logging.WARNING,
                        subject,
                        "connection.reauthentication_delayed %s error=%s",
                        subject,
                        error,
                    )
                attempt += 1
                await asyncio.sleep(delay_s)

    async def _begun(self) -> tuple[Exchange, SecretBytes]:
        exchange = self._new_exchange()
        name = exchange.mechanism.name
        self.stage = f"the login by {name} (no credentials yet)"
        try:
            message = await exchange.start()
        except AuthenticationFailed as error:
            if name == "GSSAPI" and exchange.proof is not None:  # a KDC locks the principal of a keytab
                self._refusals.refused(self._connection.address, error, exchange.proof)
            raise
        self.stage = f"the login by {name}"
        return exchange, message

    async def _recorded(
        self, exchange: Exchange, message: SecretBytes, *, again: bool
    ) -> tuple[float, float]:
        """Run `_exchange`, and record its outcome for the other authentications of the producer."""
        address = self._connection.address
        try:
            session = await self._exchange(exchange, message, again=again)
        except AuthenticationFailed as error:
            self._refusals.refused(address, error, exchange.proof)
            raise
        except BaseException:
            self._refusals.failed(address)
            raise
        self._refusals.accepted(address)
        return session

    async def _exchange(
        self, exchange: Exchange, message: SecretBytes, *, again: bool
    ) -> tuple[float, float]:
        """Send *message*, the first of *exchange*, and all following messages; return begin and end of the session.

        If *again* is true, the broker has accepted the mechanism in an earlier exchange.
        """
        ask, name = self._connection.ask, exchange.mechanism.name
        asked = ask(SaslHandshakeRequest(mechanism=name))
        asked.add_done_callback(_retrieve)  # `asked` stays unawaited if the next `ask` raises
        answered: Future[SaslAuthenticateResponse] | None = None
        began_at = _now()
        if again or name in SECRETLESS:
            answered = ask(SaslAuthenticateRequest(auth_bytes=message.take()))
            answered.add_done_callback(_retrieve)  # stays unawaited if the handshake is refused
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
                # `began_at` is the earliest possible begin of the session; the response has only the lifetime.
                return began_at, began_at + (answer.session_lifetime_ms / 1000 or inf)
            began_at = _now()
            answered = ask(SaslAuthenticateRequest(auth_bytes=following.take()))
            if exchange.is_complete and not self._connection.versions.pick(SaslHandshakeRequest):
                # After SaslHandshake v0 a broker accepts the last token (GSSAPI) without an answer, and refuses by closing.
                answered.add_done_callback(_retrieve)
                return began_at, inf
            if exchange.is_refused:
                await asyncio.wait({answered}, timeout=REFUSAL_WAIT_S)
                if not answered.done() or answered.cancelled() or answered.exception() is not None:
                    answered.add_done_callback(_retrieve)
                    raise exchange.refused(SaslAuthenticationFailed.code, None)


def _retrieve(answered: Future[Any]) -> None:
    if not answered.cancelled():
        _ = answered.exception()


REFUSAL_BACKOFF: Final = Backoff(1.0, 15.0, jitter=0.1)
"""Pause between refused authentications."""
FIRST_REFUSALS: Final = 3
"""Number of brokers that may refuse a first authentication before pauses begin."""
OUTCOME_WAIT_S: Final = 0.5
"""Longest wait for the outcome of a running authentication, in seconds. After a refusal, the waiting
authentications are held back, so one broker refuses instead of all brokers."""
ACCEPTED_S: Final = 5.0
"""Time after an accepted authentication in which other authentications do not wait, in seconds."""
CHECK_INTERVAL_S: Final = 1.0
"""Minimum time between two checks for changed credentials, in seconds."""
MAX_CHANGES: Final = 3
"""Maximum number of consecutive changes of credentials that are tried immediately: every token of a provider may differ."""
WAITING_S: Final = 2.5
"""Time for which a broker counts as waiting after its authentication was held back, in seconds."""


class _Refusal(NamedTuple):
    error: AuthenticationFailed
    proof: object
    times: int
    """Number of consecutive refusals by the broker."""
    next_at: float
    """Time of the next authentication at the broker (loop clock)."""


class AuthenticationBackoff:
    """Limit of authentications across all brokers, because brokers lock accounts after a few refusals.

    All authentications are admitted until a broker refuses one of them; then one authentication at a time is admitted until a
    broker accepts.
    """

    def __init__(self, changed: Callable[[object], Awaitable[bool]]) -> None:
        """*changed* returns True if the credentials differ from the refused credentials, its argument."""
        self._changed = changed
        self._last: _Refusal | None = None
        self._failures = 0
        self._changes = 0
        self.next_at: float = 0.0
        """Time of the next authentication after a refusal (loop clock)."""
        self._brokers: dict[Address, _Refusal] = {}
        self._waiting: dict[Address, float] = {}
        self._running: dict[Address, float] = {}
        self._accepted_at = -inf
        self._checked_at = -inf
        self._outcome = asyncio.Event()

    async def admit(self, address: Address) -> None:
        """Admit an authentication at *address*, unless a pause holds the authentication back.

        Raises: AuthenticationFailed during a pause: the last refusal of this broker, or else of another broker.
        """
        await self._wait_for_outcome()
        now = _now()
        last, own = self._last, self._brokers.get(address)
        if last is None and own is not None and now < own.next_at:
            last = own
        if last is not None:
            if not self._is_turn(address, now) and not await self._has_changed(last.proof, now):
                self._waiting[address] = now
                refusal = again(last.error if own is None else own.error)
                refusal.held_back = own is None
                raise refusal
            self.next_at = now + REFUSAL_BACKOFF.delay_s(self._failures)  # other authentications wait
        self._waiting.pop(address, None)
        self._running[address] = _now()

    def refused(self, address: Address, error: AuthenticationFailed, proof: object) -> None:
        """Record that the broker at *address* refused the credentials *proof*."""
        now = _now()
        times = self._times(address)
        self._last = _Refusal(again(error), proof, times + 1, now + REFUSAL_BACKOFF.delay_s(times))
        self._brokers[address] = self._last
        self.next_at = now + REFUSAL_BACKOFF.delay_s(self._failures)
        self._failures += 1
        self._ended(address)

    def accepted(self, address: Address) -> None:
        """Record that the broker at *address* accepted. Earlier refusals then delay only the brokers that refused."""
        self._last, self._failures, self._changes = None, 0, 0
        self.next_at = 0.0
        self._accepted_at = _now()
        self._brokers.pop(address, None)
        self._waiting.clear()
        self._ended(address)

    def failed(self, address: Address) -> None:
        """Record that an admitted authentication ended without a response, so another authentication may begin."""
        if address in self._running:
            if self._last is not None:
                self.next_at = _now()
            self._ended(address)

    def _ended(self, address: Address) -> None:
        self._running.pop(address, None)
        outcome, self._outcome = self._outcome, asyncio.Event()
        outcome.set()

    async def _wait_for_outcome(self) -> None:
        """Wait briefly for the outcome of a running authentication, unless a broker accepted recently."""
        until = _now() + OUTCOME_WAIT_S
        while self._last is None and self._accepted_at != -inf:
            if (
                _now() - self._accepted_at < ACCEPTED_S
                or _now() - max(self._running.values(), default=-inf) >= OUTCOME_WAIT_S
            ):
                return
            try:
                async with asyncio.timeout_at(until):
                    await self._outcome.wait()
            except TimeoutError:
                return

    def _is_turn(self, address: Address, now: float) -> bool:
        own = self._brokers.get(address)
        if self._accepted_at == -inf and own is None and self._failures < FIRST_REFUSALS:
            return True
        if now < max(0.0 if own is None else own.next_at, 0.0 if self._last is None else self.next_at):
            return False
        waiting = (each for each, at in self._waiting.items() if each != address and now - at < WAITING_S)
        return self._times(address) <= min(map(self._times, waiting), default=inf)

    def _times(self, address: Address) -> int:
        return self._brokers[address].times if address in self._brokers else 0

    async def _has_changed(self, proof: object, now: float) -> bool:
        if self._changes >= MAX_CHANGES or now - self._checked_at < CHECK_INTERVAL_S:
            return False
        self._checked_at = now
        try:
            has_changed = await self._changed(proof)
        except Exception:  # noqa: BLE001 - the next authentication raises the error
            return False
        self._changes = self._changes + 1 if has_changed else 0
        return has_changed


def _now() -> float:
    return asyncio.get_running_loop().time()
