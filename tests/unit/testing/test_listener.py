from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from aioproducer.testing.listener import TcpListener
from aioproducer.testing.virtual_time import run
from tests.unit._core.net.streams import Streams

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
