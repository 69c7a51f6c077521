"""Where a node listens: the seam between real sockets and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from aioproducer.net.dial import Address

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]

READ_BYTES = 256 * 1024
"""What a node reads at once; several produce requests of usual size."""


class Listener(Protocol):
    """Accepts connections at an address that stays the same when it is closed and opened again."""

    @property
    def address(self) -> Address:
        """Where; known once it was open."""

    async def open(self, accept: Accept) -> None:
        """Call *accept* with each new connection from now on. Raises: OSError."""

    def close(self) -> None:
        """Refuse connections from now on; those there are stay."""

    async def wait_closed(self) -> None:
        """Wait until it has let go of its resources; its connections have to be closed before."""


class TcpListener:
    """A socket on the loopback interface; port 0 is any free one."""

    def __init__(self, host: str, port: int) -> None:
        self.address = Address(host, port)
        self._server: asyncio.Server | None = None

    async def open(self, accept: Accept) -> None:
        """Listen; the first time tells the port."""
        self._server = await asyncio.start_server(accept, *self.address, limit=READ_BYTES)
        host, port, *_ = self._server.sockets[0].getsockname()
        self.address = Address(host, port)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        if self._server is not None:
            await self._server.wait_closed()
