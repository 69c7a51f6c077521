"""Where a node listens: the seam between real sockets and memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from aioproducer._core.net.address import Address

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
        """Refuse connections from now on; those that there are stay. The address is held, if it can be."""

    def release(self) -> None:
        """Leave the address of a closed listener to others."""

    async def wait_closed(self) -> None:
        """Wait until *accept* has been called for the last time."""


class TcpListener:
    """A listening socket; port 0 is any free one.

    Not an `asyncio.Server`: one that is closed just when a client connects loses that connection's socket, and
    clients do connect while a broker stops. Here nothing between accepting and the connection can be interrupted.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address: Address = Address(host, port)
        self._accept: Accept
        self._sock: socket.socket | None = None
        self._held: socket.socket | None = None
        self._connecting: set[asyncio.Task[None]] = set()

    async def open(self, accept: Accept) -> None:
        """Listen; the first time tells the port."""
        self._accept = accept
        self.release()
        sock = socket.create_server(self.address, backlog=1024)
        sock.setblocking(False)
        self.address = Address(*sock.getsockname()[:2])
        try:
            asyncio.get_running_loop().add_reader(sock, self._take, sock)
        except BaseException:
            sock.close()
            raise
        self._sock = sock

    def close(self) -> None:
        """Stop listening, but hold the port: clients go on asking there, and would take another server for this node."""
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._sock = None
            with suppress(OSError):  # somebody was quicker; opening will say so
                self._held = _hold(self.address)

    def release(self) -> None:
        """Leave the port to others."""
        if self._held is not None:
            self._held.close()
            self._held = None

    async def wait_closed(self) -> None:
        """Wait for the connections that were accepted last."""
        await asyncio.gather(*self._connecting)

    def _take(self, sock: socket.socket) -> None:
        try:
            conn, _ = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client did not wait
        # As Kafka does. asyncio does so for sockets that know that they are TCP, which accepted ones do not. Without it the
        # last of several answers waits until the client's acknowledgement of those before, which TCP delays by 40 ms.
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.get_running_loop().create_task(self._connect(conn))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, conn: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, self._accept, loop=loop)
        await loop.connect_accepted_socket(lambda: protocol, conn)


def _hold(address: Address) -> socket.socket:
    """Return a socket at *address* that refuses connections, and shares it with nobody. Raises: OSError."""
    held = socket.socket()
    try:
        # Only to bind it, since accepted connections may still be open there: while it is set, others that set it may, too.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        held.close()
        raise
    return held
