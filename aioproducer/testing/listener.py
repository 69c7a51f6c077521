"""The TCP listener of a node."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from aioproducer._core.net.address import Address

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]

READ_BYTES = 256 * 1024
"""Bytes that a node reads at once: several produce requests of usual size."""


class TcpListener:
    """A listening socket; port 0 selects a free port. The address stays the same when it is closed and opened again.

    An `asyncio.Server` that closes while a client connects would leak the socket of that connection, and clients do
    connect while a broker stops. This class cannot be interrupted between accept and the connection.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address: Address = Address(host, port)
        self._accept: Accept
        self._sock: socket.socket | None = None
        self._held: socket.socket | None = None
        self._connecting: set[asyncio.Task[None]] = set()

    async def open(self, accept: Accept) -> None:
        """Call *accept* with each new connection from now on. Raises: OSError."""
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
        """Stop listening and keep the port bound, so that no other server receives this node's clients."""
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._sock = None
            with suppress(OSError):  # another process took the port; `open` then fails
                self._held = _hold(self.address)

    def release(self) -> None:
        """Release the port of a closed listener."""
        if self._held is not None:
            self._held.close()
            self._held = None

    async def wait_closed(self) -> None:
        """Wait until *accept* was called for all accepted connections."""
        await asyncio.gather(*self._connecting)

    def _take(self, sock: socket.socket) -> None:
        try:
            conn, _ = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client has disconnected
        # As in Kafka. asyncio sets it for sockets with proto=IPPROTO_TCP only, which accepted sockets lack. Without it the
        # last of several responses waits for the client's TCP acknowledgement, which is delayed by 40 ms.
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
    """Return a socket that binds *address* exclusively and refuses connections. Raises: OSError."""
    held = socket.socket()
    try:
        # Needed to bind while accepted connections are open; while it is set, other processes that set it can also bind.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        held.close()
        raise
    return held
