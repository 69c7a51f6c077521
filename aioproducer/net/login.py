"""Logins on a connection: SaslHandshake, and SaslAuthenticate as often as the mechanism wants (KIP-43, KIP-152)."""

from __future__ import annotations

import asyncio
import logging
import random
from asyncio import Future
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioproducer.errors import ConnectionFailed, ProducerError
from aioproducer.net.address import Address
from aioproducer.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest

if TYPE_CHECKING:  # mechanisms bring much with them, which not everybody needs
    from aioproducer.net.connection_security import ConnectionSecurity
    from aioproducer.security.exchange import Exchange

log: Final = logging.getLogger(__name__)

LOG_IN_AGAIN: Final = (0.85, 0.95)
"""When to log in again, in shares of a session's life: not on all connections at once."""
LOG_IN_AT_MOST_EVERY_S: Final = 1.1
"""Brokers refuse more than one in a second."""
LOG_IN_LATE_S: Final = 5.0
"""How long that may go on past the end of the session, which brokers look at with the next request only."""
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
    def closed(self) -> bool:
        """Whether it takes no requests."""

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


class Session:
    """The login of one connection, and the next ones for as long as it lives (KIP-368)."""

    def __init__(self, connection: LoginConnection, security: ConnectionSecurity) -> None:
        self._connection = connection
        self._security = security
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def log_in(self) -> None:
        """Log in for the first time; the connection takes requests after that.

        Raises: AuthenticationFailed; what the connection was closed for.
        """
        exchange = self._security.exchange(self._connection.address)
        lifetime_s = await self._exchange(exchange, await exchange.start(), again=False)
        self._connection.logged_in()
        self._wait(lifetime_s)

    def end(self) -> None:
        """Log in no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _wait(self, lifetime_s: float) -> None:
        """Log in again before the session ends; a *lifetime_s* of 0 has no end."""
        if lifetime_s and not self._connection.closed:
            after_s = max(random.uniform(*LOG_IN_AGAIN) * lifetime_s, LOG_IN_AT_MOST_EVERY_S)
            left_s = max(lifetime_s - after_s, 0.0) + LOG_IN_LATE_S
            self._timer = asyncio.get_running_loop().call_later(after_s, self._begin, left_s)

    def _begin(self, left_s: float) -> None:
        if not self._connection.closed:
            name = f"aioproducer: login at {self._connection.address}"
            self._task = asyncio.get_running_loop().create_task(self._log_in_again(left_s), name=name)

    async def _log_in_again(self, left_s: float) -> None:
        """Log in on the living connection; close it if that fails, or is not over in *left_s*."""
        connection = self._connection
        try:
            async with asyncio.timeout(left_s):
                exchange = self._security.exchange(connection.address)
                message = await exchange.start()
                if exchange.mechanism.name in ONE_MESSAGE:
                    lifetime_s = await self._exchange(exchange, message, again=True)
                else:
                    connection.hold()
                    try:
                        lifetime_s = await self._exchange(exchange, message, again=True)
                    finally:
                        connection.release()
        except TimeoutError:
            connection.close(
                ConnectionFailed(f"{connection}: its session has ended before another login was over")
            )
        except ProducerError as error:
            connection.close(error)
        else:
            log.debug("connection.logged_in address=%s", connection.address)
            self._wait(lifetime_s)

    async def _exchange(self, exchange: Exchange, message: bytes, *, again: bool) -> float:
        """Let *exchange*, whose first *message* this is, log in; return how long the session lives, in seconds.

        *again*: the broker takes the mechanism, as it did before.
        """
        ask, name = self._connection.ask, exchange.mechanism.name
        asked = ask(SaslHandshakeRequest(mechanism=name))
        answered: Future[SaslAuthenticateResponse] | None = None
        if again or name in SECRETLESS:
            answered = ask(SaslAuthenticateRequest(auth_bytes=message))
            answered.add_done_callback(_look_at)  # nobody awaits it if the handshake is refused
        handshake = await asked
        if handshake.error_code:
            raise exchange.refused(handshake.error_code, None, handshake.mechanisms)
        if answered is None:
            answered = ask(SaslAuthenticateRequest(auth_bytes=message))
        while True:
            answer = await answered
            if answer.error_code:
                raise exchange.refused(answer.error_code, answer.error_message)
            following = await exchange.answer(answer.auth_bytes)
            if following is None:
                return answer.session_lifetime_ms / 1000
            answered = ask(SaslAuthenticateRequest(auth_bytes=following))


def _look_at(answered: Future[Any]) -> None:
    if not answered.cancelled():
        _ = answered.exception()
