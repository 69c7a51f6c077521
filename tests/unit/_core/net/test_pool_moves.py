from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.net import pool as pool_module
from aioproducer._core.net.opening import open_connection
from aioproducer._core.net.pool import ConnectionCache, Pool
from aioproducer.errors import ConnectionFailed
from tests.unit._core.net.pool_rig import LONG_S, NODE, Dialled, Reports, connect, pool_of, usable
from tests.unit._core.net.scripted import ASK, ScriptedBroker, settings


async def test_follow_moves_a_connected_node_at_once(reports: Reports) -> None:
    async with ScriptedBroker() as old, ScriptedBroker() as new, pool_of(reports) as pool:
        pool.follow({NODE: old.address})
        old_peer = await connect(pool, reports, old)
        pool.follow({NODE: new.address})
        assert await reports.expect_disconnected() is None
        await reports.expect_connected()
        assert usable(pool).address == new.address
        await old_peer.gone.wait()


async def test_follow_lets_two_nodes_exchange_addresses(reports: Reports) -> None:
    async with ScriptedBroker() as one, ScriptedBroker() as other, pool_of(reports) as pool:
        pool.follow({1: one.address, 2: other.address})
        await connect(pool, reports, one, 1)
        await connect(pool, reports, other, 2)
        pool.follow({1: other.address, 2: one.address})
        for node_id in 1, 2:
            assert await reports.expect_disconnected(node_id) is None
        assert {(await reports.next_connected()) for _ in (1, 2)} == {1, 2}
        assert (usable(pool, 1).address, usable(pool, 2).address) == (other.address, one.address)


async def test_follow_moves_a_node_that_is_connecting(reports: Reports, broker: ScriptedBroker) -> None:
    dialled = Dialled()
    dialled.hanging = True
    async with pool_of(reports, dial=dialled) as pool:
        pool.connect_soon(NODE, Address("hangs", 1))
        await dialled.hangs.wait()
        dialled.hanging = False
        pool.follow({NODE: broker.address})
        await reports.expect_connected()
    assert dialled.cancelled == [Address("hangs", 1)]


async def test_follow_drops_a_node_that_left_and_cancels_its_dial(reports: Reports) -> None:
    dialled = Dialled()
    dialled.hanging = True
    async with pool_of(reports, dial=dialled) as pool:
        pool.follow({NODE: Address("hangs", 1)})
        pool.connect_soon(NODE, Address("hangs", 1))
        await dialled.hangs.wait()
        pool.follow({NODE + 1: Address("other", 1)})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert dialled.cancelled == [Address("hangs", 1)]
        assert pool.nodes == []
        pool.connect_soon(NODE, Address("hangs", 1))  # by a caller with a reason
        pool.follow({})
        assert pool.nodes == [NODE]


async def test_follow_moves_a_node_that_backs_off(reports: Reports, broker: ScriptedBroker) -> None:
    config = settings(reconnect_backoff=Backoff(LONG_S, LONG_S))
    async with pool_of(reports, dial=Dialled(OSError("refused")), config=config) as pool:
        pool.connect_soon(NODE, Address("refuses", 1))
        await reports.expect_disconnected()
        pool.follow({NODE: broker.address})
        await reports.expect_connected()


async def test_follow_leaves_an_unused_node_unconnected(reports: Reports, broker: ScriptedBroker) -> None:
    dialled = Dialled()
    async with pool_of(reports, dial=dialled) as pool:
        await connect(pool, reports, broker)
        usable(pool).close()
        assert await reports.expect_disconnected() is None
        pool.follow({NODE: Address("elsewhere", 1)})
    assert dialled.addresses == [broker.address]


async def test_follow_overrides_older_addresses_of_callers(reports: Reports, broker: ScriptedBroker) -> None:
    async with pool_of(reports) as pool:
        pool.follow({NODE: broker.address})
        pool.connect_soon(NODE, Address("of an older answer", 1))
        await reports.expect_connected()
        pool.connect_soon(NODE, Address("of an older answer", 1))
        assert usable(pool).address == broker.address
        reports.expect_nothing_else()


async def test_follow_retires_the_connection_of_a_node_that_left(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    pool.follow({NODE: broker.address})
    peer = await connect(pool, reports, broker)
    pool.follow({})
    assert await reports.expect_disconnected() is None
    await peer.gone.wait()
    await connect(pool, reports, broker)  # dialled again, as a missing broker is
    pool.follow({NODE + 1: broker.address})
    assert usable(pool).address == broker.address
    reports.expect_nothing_else()


async def test_retired_connection_fails_calls_when_it_stays_silent(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "RETIRED_TIMEOUT_S", 0.02)
    async with ScriptedBroker() as old, ScriptedBroker() as new, pool_of(reports) as pool:
        await connect(pool, reports, old)
        asking = asyncio.create_task(usable(pool).request(ASK))
        await asyncio.sleep(0)
        pool.follow({NODE: new.address})
        with pytest.raises(ConnectionFailed, match="retired, and 1 request is unanswered") as raised:
            await asking
        assert raised.value.written


async def test_start_over_fails_calls_and_forgets_nodes(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    await connect(pool, reports, broker)
    asking = asyncio.create_task(usable(pool).request(ASK))
    await asyncio.sleep(0)
    cause = ConnectionFailed("another cluster")
    pool.start_over(cause)
    assert pool.nodes == []
    with pytest.raises(ConnectionFailed, match="another cluster"):
        await asking
    assert await reports.expect_disconnected() is None
    reports.expect_nothing_else()


async def test_start_over_closes_an_adopted_connection(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    opened = await open_connection(broker.address, settings())
    assert pool.adopt(opened, NODE, broker.address)
    await reports.expect_connected()
    pool.start_over(cause := ConnectionFailed("another cluster"))
    assert (pool.nodes, opened.error) == ([], cause)
    assert await reports.expect_disconnected() is None


async def test_cached_connection_is_taken_once_or_closed() -> None:
    cache = ConnectionCache(None)
    async with ScriptedBroker() as broker:
        taken, left = [(broker.address, await open_connection(broker.address, settings())) for _ in range(2)]
        cache.put([taken])
        assert cache.take() == [taken]
        assert cache.take() == []
        cache.put([left])
        await cache.close()
        assert left[1].socket_closed.done()
        assert not taken[1].closed
        taken[1].close()
        await taken[1].wait_closed()
