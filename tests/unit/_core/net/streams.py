"""asyncio's streams on top of `dial`, for tests that read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aioproducer._core.net.dial import dial

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect: TypeAlias = Callable[[asyncio.Protocol], Awaitable[asyncio.Transport]]


async def streams_over(connect: Connect) -> Streams:
    """Return the streams of the transport that *connect* opens."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = await connect(protocol)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def dial_streams(host: str, port: int) -> Streams:
    """Dial, and return streams."""
    return await streams_over(lambda protocol: dial(host, port, lambda: protocol))
