from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.metrics import Metrics
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.opening import open_connection
from aioproducer._core.net.pool import Pool
from aioproducer.errors import ConnectionFailed
from tests.unit._core.net.pool_rig import LONG_S, NODE, Dialled, Reports, connect, pool_of, usable
from tests.unit._core.net.scripted import ASK, ScriptedBroker, settings


def ignore(outcome: Any) -> None:
    pass


# --- connecting


def test_pool_is_created_without_an_event_loop(reports: Reports) -> None:
    pool = Pool(
        settings(),
        on_connected=reports.connected,
        on_disconnected=reports.disconnected,
        metrics=Metrics(lambda: 0.0),
    )
    assert pool.get(NODE) is None
    assert pool.next_attempt_at(NODE) is None
    assert pool.last_error(NODE) is None


async def test_node_is_usable_once_it_is_reported(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    pool.connect_soon(NODE, broker.address)
    assert pool.get(NODE) is None
    await reports.expect_connected()
    assert usable(pool).address == broker.address
    assert usable(pool).node_id == NODE
    assert pool.last_error(NODE) is None
    assert pool.next_attempt_at(NODE) is None


async def test_asking_again_makes_no_second_connection(reports: Reports, broker: ScriptedBroker) -> None:
    dialled = Dialled()
    async with pool_of(reports, dial=dialled) as pool:
        pool.connect_soon(NODE, broker.address)
        pool.connect_soon(NODE, broker.address)
        await reports.expect_connected()
        pool.connect_soon(NODE, broker.address)
        assert dialled.addresses == [broker.address]


async def test_aborted_connection_is_not_returned(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    await connect(pool, reports, broker)
    connection = usable(pool)
    connection._transport.abort()
    assert pool.get(NODE) is None
    pool.connect_soon(NODE, broker.address)  # not before the end was reported
    assert await reports.expect_disconnected() is connection.error
    reports.expect_nothing_else()


async def test_get_reads_the_connection_once_when_another_thread_looks(
    pool: Pool, reports: Reports, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fleeting:
        def __init__(self, connection: Connection) -> None:
            self._connections = [connection]

        @property
        def connection(self) -> Connection | None:
            return self._connections.pop() if self._connections else None

    await connect(pool, reports, broker)
    connection = usable(pool)
    with monkeypatch.context() as patched:
        patched.setitem(pool._nodes, NODE, Fleeting(connection))
        assert pool.get(NODE) is connection
        assert pool.get(NODE) is None


# --- choosing


async def test_least_loaded_prefers_fewer_calls_and_unthrottled_nodes(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    for node_id in (1, 2, 3):
        await connect(pool, reports, broker, node_id)
    for node_id, calls in ((1, 2), (2, 1), (3, 0)):
        for _ in range(calls):
            usable(pool, node_id).call(ASK, ignore)
    assert pool.least_loaded([1, 2, 3]) is pool.get(3)
    assert pool.least_loaded([1, 2]) is pool.get(2)
    assert pool.least_loaded([4, 1]) is pool.get(1)
    assert pool.least_loaded([4]) is None
    usable(pool, 3).throttled_until = asyncio.get_running_loop().time() + LONG_S
    assert pool.least_loaded([1, 2, 3]) is pool.get(2)
    assert pool.least_loaded([3]) is pool.get(3)


async def test_least_loaded_avoids_the_given_node_in_a_tie(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    for node_id in (1, 2):
        await connect(pool, reports, broker, node_id)
    assert pool.least_loaded([1, 2], 1) is pool.get(2)
    assert pool.least_loaded([1, 2], 2) is pool.get(1)
    assert pool.least_loaded([1], 1) is pool.get(1)
    usable(pool, 2).call(ASK, ignore)
    assert pool.least_loaded([1, 2], 1) is pool.get(1)


# --- moving and forgetting


async def test_moved_node_is_connected_at_its_new_address(reports: Reports) -> None:
    async with ScriptedBroker() as old, ScriptedBroker() as new, pool_of(reports) as pool:
        old_peer = await connect(pool, reports, old)
        pool.connect_soon(NODE, new.address)
        assert pool.get(NODE) is None
        assert await reports.expect_disconnected() is None
        await reports.expect_connected()
        assert usable(pool).address == new.address
        await old_peer.gone.wait()
        reports.expect_nothing_else()


async def test_call_in_flight_to_the_old_address_is_answered(reports: Reports) -> None:
    async with ScriptedBroker() as old, ScriptedBroker() as new, pool_of(reports) as pool:
        old_peer = await connect(pool, reports, old)
        asking = asyncio.create_task(usable(pool).request(ASK))
        received = await old_peer.inbox.get()
        pool.connect_soon(NODE, new.address)
        assert await reports.expect_disconnected() is None
        await reports.expect_connected()
        old_peer.send(received.answered_with_id(5))
        assert (await asking).producer_id == 5
        await old_peer.gone.wait()
        assert usable(pool).address == new.address
        reports.expect_nothing_else()


async def test_moved_node_is_dialled_at_once_at_its_new_address_only(
    reports: Reports, broker: ScriptedBroker
) -> None:
    dialled = Dialled()
    dialled.hanging = True
    config = settings(reconnect_backoff=Backoff(LONG_S, LONG_S))
    async with pool_of(reports, dial=dialled, config=config) as pool:
        pool.connect_soon(NODE, Address("hangs", 1))
        await dialled.hangs.wait()
        dialled.hanging, dialled.errors = False, [OSError("refused")]
        pool.connect_soon(NODE, Address("refuses", 1))
        await reports.expect_disconnected()
        assert dialled.cancelled == [Address("hangs", 1)]
        await connect(pool, reports, broker)


async def test_forgetting_closes_an_idle_connection(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    peer = await connect(pool, reports, broker)
    pool.forget(NODE)
    assert pool.get(NODE) is None
    assert await reports.expect_disconnected() is None
    await peer.gone.wait()
    pool.forget(NODE)  # of nothing known, nothing is done
    reports.expect_nothing_else()


async def test_forgetting_ends_an_attempt(reports: Reports) -> None:
    dialled = Dialled()
    dialled.hanging = True
    async with pool_of(reports, dial=dialled) as pool:
        pool.connect_soon(NODE, Address("hangs", 1))
        await dialled.hangs.wait()
        pool.forget(NODE)
        assert pool.last_error(NODE) is None
    assert dialled.cancelled == [Address("hangs", 1)]
    reports.expect_nothing_else()


# --- idle connections


async def test_idle_connection_is_closed_without_a_pause(reports: Reports, broker: ScriptedBroker) -> None:
    async with pool_of(reports, config=settings(idle_timeout_s=0.02)) as pool:
        peer = await connect(pool, reports, broker)
        assert await reports.expect_disconnected() is None
        await peer.gone.wait()
        assert pool.next_attempt_at(NODE) is None
        assert pool._idle_timer is None
        await connect(pool, reports, broker)
        assert await reports.expect_disconnected() is None


async def test_connection_with_a_call_in_flight_is_not_idle(reports: Reports, broker: ScriptedBroker) -> None:
    async with pool_of(reports, config=settings(idle_timeout_s=0.02)) as pool:
        await connect(pool, reports, broker, 1)
        usable(pool, 1).call(ASK, ignore)
        await connect(pool, reports, broker, 2)
        assert await reports.expect_disconnected(2) is None
        assert pool.get(1) is not None


async def test_throttled_connection_is_not_idle(reports: Reports, broker: ScriptedBroker) -> None:
    async with pool_of(reports, config=settings(idle_timeout_s=0.02)) as pool:
        await connect(pool, reports, broker)
        usable(pool).throttled_until = asyncio.get_running_loop().time() + LONG_S
        await asyncio.sleep(0.1)
        assert pool.get(NODE) is not None


async def test_connection_used_lately_is_not_idle(
    reports: Reports, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pool_of(reports, config=settings(idle_timeout_s=LONG_S)) as pool:
        await connect(pool, reports, broker, 1)
        await connect(pool, reports, broker, 2)
        usable(pool, 1)._core.last_used -= 2 * LONG_S
        pool._close_idle(LONG_S)
        assert await reports.expect_disconnected(1) is None
        assert pool.get(2) is not None
        timer = pool._idle_timer
        assert timer is not None
        assert timer.when() == usable(pool, 2).last_used + LONG_S
        timer.cancel()


@pytest.mark.parametrize("never", [None, 0])
async def test_connections_may_be_idle_for_ever(
    never: float | None, reports: Reports, broker: ScriptedBroker
) -> None:
    async with pool_of(reports, config=settings(idle_timeout_s=never)) as pool:
        await connect(pool, reports, broker)
        assert pool._idle_timer is None


# --- closing


async def test_close_fails_calls_in_flight_and_ends_all_tasks(
    reports: Reports, broker: ScriptedBroker
) -> None:
    """The fixture that looks for leftover tasks checks the second half."""
    dialled = Dialled()
    async with pool_of(reports, dial=dialled, config=settings(idle_timeout_s=LONG_S)) as pool:
        peer = await connect(pool, reports, broker)
        asking = asyncio.create_task(usable(pool).request(ASK))
        await peer.inbox.get()
        dialled.hanging = True
        pool.connect_soon(8, broker.address)
        await dialled.hangs.wait()
        await pool.close()
        assert pool.get(NODE) is None
        assert dialled.cancelled == [broker.address]
        assert await reports.expect_disconnected() is None
        with pytest.raises(ConnectionFailed, match="closed by this side"):
            await asking
        assert not pool._tasks
        pool.connect_soon(NODE, broker.address)
        assert not pool._tasks
        await peer.gone.wait()
    reports.expect_nothing_else()


async def test_abort_fails_what_is_in_flight_before_it_returns(
    reports: Reports, broker: ScriptedBroker
) -> None:
    async with pool_of(reports) as pool:
        peer = await connect(pool, reports, broker)
        asking = asyncio.create_task(usable(pool).request(ASK))
        await peer.inbox.get()
        pool.abort(ConnectionFailed("going down"))
        assert pool.get(NODE) is None
        with pytest.raises(ConnectionFailed, match="going down"):
            await asking
        await peer.gone.wait()


async def test_close_closes_retired_connections(reports: Reports, broker: ScriptedBroker) -> None:
    async with pool_of(reports) as pool:
        peer = await connect(pool, reports, broker)
        asking = asyncio.create_task(usable(pool).request(ASK))
        await peer.inbox.get()
        pool.forget(NODE)
        await pool.close()
        with pytest.raises(ConnectionFailed, match="closed by this side"):
            await asking
        await peer.gone.wait()


# --- adopting


async def test_adopted_connection_is_used_and_watched(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    opened = await open_connection(broker.address, settings())
    assert pool.adopt(opened, NODE, broker.address)
    await reports.expect_connected()
    assert usable(pool) is opened
    assert opened.node_id == NODE
    assert opened.counters is pool._metrics.node(NODE)
    opened.close(ConnectionFailed("lost"))
    assert await reports.expect_disconnected() is opened.error
    assert pool.next_attempt_at(NODE) is not None


async def test_adopt_rejects_spare_dead_and_misaddressed_connections(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    spare, dead = [await open_connection(broker.address, settings()) for _ in range(2)]
    dead.close()
    await dead.wait_closed()
    assert not pool.adopt(dead, NODE, broker.address)
    pool.connect_soon(NODE, broker.address)
    assert not pool.adopt(spare, NODE, broker.address)  # it is being connected
    await reports.expect_connected()
    assert not pool.adopt(spare, NODE, broker.address)
    assert not pool.adopt(spare, NODE, Address("elsewhere", 9092))
    assert usable(pool) is not spare
    await pool.close()
    assert not pool.adopt(spare, NODE + 1, broker.address)
    spare.close()
    await spare.wait_closed()


# --- handed on


async def test_released_connection_is_taken_over_by_another_pool(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    await connect(pool, reports, broker)
    connection = usable(pool)
    released = pool.release()
    assert released == [(broker.address, connection)]
    assert pool.get(NODE) is None
    assert pool.release() == []
    others = Reports()
    async with pool_of(others) as following:
        following.take_over(released)
        await others.expect_connected()
        assert usable(following) is connection
        await pool.close()
        assert not connection.closed
        counters = [each._metrics.node(NODE) for each in (pool, following)]
        assert [(each.opened, each.closed) for each in counters] == [(1, 1), (1, 0)]
        connection.close(ConnectionFailed("lost"))
        assert await others.expect_disconnected() is connection.error
    reports.expect_nothing_else()


async def test_connection_with_a_call_in_flight_is_not_released(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    await connect(pool, reports, broker)
    usable(pool).call(ASK, ignore)
    assert pool.release() == []
    assert pool.get(NODE) is not None


async def test_take_over_skips_closed_stale_and_spare_connections(
    reports: Reports, broker: ScriptedBroker
) -> None:
    closed, kept, spare = [await open_connection(broker.address, settings()) for _ in range(3)]
    for each in (closed, kept, spare):
        each.node_id = NODE
    closed.close()
    async with pool_of(reports, config=settings(idle_timeout_s=LONG_S)) as pool:
        pool.take_over((broker.address, each) for each in (closed, kept, spare))
        assert usable(pool) is kept
        assert spare.closed
        released = pool.release()
    assert spare.socket_closed.done()  # closing has waited for it
    async with pool_of(reports, config=settings(idle_timeout_s=1e-9)) as pool:
        pool.take_over(released)
        assert pool.get(NODE) is None
        assert pool.nodes == []
    assert kept.socket_closed.done()


async def test_node_counts_until_its_connection_is_closed(reports: Reports, broker: ScriptedBroker) -> None:
    async with pool_of(reports) as pool:
        await connect(pool, reports, broker)
        connection = usable(pool)
        assert pool.counts_for(NODE)
        assert not pool.counts_for(NODE + 1)
        connection.close()
        assert pool.counts_for(NODE)
        await connection.wait_closed()
        assert not pool.counts_for(NODE)
