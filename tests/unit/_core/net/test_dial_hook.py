from __future__ import annotations

import asyncio
import gc
import socket
from typing import Any

import pytest

from aioproducer._core.net.dial_hook import hooked


class Listener(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.received = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.set_result(data)


@pytest.mark.parametrize("kind", ["socket", "blocking socket", "streams"])
async def test_hook_gives_a_connection(kind: str) -> None:
    ours, theirs = socket.socketpair()
    with theirs:

        async def hook(host: str, port: int) -> Any:
            assert (host, port) == ("broker-1", 9092)
            ours.setblocking(kind == "blocking socket")
            return ours if "socket" in kind else await asyncio.open_connection(sock=ours)

        listener = Listener()
        transport = await hooked(hook)("broker-1", 9092, lambda: listener)
        assert listener.transport is transport
        gc.collect()  # Python 3.13 closes the transport of a writer that is garbage
        theirs.sendall(b"answer")
        assert await asyncio.wait_for(listener.received, 5) == b"answer"
        transport.write(b"request")
        assert theirs.recv(100) == b"request"
        transport.close()
        await asyncio.sleep(0)


async def test_closed_streams_are_refused() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()

    async def hook(host: str, port: int) -> Any:
        streams = await asyncio.open_connection(sock=ours)
        await streams[0].read()
        return streams

    with pytest.raises(ConnectionResetError, match="closed"):
        await hooked(hook)("broker-1", 9092, Listener)
    await asyncio.sleep(0)


@pytest.mark.parametrize("result", [None, 1, ("a", "b"), ()])
async def test_other_results_are_refused(result: object) -> None:
    async def hook(host: str, port: int) -> Any:
        return result

    with pytest.raises(TypeError, match="return a connected socket"):
        await hooked(hook)("broker-1", 9092, Listener)
