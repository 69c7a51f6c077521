from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import cast

from aioproducer._core.metadata.snapshot import NO_LEADER, MetadataSnapshot
from aioproducer._core.metadata.updater import MOST_MISSED, MissingBrokers
from aioproducer._core.net.address import Address
from aioproducer._core.net.connection import Connection
from tests.unit._core.metadata.answers import after, topic
from tests.unit._core.metadata.fakes import address_of

WELL = after(MetadataSnapshot(), topic("orders", 1, 2))
ORPHANED = after(WELL, topic("orders", 1, (NO_LEADER, 1)), nodes=[1, 3])


class Dialler:
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
    """Return who is dialled after these *snapshots*."""
    dialler = Dialler()
    missing = MissingBrokers(dialler)
    for before, now in pairwise(snapshots):
        missing.note(before, now)
    _ = missing.dial()
    return sorted(node_id for node_id, _ in dialler.dialled)


def test_who_left_while_a_partition_lost_its_leader_is_dialled_where_it_was() -> None:
    dialler = Dialler()
    missing = MissingBrokers(dialler)
    missing.note(WELL, ORPHANED)
    _ = missing.dial()
    assert dialler.dialled == [(2, address_of(2))]


def test_who_left_and_is_not_missed_is_let_go() -> None:
    assert dialled(WELL, after(WELL, topic("orders", 1, (3, 1)), nodes=[1, 3])) == []


def test_who_left_before_the_partition_lost_its_leader_is_not_suspected() -> None:
    without = after(WELL, topic("orders", 1, (3, 1)), nodes=[1, 3])
    assert dialled(WELL, without, after(without, topic("orders", 1, (NO_LEADER, 2)), nodes=[1, 3])) == []


def test_it_is_remembered_over_the_answers_that_do_not_help() -> None:
    worse = after(ORPHANED, topic("orders", (NO_LEADER, 1), (NO_LEADER, 1)), nodes=[3])
    assert dialled(WELL, ORPHANED, worse) == [1, 2]


def test_who_is_back_is_not_dialled_here_any_more() -> None:
    assert dialled(WELL, ORPHANED, after(ORPHANED, topic("orders", 1, (NO_LEADER, 2)))) == []


def test_nobody_is_once_every_partition_has_a_leader() -> None:
    led = after(ORPHANED, topic("orders", 1, (3, 2)), nodes=[1, 3])
    assert dialled(WELL, ORPHANED, led) == []


def test_the_next_time_is_when_the_first_pause_is_over() -> None:
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
