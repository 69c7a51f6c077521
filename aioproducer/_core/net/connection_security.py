"""Security of the connections of one producer: TLS, and SASL authentication."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Any, Final

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.net.authentication import AuthenticatedConnection, AuthenticationBackoff, Authenticator
from aioproducer._core.net.dial import Dial, MakeProtocol, routes
from aioproducer._core.security.exchange import ExchangeFactory
from aioproducer._core.security.security_settings import SecuritySettings, weaknesses
from aioproducer._core.security.tls import TlsContexts, server_name
from aioproducer._core.security.tls_errors import PeerCertificate, refuses_client, shown_chain, tls_failure
from aioproducer._core.steps import Log
from aioproducer.errors import AuthenticationFailed

log: Final = Log(__name__)


class ConnectionSecurity:
    """TLS and SASL of all connections of a producer. Close this object with the producer."""

    def __init__(self, settings: SecuritySettings, *, backoff: Backoff) -> None:
        """*backoff* is the pause before a failed read of a file, or a failed call of a user callable, is repeated."""
        self.backoff: Final = backoff
        self._limits = LogLimits()
        self._tls = (
            None if settings.tls is None else TlsContexts(settings.tls, backoff=backoff, limits=self._limits)
        )
        self._logins = None if settings.sasl is None else ExchangeFactory(settings.sasl, self._limits)
        self.authentication_backoff: Final = (
            None if self._logins is None else AuthenticationBackoff(self._logins.differ)
        )
        self._warned = False
        for setting, risk in weaknesses(settings):
            log.warning("security.weak setting=%s risk=%r", setting, risk)

    def authenticator(self, connection: AuthenticatedConnection) -> Authenticator | None:
        """Return the authenticator of *connection*; None without SASL."""
        if self._logins is None or self.authentication_backoff is None:
            return None
        exchange = partial(self._logins.exchange, _broker(connection.address))
        return Authenticator(connection, exchange, self.authentication_backoff, self.backoff)

    @property
    def next_login_at(self) -> float:
        """Time of the next authentication after a refusal (loop clock); in the past if no authentication is delayed."""
        return 0.0 if self.authentication_backoff is None else self.authentication_backoff.next_at

    def failed(self, address: Address) -> None:
        """Record that an admitted authentication at *address* ended without a response."""
        if self.authentication_backoff is not None:
            self.authentication_backoff.failed(address)

    async def dial(self, dial: Dial, address: Address, make_protocol: MakeProtocol) -> None:
        """Dial *address*, and connect the protocol made by *make_protocol*, over TLS if TLS is configured.

        Raises: the exceptions of *dial*; AuthenticationFailed or ConnectionFailed if the TLS handshake fails. A
            cancellation leaves no connection open.
        """
        if self.authentication_backoff is not None:
            await self.authentication_backoff.admit(address)
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
        except BaseException:
            transport.abort()  # for example TypeError for a NUL in a host name, before asyncio owns the transport
            raise
        if secured is None or early.is_lost:
            failure = await self._failure(early.error or ConnectionResetError(), address, peer)
            raise failure from early.error
        self._warn_of_common_name(secured, address)
        protocol = make_protocol()
        secured.set_protocol(protocol)
        protocol.connection_made(secured)

    def lost(self, error: Exception | None, address: Address) -> AuthenticationFailed | None:
        """Return the error of a connection that was lost because the broker refused the client certificate; else None.

        Under TLS 1.3 the broker refuses the certificate after the client has completed its handshake.
        """
        if self._tls is None or error is None or not refuses_client(error):
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
        """Cancel the renewal of tokens."""
        if self._logins is not None:
            self._logins.close()
        self._limits.close()

    async def _failure(self, error: Exception, address: Address, peer: Any) -> Exception:
        """Return the error for a failed handshake with *peer*, the result of `getpeername`."""
        assert self._tls is not None, "TLS is not configured"
        broker = _broker(address)
        chain: tuple[PeerCertificate, ...] = ()
        if isinstance(error, ssl.SSLCertVerificationError) and peer and address not in routes:
            chain = await shown_chain(broker, peer[:2])  # a numeric address, so that asyncio resolves no name
        return tls_failure(error, broker, self._tls.settings, chain)


class _Early(asyncio.Protocol):
    """Protocol during the TLS handshake, which records a loss of the transport."""

    is_lost: bool = False
    error: Exception | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the loss of the transport."""
        self.is_lost, self.error = True, exc


def _broker(address: Address) -> Address:
    return Address(address.name, address.port)
