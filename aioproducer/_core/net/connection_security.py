"""What secures the connections of one producer: TLS below them, and who logs in on them."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.net.address import Address
from aioproducer._core.net.dial import Dial, MakeProtocol, routes
from aioproducer._core.net.login import LoginConnection, Session
from aioproducer._core.net.login_pace import LoginPace
from aioproducer._core.security.certificate import PeerCertificate
from aioproducer._core.security.exchange import Exchange
from aioproducer._core.security.logins import Logins
from aioproducer._core.security.mechanism import Broker
from aioproducer._core.security.security_settings import SecuritySettings, weaknesses
from aioproducer._core.security.tls import TlsContexts, server_name
from aioproducer._core.security.tls_errors import is_about_us, shown_chain, tls_failure
from aioproducer._core.steps import Log
from aioproducer.errors import AuthenticationFailed

log: Final = Log(__name__)


class ConnectionSecurity:
    """Shared by all connections; close it with the producer."""

    def __init__(self, settings: SecuritySettings, *, backoff: Backoff) -> None:
        """*backoff* paces how often files or a callable that fail are tried again."""
        self.backoff: Final = backoff
        self._limits = LogLimits()
        self._tls = (
            None if settings.tls is None else TlsContexts(settings.tls, backoff=backoff, limits=self._limits)
        )
        self._logins = None if settings.sasl is None else Logins(settings.sasl, self._limits)
        self._pace = None if self._logins is None else LoginPace(self._logins.differ)
        self._warned = False
        for setting, risk in weaknesses(settings):
            log.warning("security.weak setting=%s risk=%r", setting, risk)

    @property
    def logs_in(self) -> bool:
        """Whether there is SASL."""
        return self._logins is not None

    def session(self, connection: LoginConnection) -> Session | None:
        """Return who logs in on *connection*; None if nobody does."""
        return Session(connection, self) if self.logs_in else None

    def exchange(self, address: Address) -> Exchange:
        """Return what logs in at *address*, once. Raises: AuthenticationFailed if the user's factory does."""
        assert self._logins is not None, "asked for only if it logs in"
        return self._logins.exchange(_broker(address))

    @property
    def next_login_at(self) -> float:
        """Time of the next login after a refusal (loop clock); in the past if logins are not paused."""
        return 0.0 if self._pace is None else self._pace.next_at

    async def admit(self, address: Address) -> None:
        """Return if a login at *address* may begin. Raises: AuthenticationFailed while logins are paused."""
        if self._pace is not None:
            await self._pace.admit(address)

    def refused(self, address: Address, error: AuthenticationFailed, proof: object) -> None:
        """Record that the broker at *address* refused the credentials *proof*."""
        if self._pace is not None:
            self._pace.refused(address, error, proof)

    def accepted(self, address: Address) -> None:
        """Record that the broker at *address* accepted the login."""
        if self._pace is not None:
            self._pace.accepted(address)

    def failed(self, address: Address) -> None:
        """Record that an admitted login ended without a response."""
        if self._pace is not None:
            self._pace.failed(address)

    async def dial(self, dial: Dial, address: Address, make_protocol: MakeProtocol) -> None:
        """Dial *address*, and have what *make_protocol* returns talk over TLS if there is TLS.

        Raises: as *dial* and `admit`; AuthenticationFailed, ConnectionFailed if TLS does not come about. Cancelling leaves no
            connection behind.
        """
        await self.admit(address)
        if self._tls is None:
            await dial(*address, make_protocol)
            return
        try:
            name = server_name(address.name)
        except ValueError as error:
            raise AuthenticationFailed(f"{address}: {error}", broker=str(_broker(address))) from error
        context = await self._tls.context()
        early = _Early()
        transport = await dial(*address, lambda: early)
        peer = transport.get_extra_info("peername")
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, early, context, server_hostname=name
            )
        except OSError as error:
            raise await self._failure(error, address, peer) from error
        except (
            BaseException
        ):  # such as TypeError for a host name with a NUL, before asyncio takes the transport over
            transport.abort()
            raise
        if secured is None or early.is_lost:
            failure = await self._failure(early.error or ConnectionResetError(), address, peer)
            raise failure from early.error
        self._warn_of_common_name(secured, address)
        protocol = make_protocol()
        secured.set_protocol(protocol)
        protocol.connection_made(secured)

    def lost(self, error: Exception | None, address: Address) -> AuthenticationFailed | None:
        """Return what to close a connection for that is lost by *error*, if the broker did not accept who we are.

        Under TLS 1.3 it says so when our side of the handshake is over.
        """
        if self._tls is None or error is None or not is_about_us(error):
            return None
        failure = tls_failure(error, _broker(address), self._tls.settings)
        return failure if isinstance(failure, AuthenticationFailed) else None

    def _warn_of_common_name(self, transport: asyncio.BaseTransport, address: Address) -> None:
        """Log one WARNING if a verified certificate has no subjectAltName."""
        if self._warned:
            return
        certificate = transport.get_extra_info("peercert")
        if certificate and "subjectAltName" not in certificate:
            self._warned = True
            log.warning(
                "security.certificate.common_name broker=%s reason=%r",
                address,
                "the certificate has no subjectAltName, so its common name was compared with the host name;"
                " RFC 9525 deprecates this: issue a certificate with subjectAltName",
            )

    def close(self) -> None:
        """Renew no token any more."""
        if self._logins is not None:
            self._logins.close()
        self._limits.close()

    async def _failure(self, error: Exception, address: Address, peer: Any) -> Exception:
        """Return the error for a handshake that failed with *peer*, as `getpeername` gives it."""
        assert self._tls is not None, "there is no TLS to fail"
        broker = _broker(address)
        chain: tuple[PeerCertificate, ...] = ()
        if isinstance(error, ssl.SSLCertVerificationError) and peer and address not in routes:
            chain = await shown_chain(broker, peer[:2])  # numeric, so that asyncio looks up no name
        return tls_failure(error, broker, self._tls.settings, chain)


class _Early(asyncio.Protocol):
    """Stands in until TLS is there, and notes what is lost in the moment in which it is."""

    is_lost: bool = False
    error: Exception | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Note it."""
        self.is_lost, self.error = True, exc


def _broker(address: Address) -> Broker:
    return Broker(address.name, address.port)
