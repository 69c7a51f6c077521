"""A second look at a broker whose certificate was not accepted: what does it show?"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from aioproducer.security.certificate import PeerCertificate, read_certificate
from aioproducer.security.mechanism import Broker
from aioproducer.security.tls import server_name

PATIENCE_S: Final = 5.0


def unverified_context() -> ssl.SSLContext:
    """Return a context that believes anybody. It is for looking only: nothing may be sent through it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def shown_certificate(
    broker: Broker, address: tuple[str, int] | None = None, *, timeout_s: float = PATIENCE_S
) -> PeerCertificate | None:
    """Return the certificate of *broker*, dialled at *address* if that is known; None if none is to be had."""
    host, port = address or broker
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(
                host, port, ssl=unverified_context(), server_hostname=server_name(broker.host)
            )
    except (OSError, ValueError, TimeoutError):
        return None
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return read_certificate(der) if der else None
    except ValueError:
        return None
    finally:
        writer.transport.abort()
