"""A cluster of three brokers behind TCP proxies, which cut links and deliver requests late."""

from __future__ import annotations

import asyncio
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final

from tests.kafka.apache.broker import HOST, ApacheKafka, free_ports

CLIENT: Final = 0
"""Stands for every client in a link; brokers have their node ids."""
BROKERS: Final = (1, 2, 3)
COORDINATOR_REQUESTS: Final = frozenset({22, 24, 25, 26})
"""API keys of InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""
PRODUCE_REQUESTS: Final = frozenset({0})

_LENGTH: Final = struct.Struct(">i")
_CLIENT_ID_AT: Final = 8
_BROKER_CLIENT: Final = re.compile(r"(?:broker-|raft-client-|AddPartitionsManager-client-|^)(\d+)\b")


class Network:
    """The proxies. A proxy takes the sender of a connection from the client id of its first request."""

    def __init__(self, random: Random, record: Callable[..., object]) -> None:
        self._random = random
        self._record = record
        self._late: Collection[int] = ()
        self._late_share = 0.0
        self._open: dict[frozenset[int], asyncio.Event] = defaultdict(_set_event)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._servers: list[asyncio.Server] = []

    async def listen(self, port: int, node_id: int, target: Callable[[], int]) -> None:
        """Accept connections to broker *node_id* on *port*, and forward the connections to the port *target()*."""

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._spawn(self._serve(reader, writer, node_id, target()))

        self._servers.append(await asyncio.start_server(accept, HOST, port))

    async def close(self) -> None:
        """Close all listeners and connections."""
        for server in self._servers:
            server.close()
        for task in (tasks := [*self._tasks]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self, one: int, other: int) -> None:
        """Hold all bytes between two nodes in both directions, as TCP does while packets are lost."""
        self._open[frozenset({one, other})].clear()

    def heal(self, one: int, other: int) -> None:
        """Deliver the held bytes, and all later bytes."""
        self._open[frozenset({one, other})].set()

    def deliver_late(self, api_keys: Collection[int], share: float = 0.0) -> None:
        """Close the connection at a *share* of the clients' requests with *api_keys*, and deliver these requests later.

        The client's retry then overtakes the first request.
        """
        self._late, self._late_share = api_keys, share

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node_id: int, port: int
    ) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._forward(reader, writer, node_id, port)
        finally:
            await _closed(writer)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node_id: int, port: int
    ) -> None:
        """Forward requests until a side closes, or a request is late."""
        frame = await _frame(reader)
        sender = self._sender(frame)
        link = self._open[frozenset({sender, node_id})]
        broker_reader, broker_writer = await asyncio.open_connection(HOST, port)
        answers = asyncio.create_task(_copy(broker_reader, writer, link))
        try:
            while not (sender == CLIENT and self._is_late(frame)):
                await link.wait()
                broker_writer.write(_LENGTH.pack(len(frame)) + frame)
                await broker_writer.drain()
                frame = await _frame(reader)
            delay_s = self._random.uniform(0.02, 1)
            self._record("late request", api_key=frame[1], to=node_id, delay_s=round(delay_s, 3))
            self._spawn(_deliver(frame, port, delay_s))
        finally:
            answers.cancel()
            await asyncio.wait([answers])
            await _closed(broker_writer, flush=True)

    def _sender(self, frame: bytes) -> int:
        (length,) = struct.unpack_from(">h", frame, _CLIENT_ID_AT)
        client_id = frame[_CLIENT_ID_AT + 2 :][: max(0, length)].decode()
        broker = _BROKER_CLIENT.search(client_id)
        return int(broker[1]) if broker is not None else CLIENT

    def _is_late(self, frame: bytes) -> bool:
        (api_key,) = struct.unpack_from(">h", frame)
        return api_key in self._late and self._random.random() < self._late_share


class ProxiedKafka(ApacheKafka):
    """Three brokers that clients and brokers reach through a Network."""

    def __init__(self, network: Network, transaction_version: int) -> None:
        *ports, self._controller_proxy = free_ports(2 * len(BROKERS) + 1)
        self._network = network
        self._proxies = dict(zip(BROKERS, ports[len(BROKERS) :], strict=True))
        super().__init__(
            brokers=len(BROKERS),
            ports=dict(zip(BROKERS, ports, strict=False)),
            properties={
                "auto.create.topics.enable": "false",
                "broker.session.timeout.ms": 3_000,
                "broker.heartbeat.interval.ms": 300,
                "replica.lag.time.max.ms": 3_000,
                "replica.socket.timeout.ms": 3_000,
                "request.timeout.ms": 3_000,
                "controller.socket.timeout.ms": 3_000,
                "initial.broker.registration.timeout.ms": 110_000,  # a busy machine starts brokers slowly
            },
            transaction_version=transaction_version,
            start_timeout_s=120,
        )

    async def open(self) -> None:
        """Start the proxies and the brokers."""
        for node_id, port in self._proxies.items():
            await self._network.listen(port, node_id, lambda node_id=node_id: self.port(node_id))  # type: ignore[misc]
        await self._network.listen(self._controller_proxy, 1, lambda: self._controller_port)
        await asyncio.to_thread(self.start)

    @property
    def proxied_servers(self) -> str:
        """Bootstrap servers for clients under test."""
        return ",".join(f"{HOST}:{port}" for port in self._proxies.values())

    def _properties_of(self, node_id: int) -> dict[str, str | int]:
        controller = f"{HOST}:{self._controller_proxy}"
        advertised = f"PLAINTEXT://{HOST}:{self._proxies[node_id]}"
        return super()._properties_of(node_id) | {
            "advertised.listeners": f"{advertised},CONTROLLER://{controller}" if node_id == 1 else advertised,
            "controller.quorum.bootstrap.servers": controller,
        }


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: asyncio.Event) -> None:
    """Forward responses until a side closes; then close the client's connection."""
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            await link.wait()
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


async def _deliver(frame: bytes, port: int, delay_s: float) -> None:
    """Deliver one request on a separate connection, and drop the response."""
    await asyncio.sleep(delay_s)
    with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(_LENGTH.pack(len(frame)) + frame)
                await _frame(reader)
            finally:
                await _closed(writer)


async def _closed(writer: asyncio.StreamWriter, *, flush: bool = False) -> None:
    """Close a connection. *flush* sends the buffered bytes first."""
    if flush:
        writer.close()
    else:
        writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)
