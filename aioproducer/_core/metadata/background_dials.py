"""Dials that no request needs: after the loss of the last connection, and to brokers that left the cluster.

A producer with records dials for its requests. An idle producer has no other reason to dial, and would stay disconnected.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from math import inf
from typing import Final

from aioproducer._core.metadata.snapshot import Broker, MetadataSnapshot
from aioproducer._core.net.pool import Pool

STAGGER_S: Final = 0.25
"""Head start of one dialled broker over the next broker, in seconds."""
LEAST_GAP_S: Final = 0.05
"""Minimum time between two dials, in seconds. Without a gap, each failure in a large cluster would start the next dial."""


class ClusterConnectivity:
    """Tracks connected nodes, and dials after the last connection was lost."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connected: set[int] = set()
        self._is_lost = False
        self._not_before = 0.0
        self.unreachable: bool = False
        """True while no node is connected and at least one attempt to connect has failed."""

    def connected(self, node_id: int) -> None:
        """Record a connection to *node_id*."""
        self._connected.add(node_id)
        self._is_lost = self.unreachable = False

    def disconnected(self, node_id: int, *, failed: bool) -> bool:
        """Record the end of a connection, or a failed attempt; return True if the last connection has failed.

        If *failed* is false, the producer has closed the connection, for example for idleness.
        """
        was_connected = node_id in self._connected
        self._connected.discard(node_id)
        if self._connected or not failed:
            return False
        self._is_lost = True
        self.unreachable = self.unreachable or not was_connected
        return True

    def dial(self, brokers: Mapping[int, Broker]) -> float:
        """Dial one of *brokers* if the last connection is lost; return the time of the next call, or infinity."""
        if not self._is_lost:
            return inf
        now = asyncio.get_running_loop().time()
        if now < self._not_before:
            return self._not_before
        pauses = {node_id: self._pool.next_attempt_at(node_id) or now for node_id in brokers}
        if dialable := [node_id for node_id, ends_at in pauses.items() if ends_at <= now]:
            node_id = random.choice(dialable)
            self._pool.connect_soon(node_id, brokers[node_id].address)
            self._not_before = now + LEAST_GAP_S
            return now + STAGGER_S
        return min(pauses.values(), default=inf)


MOST_MISSED: Final = 10
"""Maximum number of departed brokers that are dialled. A restarted cluster with new ids has many departed brokers."""


class MissingBrokers:
    """Brokers that left the cluster while partitions have no leader, and that may return.

    Frequent metadata requests would load the other brokers, so the departed broker itself is dialled. Metadata is
    requested once this broker accepts. Only the last `MOST_MISSED` departed brokers are dialled. A later response lists the
    other departed brokers.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._brokers: dict[int, Broker] = {}

    def note(self, before: MetadataSnapshot, after: MetadataSnapshot) -> None:
        """Record the brokers that left and returned between two snapshots."""
        before_brokers, self._brokers = self._brokers, {}
        if after.leaderless:
            known = {**before_brokers, **before.brokers}
            missed = [each for node_id, each in known.items() if node_id not in after.brokers]
            self._brokers = {each.node_id: each for each in missed[-MOST_MISSED:]}
        for node_id in before_brokers.keys() - self._brokers.keys() - after.brokers.keys():
            if self._pool.get(node_id) is None:
                self._pool.forget(node_id)

    def dial(self) -> float:
        """Dial the missing brokers; return the time of the next call, or infinity."""
        next_at = inf
        for broker in self._brokers.values():
            self._pool.connect_soon(broker.node_id, broker.address)
            pause_over_at = self._pool.next_attempt_at(broker.node_id)
            if pause_over_at is not None:
                next_at = min(next_at, pause_over_at)
        return next_at
