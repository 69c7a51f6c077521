"""Proxies deliver requests late, and hold the bytes of a cut link."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random

import pytest

from tests.jepsen.network import CLIENT, COORDINATOR_REQUESTS, PRODUCE_REQUESTS, Network
from tests.kafka.apache.broker import HOST, free_ports

END_TXN, PRODUCE = 26, 0
NODE_ID = 2


class Broker:
    """A server that records every request and echoes the request as its response."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await read(reader)
                self.received.put_nowait(frame)
                writer.write(struct.pack(">i", len(frame)) + frame)
        except (asyncio.IncompleteReadError, OSError):
            writer.transport.abort()


class Stand:
    """A proxy in front of a broker, with its clients."""

    def __init__(self, network: Network, broker: Broker, port: int) -> None:
        self.network = network
        self.broker = broker
        self.port = port
        self.writers: list[asyncio.StreamWriter] = []

    async def send(self, api_key: int, client_id: str = "p0-1") -> asyncio.StreamReader:
        """Send a request on a new connection."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        self.writers.append(writer)
        writer.write(request(api_key, client_id))
        return reader


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    port, broker_port = free_ports(2)
    network, broker = Network(Random(1), lambda *_, **__: None), Broker()
    async with await asyncio.start_server(broker.serve, HOST, broker_port):
        await network.listen(port, NODE_ID, lambda: broker_port)
        stand = Stand(network, broker, port)
        yield stand
        await network.close()
        for writer in stand.writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


def request(api_key: int, client_id: str) -> bytes:
    name = client_id.encode()
    frame = struct.pack(">hhih", api_key, 0, 7, len(name)) + name
    return struct.pack(">i", len(frame)) + frame


async def read(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


async def test_request_and_response_pass(stand: Stand) -> None:
    assert await read(await stand.send(END_TXN)) == request(END_TXN, "p0-1")[4:]


async def test_late_request_arrives_after_the_lost_connection(stand: Stand) -> None:
    stand.network.deliver_late(COORDINATOR_REQUESTS, share=1)
    reader = await stand.send(END_TXN)
    with pytest.raises((asyncio.IncompleteReadError, OSError)):
        await read(reader)
    assert stand.broker.received.empty()
    assert await stand.broker.received.get() == request(END_TXN, "p0-1")[4:]


@pytest.mark.parametrize("sender", ["broker-1-fetcher-0", "AddPartitionsManager-client-3", "1"])
async def test_requests_of_brokers_are_not_late(stand: Stand, sender: str) -> None:
    stand.network.deliver_late({*COORDINATOR_REQUESTS, *PRODUCE_REQUESTS}, share=1)
    assert await read(await stand.send(END_TXN, sender)) == request(END_TXN, sender)[4:]


async def test_other_requests_are_not_late(stand: Stand) -> None:
    stand.network.deliver_late(COORDINATOR_REQUESTS, share=1)
    assert await read(await stand.send(PRODUCE))


@pytest.mark.parametrize(
    ("other", "sender"), [(CLIENT, "p0-1"), (1, "broker-1-fetcher-0"), (3, "raft-client-3")]
)
async def test_cut_link_holds_requests_until_it_is_healed(stand: Stand, other: int, sender: str) -> None:
    stand.network.cut(other, NODE_ID)
    reading = asyncio.create_task(read(await stand.send(PRODUCE, sender)))
    unaffected = "broker-3-fetcher-0" if other != 3 else "broker-1-fetcher-0"
    await read(await stand.send(PRODUCE, unaffected))
    assert not reading.done()
    stand.network.heal(other, NODE_ID)
    assert await reading == request(PRODUCE, sender)[4:]
