"""The connection as a StreamReader, with a StreamWriter: flow control and the ends of a transport."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import ConnectionFailed
from tests.unit._core.net.connection_rig import connected, produce
from tests.unit._core.net.scripted import ASK, ScriptedBroker


async def test_transport_feeds_the_connection(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        assert isinstance(connection, asyncio.StreamReader)
        assert isinstance(connection._transport.get_protocol(), asyncio.StreamReaderProtocol)
        asking = asyncio.create_task(connection.request(ASK))
        peer.send((await peer.inbox.get()).answered_with_id(7))
        assert (await asking).producer_id == 7


@pytest.mark.parametrize("error", [None, ConnectionResetError(), TimeoutError(), LookupError("a bug")])
async def test_drain_raises_connection_failed_for_every_loss(
    error: Exception | None, broker: ScriptedBroker
) -> None:
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        peer.freeze()
        connection.write_only(produce(8_000_000))
        draining = [asyncio.create_task(connection.drain()) for _ in range(2)]
        await asyncio.sleep(0)
        connection._transport._force_close(error)  # type: ignore[attr-defined]  # as asyncio.sslproto does
        for each in draining:
            with pytest.raises(ConnectionFailed, match="closed before all requests were written"):
                await each


async def test_drain_fails_after_an_abort_before_its_report(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, _):
        connection._transport.abort()
        with pytest.raises(ConnectionFailed, match="closed before all requests were written"):
            await connection.drain()


async def test_cancelled_drain_leaves_the_other_one(broker: ScriptedBroker) -> None:
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        connection.write_only(produce(8_000_000))
        cancelled, other = [asyncio.create_task(connection.drain()) for _ in range(2)]
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await other
        await peer.inbox.get()


async def test_cancelled_wait_closed_leaves_the_other_one(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, _):
        cancelled, other = [asyncio.create_task(connection.wait_closed()) for _ in range(2)]
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        connection.close()
        await other
