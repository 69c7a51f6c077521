# ruff: noqa: D102, SLF001 - the methods are those of asyncio.Transport, and the two ends share private state
"""Listeners of a node: over TCP, and in memory with two joined transports of one event loop.

In memory, bytes stay within the loop, so connections are deterministic and work in virtual time. Both ends have the flow
control, half-close, resets and `connection_lost` of socket transports.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from aioproducer._core.address import Address
from aioproducer._core.net.dial import AnyProtocol, MakeProtocol, routes

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]

READ_BYTES = 256 * 1024
"""Maximum bytes per read of a node: several produce requests of usual size."""


class TcpListener:
    """A listening socket; port 0 selects a free port. The socket keeps its address when it is closed and reopened.

    An `asyncio.Server` that closes while a client connects would leak the socket of that connection, and clients do
    connect while a broker stops. This class cannot be interrupted between accept and the connection.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address: Address = Address(host, port)
        self._accept: Accept
        self._sock: socket.socket | None = None
        self._reserved: socket.socket | None = None
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
                self._reserved = _reserve(self.address)

    def release(self) -> None:
        """Release the port of a closed listener."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def wait_closed(self) -> None:
        """Wait until *accept* was called for all accepted connections."""
        await asyncio.gather(*self._connecting)

    def _take(self, sock: socket.socket) -> None:
        try:
            conn, _ = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client has disconnected
        # Kafka sets TCP_NODELAY. asyncio sets TCP_NODELAY only with proto=IPPROTO_TCP, which accepted sockets lack.
        # Otherwise the last of several responses waits for the client's TCP acknowledgement, which is delayed by 40 ms.
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.get_running_loop().create_task(self._connect(conn))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, conn: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, self._accept, loop=loop)
        await loop.connect_accepted_socket(lambda: protocol, conn)


def _reserve(address: Address) -> socket.socket:
    """Return a socket that binds *address* exclusively and refuses connections. Raises: OSError."""
    held = socket.socket()
    try:
        # SO_REUSEADDR is needed to bind while accepted connections are open. While SO_REUSEADDR is set, other processes
        # with SO_REUSEADDR can also bind.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        held.close()
        raise
    return held


_ports = itertools.count(9092)
"""Ports distinguish brokers of several clusters, whose host names are equal."""

HIGH_WATER_BYTES = 64 * 1024  # asyncio's own default
PIECE_BYTES = 64 * 1024
"""Largest piece that arrives at once: a reader can pause between two pieces."""


class MemoryListener:
    """A listener within one event loop; bytes need *latency_s* in each direction."""

    def __init__(self, host: str, *, latency_s: float = 0.0) -> None:
        self.address: Address = Address(host, next(_ports))
        self._latency_s = latency_s

    async def open(self, accept: Accept) -> None:
        """Call *accept* with each new connection from now on."""
        loop = asyncio.get_running_loop()

        async def connect(_host: str, _port: int, make_protocol: MakeProtocol, /) -> asyncio.Transport:
            if loop is not asyncio.get_running_loop():
                raise RuntimeError(f"{self.address} is in the memory of another loop; use transport='tcp'")
            return open_pair(accept, self.address, make_protocol(), latency_s=self._latency_s)

        routes[self.address] = connect

    def close(self) -> None:
        """Refuse connections, as a host without a listener on the port.

        The route stays, so that late clients are refused without a DNS lookup; addresses are never reused.
        """
        routes[self.address] = _refuse

    def release(self) -> None:
        """Return: addresses are never reused."""

    async def wait_closed(self) -> None:
        """Return: connections are accepted at once."""


async def _refuse(host: str, port: int, _: MakeProtocol, /) -> asyncio.Transport:
    raise ConnectionRefusedError(f"nothing listens on {host}:{port}")


def open_pair(
    accept: Accept, address: Address, client_protocol: AnyProtocol, *, latency_s: float = 0.0
) -> MemoryTransport:
    """Return the client's end of a new connection; call *accept* with the streams of the server's end."""
    loop = asyncio.get_running_loop()
    server_reader = asyncio.StreamReader(loop=loop)
    server_protocol = asyncio.StreamReaderProtocol(server_reader, accept, loop=loop)
    client = MemoryTransport(loop, client_protocol, latency_s, peername=address)
    server = MemoryTransport(loop, server_protocol, latency_s, sockname=address)
    client.join(server)
    server_protocol.connection_made(server)
    client_protocol.connection_made(client)
    return client


class MemoryTransport(asyncio.Transport):
    """One end of a connection. The transport keeps written bytes until the other end reads, at least for *latency_s*."""

    _start_tls_compatible = True  # `loop.start_tls` requires this attribute

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: AnyProtocol,
        latency_s: float = 0.0,
        **extra: Address,
    ) -> None:
        super().__init__(extra)
        self._loop = loop
        self._protocol = protocol
        self._latency_s = latency_s
        self._outgoing: deque[bytes] = deque()
        self._outgoing_bytes = 0
        self._delivery: asyncio.Handle | None = None
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._reading = True
        self._closing = False
        self._eof_written = False
        self._lost = False

    def join(self, peer: MemoryTransport) -> None:
        """Make *peer* the other end of the connection."""
        self._peer, peer._peer = peer, self

    def receive(self, data: bytes) -> None:
        """Pass *data* of the other end to the protocol."""
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(data)
            return
        while data:
            buffer = memoryview(self._protocol.get_buffer(len(data)))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        chunk = bytes(data)  # the caller may reuse a mutable buffer once write() has returned
        self._outgoing.extend(chunk[at : at + PIECE_BYTES] for at in range(0, len(chunk), PIECE_BYTES))
        self._outgoing_bytes += len(chunk)
        self._deliver_soon()
        if self._outgoing_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._eof_written:
            self._eof_written = True
            self._deliver_soon()

    def close(self) -> None:
        """Close after all written bytes are delivered."""
        if not self._closing:
            self._closing = True
            self._deliver_soon()

    def abort(self) -> None:
        """Close now, drop undelivered bytes, and reset the other end."""
        self._force_close(None)

    def _force_close(self, exc: Exception | None) -> None:
        """Abort with the cause for the protocol; `asyncio.sslproto` calls it when a handshake fails."""
        self._lose(exc)
        self._peer._lose(ConnectionResetError("connection reset by peer"))

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._peer._deliver_soon()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_write_buffer_size(self) -> int:
        return self._outgoing_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def _deliver_soon(self) -> None:
        if self._delivery is not None or self._lost:
            return
        if self._latency_s:
            self._delivery = self._loop.call_later(self._latency_s, self._deliver)
        else:
            self._delivery = self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Deliver bytes while the other end reads, then the end of the stream."""
        self._delivery = None
        if self._lost:
            return
        peer = self._peer
        if peer._closing and self._outgoing:
            self._lose(BrokenPipeError("the other end is closed"))
            return
        while self._outgoing and peer.is_reading():
            chunk = self._outgoing.popleft()
            self._outgoing_bytes -= len(chunk)
            peer.receive(chunk)
        if self._writing_paused and self._outgoing_bytes <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        if not self._outgoing and (self._closing or self._eof_written):
            peer._end_of_stream()
            if self._closing:
                self._lose(None)

    def _end_of_stream(self) -> None:
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def _lose(self, cause: Exception | None) -> None:
        self._closing = True
        if not self._lost:
            self._lost = True
            self._outgoing.clear()
            self._outgoing_bytes = 0
            self._loop.call_soon(self._protocol.connection_lost, cause)
            self._peer._deliver_soon()  # its bytes can no longer be delivered
