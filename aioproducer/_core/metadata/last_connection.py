"""Reconnection of an idle producer: after its last connection is lost, brokers are dialled until one accepts.

A producer with records dials to send them. An idle producer has no other reason to dial, and would stay disconnected.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from math import inf
from typing import Final, Protocol

from aioproducer._core.metadata.snapshot import Broker
from aioproducer._core.net.address import Address

STAGGER_S: Final = 0.25
"""Head start of one dialled broker over the next, in seconds."""
LEAST_GAP_S: Final = 0.05
"""Minimum time between two dials, in seconds. Without it, each failure in a large cluster would start the next dial."""


class Dialler(Protocol):
    """Subset of `net.pool.Pool` that dials."""

    def connect_soon(self, node_id: int, address: Address) -> None:
        """Start connecting, unless the node is connected, connecting or backing off."""

    def next_attempt_at(self, node_id: int) -> float | None:
        """Return the end of the pause after a failure, in loop time; None without a failure."""


class LastConnection:
    """Tracks connected nodes, and dials after the last one was lost."""

    def __init__(self, pool: Dialler) -> None:
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
        """Record the end of a connection, or a failed attempt; return True if no connection is left and one is needed.

        Without *failed* the producer closed the connection itself, for example for idleness.
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
