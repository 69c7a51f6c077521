from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import AuthenticationFailed, ConnectionFailed
from tests.unit._core.net.connection_rig import SHORT_S, Outcomes, connected, produce, shorten_request_timeout
from tests.unit._core.net.scripted import ASK, ScriptedBroker

# --- what is held back during a login


async def test_requests_held_back_are_sent_on_resume(broker: ScriptedBroker, outcomes: Outcomes) -> None:
    async with connected(broker) as (connection, peer):
        connection.pause_requests()
        connection.call(ASK, outcomes.of("held"))
        asked = connection.ask(ASK)
        first = await peer.inbox.get()
        peer.send(first.answered_with_id(1))
        assert (await asked).producer_id == 1
        assert peer.inbox.empty()
        connection.resume_requests()
        peer.send((await peer.inbox.get()).answered_with_id(2))
        (held,) = await outcomes.all_of("held")
        assert held.producer_id == 2


async def test_connection_is_one_way_after_an_acks_0_request(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, _):
        connection.call(ASK, lambda _: None)
        assert not connection.is_one_way
        connection.write_only(produce(10))
        assert connection.is_one_way


async def test_drain_waits_while_requests_are_held_back(broker: ScriptedBroker) -> None:
    """Unacknowledged records would otherwise fill the memory."""
    async with connected(broker) as (connection, peer):
        connection.pause_requests()
        connection.write_only(produce(10))
        draining = asyncio.create_task(connection.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        connection.resume_requests()
        await draining
        await peer.inbox.get()
        await connection.drain()


async def test_drain_fails_when_the_connection_is_lost_during_a_login(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, _):
        connection.pause_requests()
        draining = asyncio.create_task(connection.drain())
        await asyncio.sleep(0)
        connection.close(ConnectionFailed("refused"))
        with pytest.raises(ConnectionFailed, match="closed before all requests were written"):
            await draining
        connection.resume_requests()


async def test_retired_connection_closes_after_sending_held_requests(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        connection.pause_requests()
        connection.write_only(produce(10))
        connection.retire()
        assert not connection.socket_closed.done()
        connection.resume_requests()
        await peer.inbox.get()
        await connection.wait_closed()


async def test_held_requests_fail_as_unwritten_when_closed(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, _):
        connection.pause_requests()
        connection.call(ASK, outcomes.of("held"))
        connection.close(AuthenticationFailed("refused"))
        (error,) = await outcomes.errors("held")
        assert isinstance(error, ConnectionFailed)
        assert not error.written
        assert isinstance(error.__cause__, AuthenticationFailed)


async def test_drain_outlasts_the_request_timeout_when_throttled(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, _):
        shorten_request_timeout(connection)
        loop = asyncio.get_running_loop()
        connection.throttled_until = loop.time() + 1000.0
        connection.pause_requests()
        loop.call_later(3 * SHORT_S, connection.resume_requests)
        await connection.drain()
        assert not connection.closed
        assert not connection.is_paused
