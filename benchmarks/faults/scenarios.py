"""Fault scenarios, shared by all clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aioproducer.errors import InvalidRecord
from aioproducer.testing import Cluster
from aioproducer.testing.faults import Rewrite
from benchmarks.faults.terms import BROKERS, BURST, DELIVERY_TIMEOUT_S, PARTITIONS, TOPIC
from tests.scenarios.faults import hostile

TIMEOUT_S: Final = 10.0
"""Time limit for the request that gets the fault, in seconds."""
SMALL_BATCH_BYTES: Final = 400
"""Batch limit in bytes: two records of 100 bytes fit, five records exceed the limit."""

Fault = Callable[[Cluster], Awaitable[None]]


async def broker_away(cluster: Cluster) -> None:
    """Stop broker 1 for 3 s; its partitions have no leader."""
    await cluster.stop_broker(1)
    await asyncio.sleep(3)
    await cluster.start_broker(1)


async def broker_away_for_too_long(cluster: Cluster) -> None:
    """Stop broker 1 until 2 s after the delivery timeout, so that records expire."""
    await cluster.stop_broker(1)
    await asyncio.sleep(DELIVERY_TIMEOUT_S + 2)
    await cluster.start_broker(1)


async def leaders_move(cluster: Cluster) -> None:
    """Give every partition another leader, every 200 ms."""
    for move in range(1, 16):
        for partition in range(PARTITIONS):
            cluster.move_leader(TOPIC, partition, to_broker=1 + (partition + move) % BROKERS)
        await asyncio.sleep(0.2)


async def bootstrap_frozen(cluster: Cluster) -> None:
    """Thaw broker 1 after 3 s. Broker 1 is only a bootstrap server."""
    await asyncio.sleep(3)
    cluster.thaw_broker(1)


def freeze_first_bootstrap(cluster: Cluster) -> None:
    """Move all leaders away from node 1, the first bootstrap server, and freeze node 1."""
    for partition in range(PARTITIONS):
        cluster.move_leader(TOPIC, partition, to_broker=2 + partition % 2)
    cluster.freeze_broker(1)


async def reset_storm(cluster: Cluster) -> None:
    """Reset all connections every 50 ms for 1.5 s."""
    for _ in range(30):
        for node in range(1, BROKERS + 1):
            cluster.disconnect(node)
        await asyncio.sleep(0.05)


async def batch_refused(cluster: Cluster) -> None:
    """Refuse one batch with a permanent error."""
    async with asyncio.timeout(TIMEOUT_S):
        await cluster.on("produce", partition=0).answer(InvalidRecord).happened()


async def small_batches_only(cluster: Cluster) -> None:
    """Refuse batches above `SMALL_BATCH_BYTES` for half a second."""
    usual, cluster.message_max_bytes = cluster.message_max_bytes, SMALL_BATCH_BYTES
    await asyncio.sleep(0.5)
    cluster.message_max_bytes = usual


def mangled(change: Rewrite) -> Fault:
    """Return a fault that corrupts one Produce response by *change*. The batches are in the log."""

    async def fault(cluster: Cluster) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await cluster.on("produce").rewrite(change).happened()

    return fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fault during a load."""

    name: str
    title: str
    fault: Fault
    """Coroutine function that returns at the end of the fault."""
    before: Callable[[Cluster], None] | None = None
    """Fault that exists before the client starts; None for none."""


SCENARIOS: Final = (
    Scenario(name="away", title="a broker down for 3 s", fault=broker_away),
    Scenario(
        name="away-too-long",
        title=f"a broker down for {DELIVERY_TIMEOUT_S + 2:.0f} s (some 1,000 must fail)",
        fault=broker_away_for_too_long,
    ),
    Scenario(name="leaders", title="leaders move every 200 ms, for 3 s", fault=leaders_move),
    Scenario(
        name="bootstrap",
        title="first bootstrap broker frozen (recovery: since the start)",
        before=freeze_first_bootstrap,
        fault=bootstrap_frozen,
    ),
    Scenario(name="resets", title="connections reset every 50 ms, for 1.5 s", fault=reset_storm),
    Scenario(name="refused", title=f"one batch refused permanently ({BURST} must fail)", fault=batch_refused),
    Scenario(name="too-large", title="batches over the broker's limit, for 0.5 s", fault=small_batches_only),
    Scenario(
        name="correlation-id",
        title="one response with another correlation id",
        fault=mangled(hostile.other_correlation_id),
    ),
    Scenario(name="garbage", title="one response full of invalid bytes", fault=mangled(hostile.garbage)),
)
