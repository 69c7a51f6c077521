from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer.backoff import Backoff, UniformSource
from aioproducer.errors import ConnectionFailed, ProducerError, ProtocolError
from aioproducer.net import pool as pool_module
from aioproducer.net.connection import Connection
from aioproducer.net.dial import Address, Dial, MakeProtocol, dial
from aioproducer.net.pool import Pool
from aioproducer.net.settings import ConnectionSettings
from tests.unit.net.scripted import ASK, Peer, ScriptedBroker, settings, stay_silent

NODE = 7
LONG_S = 1000.0
"""So long that a test would time out if it had to wait for it."""


class Reports:
    """What the pool told its owner, in order: a node id and True, or a node id and why it is gone."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[int, ProducerError | bool | None]] = asyncio.Queue()

    def connected(self, node_id: int) -> None:
        self._queue.put_nowait((node_id, True))

    def disconnected(self, node_id: int, error: ProducerError | None) -> None:
        self._queue.put_nowait((node_id, error))

    async def expect_connected(self, node_id: int = NODE) -> None:
        assert await self._queue.get() == (node_id, True)

    async def expect_disconnected(self, node_id: int = NODE) -> ProducerError | None:
        told, error = await self._queue.get()
        assert told == node_id
        assert error is None or isinstance(error, ProducerError)
        return error

    def expect_nothing_else(self) -> None:
        assert self._queue.empty()


@pytest.fixture
async def reports() -> Reports:
    return Reports()


@asynccontextmanager
async def pool_of(
    reports: Reports, *, dial: Dial = dial, config: ConnectionSettings | None = None
) -> AsyncIterator[Pool]:
    pool = Pool(
        settings() if config is None else config,
        on_connected=reports.connected,
        on_disconnected=reports.disconnected,
        dial=dial,
    )
    try:
        yield pool
    finally:
        await pool.close()


@pytest.fixture
async def pool(reports: Reports) -> AsyncIterator[Pool]:
    async with pool_of(reports) as pool:
        yield pool


class Dialled:
    """A dial that notes who was called, and does what the test says: raise, hang, or connect."""

    def __init__(self, *errors: OSError) -> None:
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


def noting(attempts: list[int], delay_s: float) -> Backoff:
    """A backoff that notes which attempts it was asked about."""

    class Noting(Backoff):
        def delay_s(self, attempt: int, rng: UniformSource = random) -> float:
            attempts.append(attempt)
            return delay_s

    return Noting(0, 0)


def ignore(outcome: Any) -> None:
    pass


# --- connecting


def test_a_pool_can_be_made_without_an_event_loop(reports: Reports) -> None:
    pool = Pool(settings(), on_connected=reports.connected, on_disconnected=reports.disconnected)
    assert pool.get(NODE) is None
    assert pool.next_attempt_at(NODE) is None
    assert pool.last_error(NODE) is None


async def test_a_node_is_usable_once_it_is_reported(
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


async def test_a_dying_connection_is_not_given_out(
    pool: Pool, reports: Reports, broker: ScriptedBroker
) -> None:
    await connect(pool, reports, broker)
    connection = usable(pool)
    connection._transport.abort()
    assert pool.get(NODE) is None
    pool.connect_soon(NODE, broker.address)  # not before the end was reported
    assert await reports.expect_disconnected() is connection.error
    reports.expect_nothing_else()


# --- failures and backoff


async def test_a_failed_attempt_is_reported_with_its_cause_and_followed_by_a_pause(
    reports: Reports, broker: ScriptedBroker
) -> None:
    dialled = Dialled(ConnectionRefusedError("nobody there"))
    config = settings(reconnect_backoff=Backoff(LONG_S, LONG_S))
    async with pool_of(reports, dial=dialled, config=config) as pool:
        before = asyncio.get_running_loop().time()
        pool.connect_soon(NODE, broker.address)
        error = await reports.expect_disconnected()
        assert isinstance(error, ConnectionFailed)
        assert "nobody there" in str(error)
        assert pool.last_error(NODE) is error
        next_attempt_at = pool.next_attempt_at(NODE)
        assert next_attempt_at is not None
        assert next_attempt_at >= before + LONG_S * 0.8
        pool.connect_soon(NODE, broker.address)
        assert dialled.addresses == [broker.address]
        assert pool.next_attempt_at(NODE) == next_attempt_at


async def test_pauses_and_setup_timeouts_grow_with_each_failure_until_a_success(
    reports: Reports, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []
    timeouts: list[int] = []
    dialled = Dialled(OSError("1"), OSError("2"), OSError("3"))
    config = settings(reconnect_backoff=noting(pauses, 0.0))
    async with pool_of(reports, dial=dialled, config=config) as pool:
        monkeypatch.setattr(pool, "_setup_timeout", noting(timeouts, LONG_S))
        for _ in range(3):
            pool.connect_soon(NODE, broker.address)
            await reports.expect_disconnected()
        peer = await connect(pool, reports, broker)
        peer.close()
        await reports.expect_disconnected()
        dialled.errors.append(OSError("4"))
        pool.connect_soon(NODE, broker.address)
        await reports.expect_disconnected()
    assert pauses == [0, 1, 2, 0, 0]
    assert timeouts == [0, 1, 2, 3, 0]


async def test_a_frozen_broker_is_given_up_after_the_setup_timeout(reports: Reports) -> None:
    config = settings(setup_timeout_s=0.02, setup_timeout_max_s=0.02)
    async with ScriptedBroker(stay_silent) as broker, pool_of(reports, config=config) as pool:
        pool.connect_soon(NODE, broker.address)
        error = await reports.expect_disconnected()
        assert "the handshake was not over" in str(error)
        assert f"(node {NODE})" in str(error)


async def test_an_attempt_due_again_is_made(reports: Reports, broker: ScriptedBroker) -> None:
    async with pool_of(reports, dial=Dialled(OSError("once"))) as pool:
        pool.connect_soon(NODE, broker.address)
        await reports.expect_disconnected()
        next_attempt_at = pool.next_attempt_at(NODE)
        assert next_attempt_at is not None
        due = asyncio.Event()
        asyncio.get_running_loop().call_at(next_attempt_at, due.set)
        await due.wait()
        assert pool.next_attempt_at(NODE) == next_attempt_at  # until somebody asks
        await connect(pool, reports, broker)
        assert pool.next_attempt_at(NODE) is None


async def test_a_lost_connection_is_reported_with_its_cause_and_followed_by_a_pause(
    reports: Reports, broker: ScriptedBroker
) -> None:
    config = settings(reconnect_backoff=Backoff(LONG_S, LONG_S))
    async with pool_of(reports, config=config) as pool:
        peer = await connect(pool, reports, broker)
        connection = usable(pool)
        peer.send(b"junk")
        error = await reports.expect_disconnected()
        assert isinstance(error, ProtocolError)
        assert pool.last_error(NODE) is error is connection.error
        assert pool.get(NODE) is None
        assert pool.next_attempt_at(NODE) is not None


async def test_an_outage_is_one_warning_however_often_it_is_tried(
    reports: Reports, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer.net.pool")
    dialled = Dialled()
    config = settings(reconnect_backoff=Backoff(0.0, 0.0))
    async with pool_of(reports, dial=dialled, config=config) as pool:
        peer = await connect(pool, reports, broker)
        peer.close()
        await reports.expect_disconnected()
        dialled.errors = [OSError(str(number)) for number in range(20)]
        for _ in range(20):
            pool.connect_soon(NODE, broker.address)
            await reports.expect_disconnected()
        await connect(pool, reports, broker)
    assert [(each.levelname, each.message.split()[0]) for each in caplog.records] == [
        ("INFO", "connection.opened"),
        ("WARNING", "connection.lost"),
        *[("DEBUG", "connection.failed")] * 20,
        ("INFO", "connection.opened"),
    ]


@pytest.mark.parametrize(("steady_s", "level"), [(0.0, "WARNING"), (LONG_S, "DEBUG")])
async def test_to_lose_a_connection_again_is_news_if_it_was_well_meanwhile(
    steady_s: float,
    level: str,
    reports: Reports,
    broker: ScriptedBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer.net.pool")
    monkeypatch.setattr(pool_module, "STEADY_S", steady_s)
    async with pool_of(reports, config=settings(reconnect_backoff=Backoff(0.0, 0.0))) as pool:
        for _ in range(2):
            (await connect(pool, reports, broker)).close()
            await reports.expect_disconnected()
    lost = [each.levelname for each in caplog.records if each.message.startswith("connection.lost")]
    assert lost == ["WARNING", level]


# --- choosing


async def test_the_least_loaded_of_the_candidates_is_chosen(
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
    usable(pool, 3).mute_until(asyncio.get_running_loop().time() + LONG_S)
    assert pool.least_loaded([1, 2, 3]) is pool.get(2)
    assert pool.least_loaded([3]) is pool.get(3)


# --- moving and forgetting


async def test_a_node_that_moved_is_connected_at_its_new_address(reports: Reports) -> None:
    async with ScriptedBroker() as old, ScriptedBroker() as new, pool_of(reports) as pool:
        old_peer = await connect(pool, reports, old)
        pool.connect_soon(NODE, new.address)
        assert pool.get(NODE) is None
        assert await reports.expect_disconnected() is None
        await reports.expect_connected()
        assert usable(pool).address == new.address
        await old_peer.gone.wait()
        reports.expect_nothing_else()


async def test_what_is_in_flight_to_the_old_address_is_still_answered(reports: Reports) -> None:
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


async def test_a_node_that_moved_is_no_longer_dialled_at_its_old_address_nor_paused(
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


async def test_an_idle_connection_is_closed_without_a_pause(reports: Reports, broker: ScriptedBroker) -> None:
    async with pool_of(reports, config=settings(idle_timeout_s=0.02)) as pool:
        peer = await connect(pool, reports, broker)
        assert await reports.expect_disconnected() is None
        await peer.gone.wait()
        assert pool.next_attempt_at(NODE) is None
        assert pool._idle_timer is None  # nobody left to watch
        await connect(pool, reports, broker)
        assert await reports.expect_disconnected() is None


async def test_a_connection_that_waits_for_an_answer_is_not_idle(
    reports: Reports, broker: ScriptedBroker
) -> None:
    async with pool_of(reports, config=settings(idle_timeout_s=0.02)) as pool:
        await connect(pool, reports, broker, 1)
        usable(pool, 1).call(ASK, ignore)
        await connect(pool, reports, broker, 2)
        assert await reports.expect_disconnected(2) is None
        assert pool.get(1) is not None


async def test_a_connection_used_lately_is_not_idle(
    reports: Reports, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pool_of(reports, config=settings(idle_timeout_s=LONG_S)) as pool:
        await connect(pool, reports, broker, 1)
        await connect(pool, reports, broker, 2)
        usable(pool, 1).last_used -= 2 * LONG_S
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


async def test_close_fails_what_is_in_flight_and_leaves_nothing_running(
    reports: Reports, broker: ScriptedBroker
) -> None:
    """The fixture that looks for tasks left behind does the second half of the work."""
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


async def test_close_ends_connections_that_were_only_kept_for_their_last_answers(
    reports: Reports, broker: ScriptedBroker
) -> None:
    async with pool_of(reports) as pool:
        peer = await connect(pool, reports, broker)
        asking = asyncio.create_task(usable(pool).request(ASK))
        await peer.inbox.get()
        pool.forget(NODE)
        await pool.close()
        with pytest.raises(ConnectionFailed, match="closed by this side"):
            await asking
        await peer.gone.wait()
