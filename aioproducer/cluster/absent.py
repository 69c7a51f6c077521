"""Brokers that are gone from the cluster while partitions have no leader: those that may be about to come back.

To ask the others again and again when it is back costs them a request each time. So it is dialled itself, as any
node that was lost: once it accepts, there is a reason to ask.
"""

from __future__ import annotations

from math import inf
from typing import Protocol

from aioproducer.cluster.snapshot import Broker, Snapshot
from aioproducer.net.address import Address


class Dialler(Protocol):
    """What is needed of `net.pool.Pool`."""

    def connect_soon(self, node_id: int, address: Address) -> None:
        """Start connecting, unless that is so already or has just failed."""

    def next_attempt_at(self, node_id: int) -> float | None:
        """Return when the pause after a failure is over."""


class AbsentBrokers:
    """Who was in the cluster, and is missed."""

    def __init__(self, pool: Dialler) -> None:
        self._pool = pool
        self._brokers: dict[int, Broker] = {}

    def note(self, before: Snapshot, after: Snapshot) -> None:
        """Note who left, who is back, and whether anybody is missed at all."""
        if not any(info.leaderless for info in after.topics.values()):
            self._brokers = {}
            return
        known = {**self._brokers, **before.brokers}
        self._brokers = {each: known[each] for each in known.keys() - after.brokers.keys()}

    def dial(self) -> float:
        """Have the pool connect to them; return when to do so again, unless it reports one before."""
        next_at = inf
        for broker in self._brokers.values():
            self._pool.connect_soon(broker.node_id, broker.address)
            pause_over_at = self._pool.next_attempt_at(broker.node_id)
            if pause_over_at is not None:
                next_at = min(next_at, pause_over_at)
        return next_at
