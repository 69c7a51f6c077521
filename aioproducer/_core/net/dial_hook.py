"""The option `dial`: code of the user that connects to a host and port, for example through a proxy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias, cast

if TYPE_CHECKING:
    from aioproducer._core.net.dial import Dial, MakeProtocol

Dialled: TypeAlias = "socket.socket | tuple[asyncio.StreamReader, asyncio.StreamWriter]"
"""A connected socket, or the streams of a connection."""

DialHook: TypeAlias = Callable[[str, int], Awaitable[Dialled]]
"""`dial(host, port)`, a coroutine function."""

_writers: Final[set[asyncio.StreamWriter]] = set()
"""Writers of open connections. Python 3.13 closes the transport of a writer that is garbage."""


def hooked(hook: DialHook) -> Dial:
    """Return a dial that gets its connections from *hook*."""

    async def dial(host: str, port: int, make_protocol: MakeProtocol, /) -> asyncio.Transport:
        dialled: object = await hook(host, port)
        match dialled:
            case socket.socket():
                return await _over_socket(dialled, make_protocol)
            case (asyncio.StreamReader() as reader, asyncio.StreamWriter() as writer):
                return _over_streams(reader, writer, make_protocol)
        raise TypeError(
            f"dial returned {type(dialled).__name__}; return a connected socket, or a pair of StreamReader and"
            " StreamWriter"
        )

    return dial


async def _over_socket(sock: socket.socket, make_protocol: MakeProtocol) -> asyncio.Transport:
    try:
        sock.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(make_protocol, sock=sock)
    except BaseException:
        sock.close()
        raise
    return transport


def _over_streams(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, make_protocol: MakeProtocol
) -> asyncio.Transport:
    """Take over the transport of a pair of streams. No byte is lost: brokers send nothing before the first request."""
    transport = cast("asyncio.Transport", writer.transport)
    if transport.is_closing() or reader.at_eof():
        writer.close()
        raise ConnectionResetError("dial returned streams that are closed")
    if getattr(reader, "_buffer", b""):
        writer.close()
        raise ConnectionError("dial returned streams with unread bytes; read the answer of the proxy in full")
    for each in tuple(_writers):
        if each.transport.is_closing():
            _writers.discard(each)
    _writers.add(writer)
    protocol = make_protocol()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    return transport
