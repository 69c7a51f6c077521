"""Owner, recording dial and connect helper for tests of the pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aioproducer._core.address import Address
from aioproducer._core.metrics import Metrics
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.net.dial import Dial, MakeProtocol, dial
from aioproducer._core.net.pool import Pool
from aioproducer.errors import ProducerError
from tests.unit._core.net.scripted import Peer, ScriptedBroker, settings

NODE = 7
LONG_S = 1000.0
"""So long that a test would time out if it had to wait for it."""


class Reports:
    """Notifications of the pool in order: a node id and True, or a node id and its error."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[int, ProducerError | bool | None]] = asyncio.Queue()

    def connected(self, node_id: int) -> None:
        self._queue.put_nowait((node_id, True))

    def disconnected(self, node_id: int, error: ProducerError | None) -> None:
        self._queue.put_nowait((node_id, error))

    async def expect_connected(self, node_id: int = NODE) -> None:
        assert await self._queue.get() == (node_id, True)

    async def next_connected(self) -> int:
        node_id, told = await self._queue.get()
        assert told is True
        return node_id

    async def expect_disconnected(self, node_id: int = NODE) -> ProducerError | None:
        told, error = await self._queue.get()
        assert told == node_id
        assert error is None or isinstance(error, ProducerError)
        return error

    def expect_nothing_else(self) -> None:
        assert self._queue.empty()


@asynccontextmanager
async def pool_of(
    reports: Reports,
    *,
    dial: Dial = dial,
    config: ConnectionSettings | None = None,
    metrics: Metrics | None = None,
) -> AsyncIterator[Pool]:
    pool = Pool(
        settings() if config is None else config,
        on_connected=reports.connected,
        on_disconnected=reports.disconnected,
        metrics=metrics or Metrics(asyncio.get_running_loop().time),
        dial=dial,
    )
    try:
        yield pool
    finally:
        await pool.close()


class Dialled:
    """Dial that records the addresses, and raises, hangs or connects on request."""

    def __init__(self, *errors: BaseException) -> None:
        self.addresses: list[Address] = []
        self.cancelled: list[Address] = []
        self.errors = list(errors)
        self.hanging = False
        self.hangs = asyncio.Event()

    async def __call__(self, host: str, port: int, make_protocol: MakeProtocol, /) -> asyncio.Transport:
        self.addresses.append(Address(host, port))
        if self.errors:
            raise self.errors.pop(0)
        if not self.hanging:
            return await dial(host, port, make_protocol)
        self.hangs.set()
        try:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self.cancelled.append(Address(host, port))
            raise


async def connect(pool: Pool, reports: Reports, broker: ScriptedBroker, node_id: int = NODE) -> Peer:
    pool.connect_soon(node_id, broker.address)
    await reports.expect_connected(node_id)
    return await broker.accepted.get()


def usable(pool: Pool, node_id: int = NODE) -> Connection:
    connection = pool.get(node_id)
    assert connection is not None
    return connection
