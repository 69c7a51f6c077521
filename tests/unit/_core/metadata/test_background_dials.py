from __future__ import annotations

import asyncio
from itertools import pairwise
from math import inf
from typing import cast

import pytest

from aioproducer._core.address import Address
from aioproducer._core.metadata.background_dials import (
    LEAST_GAP_S,
    MOST_MISSED,
    STAGGER_S,
    ClusterConnectivity,
    MissingBrokers,
)
from aioproducer._core.metadata.snapshot import NO_LEADER, Broker, MetadataSnapshot
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.pool import Pool
from aioproducer.errors import ConnectionFailed
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.metadata.answers import after, topic
from tests.unit._core.metadata.fakes import address_of, now
from tests.unit._core.metadata.updater_rig import started

WELL = after(MetadataSnapshot(), topic("orders", 1, 2))
ORPHANED = after(WELL, topic("orders", 1, (NO_LEADER, 1)), nodes=[1, 3])


class Dialler(Pool):
    def __init__(self) -> None:
        self.dialled: list[tuple[int, Address]] = []
        self.pauses: dict[int, float] = {}
        self.forgotten: list[int] = []
        self.connected: set[int] = set()

    def connect_soon(self, node_id: int, address: Address) -> None:
        self.dialled.append((node_id, address))

    def next_attempt_at(self, node_id: int) -> float | None:
        return self.pauses.get(node_id)

    def get(self, node_id: int) -> Connection | None:
        return cast("Connection", object()) if node_id in self.connected else None

    def forget(self, node_id: int) -> None:
        self.forgotten.append(node_id)


def dialled(*snapshots: MetadataSnapshot) -> list[int]:
    """Return the node ids that are dialled after these *snapshots*."""
    dialler = Dialler()
    missing = MissingBrokers(dialler)
    for before, after_it in pairwise(snapshots):
        missing.note(before, after_it)
    _ = missing.dial()
    return sorted(node_id for node_id, _ in dialler.dialled)


def test_missing_broker_is_dialled_at_its_last_address() -> None:
    dialler = Dialler()
    missing = MissingBrokers(dialler)
    missing.note(WELL, ORPHANED)
    _ = missing.dial()
    assert dialler.dialled == [(2, address_of(2))]


def test_missing_broker_is_dropped_when_all_partitions_are_led() -> None:
    assert dialled(WELL, after(WELL, topic("orders", 1, (3, 1)), nodes=[1, 3])) == []


def test_broker_that_left_before_the_leader_loss_is_not_dialled() -> None:
    without = after(WELL, topic("orders", 1, (3, 1)), nodes=[1, 3])
    assert dialled(WELL, without, after(without, topic("orders", 1, (NO_LEADER, 2)), nodes=[1, 3])) == []


def test_missing_broker_is_kept_over_later_unhelpful_responses() -> None:
    worse = after(ORPHANED, topic("orders", (NO_LEADER, 1), (NO_LEADER, 1)), nodes=[3])
    assert dialled(WELL, ORPHANED, worse) == [1, 2]


def test_missing_broker_is_dropped_when_it_returns() -> None:
    assert dialled(WELL, ORPHANED, after(ORPHANED, topic("orders", 1, (NO_LEADER, 2)))) == []


def test_missing_broker_is_dropped_once_every_partition_is_led() -> None:
    led = after(ORPHANED, topic("orders", 1, (3, 2)), nodes=[1, 3])
    assert dialled(WELL, ORPHANED, led) == []


def test_dial_returns_the_end_of_the_first_pause() -> None:
    worse = after(ORPHANED, topic("orders", (NO_LEADER, 1), (NO_LEADER, 1)), nodes=[3])
    dialler = Dialler()
    missing = MissingBrokers(dialler)
    missing.note(WELL, ORPHANED)
    missing.note(ORPHANED, worse)
    assert missing.dial() == inf
    dialler.pauses = {1: 7.0, 2: 5.0}
    assert missing.dial() == 5.0


def test_last_brokers_to_leave_are_dialled_others_dropped() -> None:
    dialler = Dialler()
    dialler.connected = {1001}
    missing = MissingBrokers(dialler)
    before = ORPHANED
    for first in range(1000, 5000, 1000):
        following = after(before, topic("orders", (NO_LEADER, 1)), nodes=range(first, first + 300))
        missing.note(before, following)
        _ = missing.dial()
        before = following
    assert len({node_id for node_id, _ in dialler.dialled}) <= 4 * MOST_MISSED
    assert len(set(dialler.forgotten)) <= 3 * MOST_MISSED
    missing.note(before, after(before, topic("orders", (4000, 2), (4000, 2)), nodes=range(4000, 4300)))
    assert {node_id for node_id, _ in dialler.dialled} - dialler.connected == set(dialler.forgotten)


def test_broker_that_is_connected_again_is_not_dropped() -> None:
    dialler = Dialler()
    dialler.connected = {2}
    missing = MissingBrokers(dialler)
    missing.note(WELL, ORPHANED)
    missing.note(ORPHANED, after(ORPHANED, topic("orders", 1, (3, 2)), nodes=[1, 3]))
    assert dialler.forgotten == []


BROKERS = {node_id: Broker(node_id, *address_of(node_id)) for node_id in (1, 2)}


@pytest.fixture
def dialler() -> Dialler:
    return Dialler()


@pytest.fixture
def last(dialler: Dialler) -> ClusterConnectivity:
    last = ClusterConnectivity(dialler)
    for node_id in BROKERS:
        last.connected(node_id)
    return last


def test_last_dial_is_skipped_while_a_broker_is_connected(
    last: ClusterConnectivity, dialler: Dialler
) -> None:
    assert not last.disconnected(1, failed=True)
    assert last.dial(BROKERS) == inf
    assert dialler.dialled == []


@in_virtual_time
async def test_loss_of_last_connection_dials_a_broker() -> None:
    dialler = Dialler()
    last = ClusterConnectivity(dialler)
    last.connected(1)
    assert last.disconnected(1, failed=True)
    assert not last.unreachable
    dialler.pauses[1] = now() + 5
    assert last.dial(BROKERS) == now() + STAGGER_S
    assert dialler.dialled == [(2, address_of(2))]
    dialler.pauses[2] = now() + 3
    assert last.dial(BROKERS) == now() + LEAST_GAP_S
    await asyncio.sleep(LEAST_GAP_S)
    assert last.dial(BROKERS) == dialler.pauses[2]
    assert len(dialler.dialled) == 1
    last.connected(2)
    assert last.dial(BROKERS) == inf


@in_virtual_time
async def test_failures_do_not_lead_to_dials_without_a_gap() -> None:
    dialler = Dialler()
    last = ClusterConnectivity(dialler)
    last.disconnected(1, failed=True)
    brokers = {node_id: Broker(node_id, "b", 1) for node_id in range(1000)}
    for _ in range(1000):  # each failure wakes the updater
        last.dial(brokers)
        await asyncio.sleep(0.001)
    assert len(dialler.dialled) <= 1 / LEAST_GAP_S + 1


def test_producer_is_unreachable_once_an_attempt_has_failed(last: ClusterConnectivity) -> None:
    last.disconnected(1, failed=True)
    last.disconnected(2, failed=True)
    assert not last.unreachable
    last.disconnected(1, failed=True)
    assert last.unreachable
    last.connected(1)
    assert not last.unreachable


def test_idle_connections_are_not_replaced(last: ClusterConnectivity, dialler: Dialler) -> None:
    for node_id in BROKERS:
        assert not last.disconnected(node_id, failed=False)
    assert last.dial(BROKERS) == inf
    assert not last.unreachable
    assert dialler.dialled == []


class TestUpdater:
    @in_virtual_time
    async def test_updater_without_topics_reconnects_with_backoff(self) -> None:
        async with started() as setup:
            for node_id in 1, 2, 3:
                setup.updater.connected(node_id)
            for node_id in 1, 2, 3:
                setup.pool.lose(node_id)
            await asyncio.sleep(60)
            assert setup.updater.unreachable
            assert 3 * 30 < len(setup.pool.attempts) < 3 * 60 / 0.05
            setup.cluster.away = set()
            await asyncio.sleep(2)
            assert not setup.updater.unreachable
            assert setup.pool.least_loaded([1, 2, 3]) is not None
            setup.forget()
            setup.pool.attempts.clear()
            await asyncio.sleep(100)
            assert (setup.cluster.asked, setup.pool.attempts) == ([], [])

    @in_virtual_time
    async def test_updater_without_topics_connects_after_the_bootstrap(self) -> None:
        """The bootstrap server may be a load balancer, whose connection belongs to no node."""
        async with started() as setup:
            setup.updater.connected(1)
            setup.pool._connections.clear()
            setup.updater.disconnected(1, ConnectionFailed("reset"))
            await asyncio.sleep(1)
            assert setup.pool.least_loaded([1, 2, 3]) is not None
            assert not setup.updater.unreachable

    @in_virtual_time
    async def test_aborted_does_not_reconnect(self) -> None:
        async with started() as setup:
            setup.updater.connected(1)
            setup.updater.abort(ConnectionFailed("the loop ends"))
            setup.updater.disconnected(1, ConnectionFailed("the loop ends"))
            await asyncio.sleep(5)
            assert (setup.cluster.asked, setup.pool.attempts) == ([], [])
