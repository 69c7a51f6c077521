"""TLS on top of a connection's streams, whatever is beneath them: a socket, or memory.

By hand, and not by asyncio: that closes a failed handshake without the alert by which a broker says what it did not
like, and not every event loop does it over another transport than a socket's.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Final

from aioproducer._core.wire import BytesLike
from aioproducer.testing.listener import READ_BYTES

INTERNAL_ERROR: Final = bytes.fromhex("15 0303 0002 0250")
"""An alert. A client that expects Kafka's protocol reads a length of 352 MB."""


class TlsStream:
    """The server's side of one connection: a reader and a writer."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
    ) -> None:
        self._reader, self._writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: Final = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def handshake(self) -> None:
        """Agree on keys. Raises: OSError, ssl.SSLError among them; the client has been told then."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if not await self._more():
                        raise ConnectionResetError("the client left during the TLS handshake") from None
        except ssl.SSLError:
            if not self._outgoing.pending:  # OpenSSL does not answer what is no TLS at all; a JVM does
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
        """Encrypt and write."""
        self._tls.write(data)
        self._flush()

    async def drain(self) -> None:
        """Wait until it is worth writing more."""
        await self._writer.drain()

    def is_closing(self) -> bool:
        """Whether the connection below is closed, or being so."""
        return self._writer.is_closing()

    def say_goodbye(self) -> None:
        """Tell the client that nothing more will come, if it can still hear it."""
        if self._writer.is_closing():
            return  # which uvloop takes for an error
        with suppress(ssl.SSLError):  # which wants to read the client's goodbye
            self._tls.unwrap()
        self._flush()

    async def _more(self) -> bool:
        """Feed what the client has sent, after what we have for it; False at the end."""
        self._flush()
        data = await self._reader.read(READ_BYTES)
        self._incoming.write(data)
        return bool(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._writer.write(self._outgoing.read())
