"""Faults as small parts, combined by the table. Each function returns when its fault is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aioproducer import Producer
from aioproducer.errors import BrokerError, UnknownTopicOrPartition
from aioproducer.testing import Cluster, Rule
from aioproducer.testing.faults import Rewrite
from tests.scenarios.faults import hostile
from tests.scenarios.faults.load import TOPIC
from tests.scenarios.faults.world import BROKERS, PARTITIONS, Fault, World

TIMEOUT_S = 60.0
"""How long to wait for a request to strike: longer than any delivery timeout, after which there is another one."""

Arm = Callable[[Rule], Rule]
"""Says what happens to the requests that a rule strikes."""


def answer(
    error: type[BrokerError] | int,
    *,
    before_append: bool = True,
    record_errors: Mapping[int, str] | None = None,
) -> Arm:
    """An error."""
    return lambda rule: rule.answer(error, before_append=before_append, record_errors=record_errors)


def delay(s: float, *, before_append: bool = True) -> Arm:
    """The answer is late."""
    return lambda rule: rule.delay(s, before_append=before_append)


def drop(*, before_append: bool = True) -> Arm:
    """There is no answer."""
    return lambda rule: rule.drop(before_append=before_append)


def close(*, before_append: bool = True) -> Arm:
    """The connection is closed instead."""
    return lambda rule: rule.close(before_append=before_append)


def throttle(ms: int) -> Arm:
    """The brokers throttle the client."""
    return lambda rule: rule.throttle(ms)


def rewrite(change: Rewrite) -> Arm:
    """The answer is mangled."""
    return lambda rule: rule.rewrite(change)


def strike(arm: Arm, *, request: str | None = "produce", times: int = 1, **which: Any) -> Fault:
    """Apply *arm* to the next *times* requests; for Produce, only to requests for the topic of the load."""

    async def fault(world: World) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await arm(_rule(world, request, times, **which)).happened(times)

    return fault


def for_a_while(s: float, arm: Arm, *, request: str = "produce") -> Fault:
    """Apply *arm* to every request for *s* seconds."""

    async def fault(world: World) -> None:
        rule = arm(_rule(world, request, None))
        await asyncio.sleep(s)
        rule.remove()

    return fault


def _rule(world: World, request: str | None, times: int | None, **which: Any) -> Rule:
    if request == "produce":
        which["topic"] = TOPIC
    return world.cluster.on(request, times=times, **which)


def both(*faults: Fault) -> Fault:
    """Run all *faults* at the same time."""

    async def fault(world: World) -> None:
        await asyncio.gather(*(each(world) for each in faults))

    return fault


def in_turn(*faults: Fault) -> Fault:
    """Run *faults* one after the other."""

    async def fault(world: World) -> None:
        for each in faults:
            await each(world)

    return fault


async def nothing(_: World) -> None:
    """All is well."""


def pause(s: float) -> Fault:
    """Let a fault from before the start continue for *s* seconds."""

    async def fault(_: World) -> None:
        await asyncio.sleep(s)

    return fault


# --- leaders and brokers --------------------------------------------------------------------------------------------


def move(world: World, partition: int, step: int = 1) -> None:
    """Let the next node lead."""
    leader = world.cluster._state.partition(TOPIC, partition).leader
    world.cluster.move_leader(TOPIC, partition, to_broker=1 + (leader - 1 + step) % BROKERS)


async def leaders_move_once(world: World) -> None:
    """Every partition gets another leader."""
    for partition in range(PARTITIONS):
        move(world, partition)


async def leaders_keep_moving(world: World) -> None:
    """The leaders move every 200 ms."""
    for _ in range(10):
        await leaders_move_once(world)
        await asyncio.sleep(0.2)


async def leaders_come_and_go(world: World) -> None:
    """The leaders move and return before any client has noticed."""
    for partition in range(PARTITIONS):
        move(world, partition)
        move(world, partition, -1)


def brokers_away(*nodes: int, s: float, failover: bool = False) -> Fault:
    """Stop nodes, and start them again."""

    async def fault(world: World) -> None:
        for node in nodes:
            await world.cluster.stop_broker(node, failover=failover)
        await asyncio.sleep(s)
        for node in nodes:
            await world.cluster.start_broker(node)

    return fault


async def rolling_restart(world: World) -> None:
    """One node after the other is away for half a second, and its partitions move."""
    for node in range(1, BROKERS + 1):
        await brokers_away(node, s=0.5, failover=True)(world)


async def brokers_move(world: World) -> None:
    """One node after the other gets another address."""
    for node in range(1, BROKERS + 1):
        await world.cluster.move_broker(node)
        await asyncio.sleep(0.3)


def may_move(cluster: Cluster, producer: Producer, node: int) -> bool:
    """Return True if *node* may get a new address: another broker keeps the address of a bootstrap server.

    Operators keep at least one bootstrap server reachable. Without one, a producer that was cut off during the moves
    has no address of its cluster.
    """
    others = {str(broker.listener.address) for each, broker in cluster._brokers.items() if each != node}
    return not others.isdisjoint(producer.config.bootstrap_servers)


async def addresses_exchanged(world: World) -> None:
    """Each two nodes exchange their addresses, once."""
    for node in range(1, BROKERS):
        await world.cluster.exchange_addresses(node, node + 1)
        await asyncio.sleep(0.3)


def brokers_frozen(*nodes: int, s: float) -> Fault:
    """Let nodes accept everything and answer nothing."""

    async def fault(world: World) -> None:
        for node in nodes:
            world.cluster.freeze_broker(node)
        await asyncio.sleep(s)
        for node in nodes:
            world.cluster.thaw_broker(node)

    return fault


async def frozen_leader_is_replaced(world: World) -> None:
    """A node freezes and other nodes take over; after the thaw it processes its old requests."""
    world.cluster.freeze_broker(1)
    await asyncio.sleep(0.5)
    for partition in range(0, PARTITIONS, BROKERS):
        move(world, partition)
    await asyncio.sleep(3)
    world.cluster.thaw_broker(1)


def thawed_after(s: float, node: int) -> Fault:
    """Let a node that was frozen from the start go on."""

    async def fault(world: World) -> None:
        await asyncio.sleep(s)
        world.cluster.thaw_broker(node)

    return fault


async def metadata_stale(world: World) -> None:
    """Leaders move, and for half a second the metadata still names the old ones."""
    old = {partition: 1 + partition % BROKERS for partition in range(PARTITIONS)}
    stale = world.cluster.on("metadata", times=None).rewrite(hostile.stale(old))
    await leaders_move_once(world)
    await asyncio.sleep(0.5)
    stale.remove()


def leaders_moved_unnoticed(stale_answers: int) -> Fault:
    """Leaders move, *stale_answers* responses name the old leaders, and refusals name no leader (as before KIP-951)."""

    async def fault(world: World) -> None:
        old = {partition: 1 + partition % BROKERS for partition in range(PARTITIONS)}
        _ = _rule(world, "produce", None).rewrite(hostile.without_leader_hints)
        await leaders_move_once(world)
        if stale_answers:
            await strike(rewrite(hostile.stale(old)), request="metadata", times=stale_answers)(world)

    return fault


async def reset_and_move(world: World) -> None:
    """Reset all connections and move all leaders, so that all metadata has to be requested again."""
    await leaders_move_once(world)
    for node in range(1, BROKERS + 1):
        world.cluster.disconnect(node)


async def reset_storm(world: World) -> None:
    """Reset all connections, thirty times."""
    for _ in range(30):
        for node in range(1, BROKERS + 1):
            world.cluster.disconnect(node)
        await asyncio.sleep(0.05)


def refuse_producer_ids(kind: type[BrokerError]) -> Callable[[Cluster], None]:
    """Refuse the first producer ids that are asked for."""

    def before(cluster: Cluster) -> None:
        cluster.on("init_producer_id", times=5).answer(kind)

    return before


# --- topics ---------------------------------------------------------------------------------------------------------


async def topic_created_late(world: World) -> None:
    """The topic does not exist before."""
    await asyncio.sleep(1)
    world.cluster.create_topic(TOPIC, PARTITIONS)


async def topic_recreated(world: World) -> None:
    """The topic is deleted, and half a second later there is another one of its name."""
    world.delete_topic()
    await asyncio.sleep(0.5)
    world.cluster.create_topic(TOPIC, PARTITIONS)


async def topic_recreated_at_once(world: World) -> None:
    """The topic is replaced by another one of its name."""
    world.delete_topic()
    world.cluster.create_topic(TOPIC, PARTITIONS)


def topic_unknown(stale_answers: int) -> Fault:
    """A leader lacks the topic once, and so do the next *stale_answers* metadata responses."""

    async def fault(world: World) -> None:
        await strike(answer(UnknownTopicOrPartition))(world)
        if stale_answers:
            unknown = answer(UnknownTopicOrPartition)
            await strike(unknown, request="metadata", times=stale_answers, topic=TOPIC)(world)

    return fault


def logs_lose_their_ends(records: int) -> Fault:
    """Every partition loses its last *records*, and all connections are reset."""

    async def fault(world: World) -> None:
        for partition in range(PARTITIONS):
            world.lose_end(partition, records)
        for node in range(1, BROKERS + 1):
            world.cluster.disconnect(node)

    return fault


async def partitions_added(world: World) -> None:
    """The topic grows; later loads on all partitions include the new partitions."""
    world.cluster.add_partitions(TOPIC, PARTITIONS + 2)


def batches_limited(limit: int, s: float) -> Fault:
    """Let the brokers take no larger batches than *limit* bytes for a while."""

    async def fault(world: World) -> None:
        usual, world.cluster.message_max_bytes = world.cluster.message_max_bytes, limit
        await asyncio.sleep(s)
        world.cluster.message_max_bytes = usual

    return fault
