"""TLS on the streams of a connection, over sockets and memory transports.

It replaces asyncio's TLS, which closes a failed handshake without the alert that brokers send. Some event loops support
TLS over sockets only.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Final

from aioproducer._core.wire import BytesLike
from aioproducer.testing.listener import READ_BYTES

INTERNAL_ERROR: Final = bytes.fromhex("15 0303 0002 0250")
"""TLS alert; a client that expects Kafka's protocol reads it as a length of 352 MB."""


class TlsStream:
    """Server side of a TLS connection: a reader and a writer."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
    ) -> None:
        self._reader, self._writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: Final = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def handshake(self) -> None:
        """Perform the handshake. Raises: OSError, including ssl.SSLError, after the alert was sent."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if not await self._more():
                        raise ConnectionResetError("the client left during the TLS handshake") from None
        except ssl.SSLError:
            if not self._outgoing.pending:  # OpenSSL sends no alert for bytes that are not TLS; a JVM does
                self._outgoing.write(INTERNAL_ERROR)
            raise
        finally:
            self._flush()
        await self._writer.drain()

    async def read(self, n: int) -> bytes:
        """Return up to *n* bytes, b"" at the end. Raises: OSError."""
        while True:
            try:
                return self._tls.read(n)
            except ssl.SSLWantReadError:
                if not await self._more():
                    return b""
            except ssl.SSLZeroReturnError:
                return b""

    def write(self, data: BytesLike) -> None:
        """Encrypt and write *data*."""
        self._tls.write(data)
        self._flush()

    async def drain(self) -> None:
        """Wait until the write buffer has room."""
        await self._writer.drain()

    def is_closing(self) -> bool:
        """Return True if the connection is closed or closing."""
        return self._writer.is_closing()

    def say_goodbye(self) -> None:
        """Send close_notify, unless the connection is closing."""
        if self._writer.is_closing():
            return  # uvloop treats a write as an error
        with suppress(ssl.SSLError):  # `unwrap` waits for the client's close_notify
            self._tls.unwrap()
        self._flush()

    async def _more(self) -> bool:
        """Send pending bytes, and read bytes of the client; return False at the end of the stream."""
        self._flush()
        data = await self._reader.read(READ_BYTES)
        self._incoming.write(data)
        return bool(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._writer.write(self._outgoing.read())
