from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NamedTuple

import pytest

from aioproducer._core.address import Address
from aioproducer._core.net.dial import routes
from aioproducer.testing import Cluster, in_virtual_time
from aioproducer.testing.listener import HIGH_WATER_BYTES, MemoryListener, TcpListener, open_pair
from aioproducer.testing.virtual_time import run
from tests.unit._core.net.streams import Connect, Streams, dial_streams, streams_over

LOOPBACK = "127.0.0.1"


async def connected() -> tuple[TcpListener, Streams, Streams]:
    """Return an open listener, and both ends of a connection to it."""
    accepted: asyncio.Queue[Streams] = asyncio.Queue()
    listener = TcpListener(LOOPBACK, 0)
    await listener.open(lambda *streams: accepted.put_nowait(streams))
    client = await asyncio.open_connection(*listener.address)
    return listener, client, await accepted.get()


async def close(*streams: Streams) -> None:
    for _, writer in streams:
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_listener_reopens_at_the_same_port() -> None:
    accepted: asyncio.Queue[Streams] = asyncio.Queue()
    listener = TcpListener(LOOPBACK, 0)
    await listener.open(lambda *streams: accepted.put_nowait(streams))
    address = listener.address
    first = await asyncio.open_connection(*address)
    await close(first, await accepted.get())
    listener.close()
    await listener.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)
    await listener.open(lambda *streams: accepted.put_nowait(streams))
    assert listener.address == address
    second = await asyncio.open_connection(*address)
    await close(second, await accepted.get())
    listener.close()
    listener.release()


async def test_port_stays_reserved_until_release() -> None:
    listener, client, served = await connected()  # a connection that is still open hinders nothing
    listener.close()
    with pytest.raises(OSError, match="in use"):
        socket.create_server(listener.address)
    listener.release()
    socket.create_server(listener.address).close()
    await close(client, served)


async def test_open_fails_when_another_process_has_the_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = TcpListener(LOOPBACK, 0)
    await listener.open(lambda _reader, _writer: None)

    def taken(_sock: socket.socket, _address: object) -> None:
        raise OSError(errno.EADDRINUSE, "in use")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", type("Taken", (socket.socket,), {"bind": taken}))
        listener.close()
    with socket.create_server(listener.address), pytest.raises(OSError, match="in use"):
        await listener.open(lambda _reader, _writer: None)
    listener.release()


async def test_small_answers_do_not_wait_for_each_other_on_the_way() -> None:
    listener, client, served = await connected()
    _, writer = served
    sock = writer.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await close(client, served)
    listener.close()
    listener.release()


async def test_accepted_connection_survives_close() -> None:
    accepted: list[Streams] = []
    listener = TcpListener(LOOPBACK, 0)
    await listener.open(lambda *streams: accepted.append(streams))
    with socket.create_connection(listener.address):
        assert listener._sock is not None
        listener._take(listener._sock)
        listener.close()
        assert accepted == []
        await listener.wait_closed()
        assert len(accepted) == 1
    await close(*accepted)
    listener.release()


async def test_client_that_leaves_early_is_ignored() -> None:
    listener = TcpListener(LOOPBACK, 0)
    await listener.open(lambda _reader, _writer: None)
    assert listener._sock is not None
    listener._take(listener._sock)
    listener.close()
    listener.close()
    await listener.wait_closed()
    listener.release()
    listener.release()


async def test_port_that_is_taken_is_an_error() -> None:
    with socket.create_server((LOOPBACK, 0)) as sock:
        listener = TcpListener(LOOPBACK, sock.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await listener.open(lambda _reader, _writer: None)


def test_loop_that_cannot_wait_for_sockets_is_left_without_one() -> None:
    listener = TcpListener(LOOPBACK, 0)
    with pytest.raises(RuntimeError, match="transport='memory'"):
        run(listener.open(lambda _reader, _writer: None))


ADDRESS = Address("broker-1.memory", 1)


class Ends(NamedTuple):
    """Both ends of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    peer_reader: asyncio.StreamReader
    peer_writer: asyncio.StreamWriter


def open_accepted(accepted: list[Streams], *, latency_s: float = 0.0) -> Connect:
    """Return what opens a pair, and puts the streams of the server's end on the list."""

    async def connect(protocol: asyncio.Protocol) -> asyncio.Transport:
        return open_pair(lambda *streams: accepted.append(streams), ADDRESS, protocol, latency_s=latency_s)

    return connect


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    accepted: list[Streams] = []
    reader, writer = await streams_over(open_accepted(accepted))
    [(peer_reader, peer_writer)] = accepted
    yield Ends(reader, writer, peer_reader, peer_writer)
    for each in (writer, peer_writer):
        each.transport.abort()
    await asyncio.gather(writer.wait_closed(), peer_writer.wait_closed(), return_exceptions=True)


async def test_bytes_arrive_in_order_both_ways(ends: Ends) -> None:
    ends.writer.write(b"one ")
    ends.writer.writelines([b"two ", bytearray(b"three")])
    ends.peer_writer.write(b"answer")
    assert await ends.peer_reader.readexactly(13) == b"one two three"
    assert await ends.reader.readexactly(6) == b"answer"


class Sips(asyncio.BufferedProtocol):
    """Buffered protocol with a tiny buffer."""

    def __init__(self) -> None:
        self.heard = b""
        self.full = asyncio.Event()
        self._spoon = bytearray(3)

    def get_buffer(self, sizehint: int) -> bytearray:
        assert sizehint > 0
        return self._spoon

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self._spoon[:nbytes]
        if self.heard.endswith(b"."):
            self.full.set()


async def test_buffered_protocol_receives_bytes_in_order() -> None:
    accepted: list[Streams] = []
    sips = Sips()
    transport = open_pair(lambda *streams: accepted.append(streams), ADDRESS, sips)
    [(_, peer_writer)] = accepted
    peer_writer.write(b"More than a spoonful.")
    await sips.full.wait()
    assert sips.heard == b"More than a spoonful."
    transport.abort()
    await asyncio.gather(peer_writer.wait_closed(), return_exceptions=True)


async def test_writes_arrive_in_the_next_iteration_of_the_loop(ends: Ends) -> None:
    ends.writer.write(b"late")
    assert ends.writer.transport.get_write_buffer_size() == 4
    assert await ends.peer_reader.read(4) == b"late"
    assert ends.writer.transport.get_write_buffer_size() == 0


async def test_buffer_may_be_reused_after_the_write(ends: Ends) -> None:
    buffer = bytearray(b"before")
    ends.writer.write(buffer)
    ends.writer.write(memoryview(buffer)[:3])
    buffer[:] = b"after!"
    assert await ends.peer_reader.readexactly(9) == b"beforebef"


async def test_closing_delivers_what_was_written_and_then_the_end(ends: Ends) -> None:
    ends.writer.write(b"last words")
    ends.writer.close()
    assert ends.writer.is_closing()
    await ends.writer.wait_closed()
    assert await ends.peer_reader.read() == b"last words"


async def test_write_after_close_is_dropped(ends: Ends) -> None:
    ends.writer.close()
    ends.writer.write(b"too late")
    ends.writer.write(b"")
    assert await ends.peer_reader.read() == b""


async def test_other_direction_outlives_write_eof(ends: Ends) -> None:
    assert ends.writer.can_write_eof()
    ends.writer.write(b"question")
    ends.writer.write_eof()
    ends.writer.write_eof()
    assert await ends.peer_reader.read() == b"question"
    ends.peer_writer.write(b"answer")
    assert await ends.reader.readexactly(6) == b"answer"
    with pytest.raises(RuntimeError, match="write_eof"):
        ends.writer.write(b"more")


async def test_abort_is_a_reset_at_the_other_end(ends: Ends) -> None:
    ends.writer.write(b"never arrives")
    ends.writer.transport.abort()
    await ends.writer.wait_closed()
    with pytest.raises(ConnectionResetError):
        await ends.peer_reader.read()
    with pytest.raises(ConnectionResetError):
        await ends.peer_writer.wait_closed()


async def test_aborting_twice_is_aborting_once(ends: Ends) -> None:
    ends.writer.transport.abort()
    ends.writer.transport.abort()
    ends.writer.close()
    await ends.writer.wait_closed()


async def test_writing_to_an_end_that_is_closed_breaks_the_pipe(ends: Ends) -> None:
    ends.peer_writer.close()
    assert await ends.reader.read() == b""
    ends.writer.write(b"anybody there?")
    with pytest.raises(BrokenPipeError):
        await ends.writer.wait_closed()


async def test_both_ends_may_close_at_once(ends: Ends) -> None:
    ends.writer.close()
    ends.peer_writer.close()
    await asyncio.gather(ends.writer.wait_closed(), ends.peer_writer.wait_closed())


async def test_waiting_end_is_released_when_peer_closes(ends: Ends) -> None:
    ends.writer.write(bytes(10 * HIGH_WATER_BYTES))
    ends.writer.close()
    await ends.peer_reader.readexactly(1)
    ends.peer_writer.close()
    await ends.peer_writer.wait_closed()
    with pytest.raises(BrokenPipeError):
        await ends.writer.wait_closed()


async def test_drain_waits_until_the_reader_has_read_enough(ends: Ends) -> None:
    sent = bytes(10 * HIGH_WATER_BYTES)
    ends.writer.write(sent)
    draining = asyncio.create_task(ends.writer.drain())
    await ends.peer_reader.readexactly(1)
    assert ends.writer.transport.get_write_buffer_size() > HIGH_WATER_BYTES
    assert not draining.done()
    await ends.peer_reader.readexactly(len(sent) - 1)
    await draining


async def test_water_marks_can_be_set(ends: Ends) -> None:
    transport = ends.writer.transport
    assert transport.get_write_buffer_limits() == (HIGH_WATER_BYTES // 4, HIGH_WATER_BYTES)
    transport.set_write_buffer_limits(high=100)
    assert transport.get_write_buffer_limits() == (25, 100)
    transport.set_write_buffer_limits(high=100, low=1)
    assert transport.get_write_buffer_limits() == (1, 100)
    transport.set_write_buffer_limits()
    assert transport.get_write_buffer_limits() == (HIGH_WATER_BYTES // 4, HIGH_WATER_BYTES)


async def test_both_ends_have_the_address(ends: Ends) -> None:
    assert ends.writer.get_extra_info("peername") == ADDRESS
    assert ends.peer_writer.get_extra_info("sockname") == ADDRESS
    assert ends.writer.get_extra_info("socket") is None
    assert isinstance(ends.writer.transport.get_protocol(), asyncio.StreamReaderProtocol)


async def test_protocol_without_half_close_is_closed(ends: Ends) -> None:
    protocol = ends.peer_writer.transport.get_protocol()
    assert isinstance(protocol, asyncio.StreamReaderProtocol)
    protocol.eof_received = lambda: False  # type: ignore[method-assign]
    ends.writer.close()
    await ends.peer_writer.wait_closed()
    assert ends.peer_writer.is_closing()


async def test_listener_is_found_by_dial_until_it_is_closed() -> None:
    accepted: list[Streams] = []
    listener = MemoryListener("broker-7.memory")
    await listener.open(lambda *streams: accepted.append(streams))
    _, writer = await dial_streams(*listener.address)
    assert len(accepted) == 1
    listener.close()
    await listener.wait_closed()
    with pytest.raises(ConnectionRefusedError, match="broker-7"):
        await dial_streams(*listener.address)
    for each in (writer, accepted[0][1]):
        each.close()
        await each.wait_closed()


async def test_closed_listener_opens_again_at_its_address() -> None:
    listener = MemoryListener("broker-1.memory")
    address = listener.address
    await listener.open(lambda _reader, writer: writer.close())
    listener.close()
    await listener.open(lambda _reader, writer: writer.close())
    reader, writer = await dial_streams(*address)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    listener.close()


async def test_two_listeners_of_one_name_have_two_addresses() -> None:
    assert MemoryListener("broker-1.memory").address != MemoryListener("broker-1.memory").address


def test_listener_of_another_loop_is_not_reached_by_accident() -> None:
    listener = MemoryListener("broker-1.memory")
    asyncio.run(listener.open(lambda _reader, _writer: None))
    with pytest.raises(RuntimeError, match="transport='tcp'"):
        asyncio.run(_connect(listener.address))
    listener.close()
    assert listener.address in routes


async def _connect(address: Address) -> None:
    await dial_streams(*address)


@in_virtual_time
async def test_bytes_take_their_time_both_ways_and_stay_in_order() -> None:
    accepted: list[Streams] = []
    reader, writer = await streams_over(open_accepted(accepted, latency_s=0.02))
    [(peer_reader, peer_writer)] = accepted
    loop = asyncio.get_running_loop()
    writer.write(b"first ")
    writer.write(b"second")
    assert writer.transport.get_write_buffer_size() == 12
    assert await peer_reader.readexactly(12) == b"first second"
    assert loop.time() == 0.02
    peer_writer.write(b"answer")
    peer_writer.close()
    assert await reader.read() == b"answer"
    assert loop.time() == 0.04
    writer.close()
    await asyncio.gather(writer.wait_closed(), peer_writer.wait_closed())


@in_virtual_time
async def test_reset_drops_delayed_bytes() -> None:
    accepted: list[Streams] = []
    _, writer = await streams_over(open_accepted(accepted, latency_s=0.02))
    [(peer_reader, peer_writer)] = accepted
    writer.write(b"lost")
    writer.transport.abort()
    with pytest.raises(ConnectionResetError):
        await peer_reader.read()
    await asyncio.gather(writer.wait_closed(), peer_writer.wait_closed(), return_exceptions=True)


def tls_of(ends: Ends) -> Coroutine[Any, Any, None]:
    cluster = Cluster(security_protocol="SSL")
    server = cluster._security.context
    assert server is not None
    client = ssl.create_default_context(cadata=cluster.ca_pem)

    async def shake() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ends.peer_writer.start_tls(server))
            group.create_task(ends.writer.start_tls(client, server_hostname=ADDRESS.host))

    return shake()


async def test_tls_works_over_the_transport(ends: Ends) -> None:
    await tls_of(ends)
    data = b"x" * (3 * HIGH_WATER_BYTES)
    ends.writer.write(data)
    assert await ends.peer_reader.readexactly(len(data)) == data
    ends.peer_writer.write(data)
    assert await ends.reader.readexactly(len(data)) == data


async def test_abort_under_tls_is_a_reset_at_the_other_end(ends: Ends) -> None:
    await tls_of(ends)
    ends.writer.transport.abort()
    await ends.writer.wait_closed()
    with pytest.raises(ConnectionResetError):
        await ends.peer_reader.read()


async def test_failed_handshake_raises_its_reason(ends: Ends) -> None:
    ends.peer_writer.write(b"no TLS at all")
    with pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
        await ends.writer.start_tls(ssl.create_default_context(), server_hostname=ADDRESS.host)
    with pytest.raises(ConnectionResetError):
        await ends.peer_writer.wait_closed()
