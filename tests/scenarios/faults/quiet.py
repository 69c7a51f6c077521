"""The quiet producer: one record in flight at a time, so only events of that record wake the sender.

Under a steady load there is always an answer to something else that wakes whoever has fallen asleep. Here every
scenario of the table is played again without: a record that is stuck has to get going by itself.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from aioproducer import Producer, ProducerError
from aioproducer.errors import DeliveryTimeout, MetadataTimeout, TopicAuthorizationFailed
from tests.checker import Findings
from tests.scenarios.faults import table
from tests.scenarios.faults.load import TOPIC, Load, Sent
from tests.scenarios.faults.world import (
    BROKERS,
    CALM_S,
    IDEMPOTENT,
    OPTIONS,
    PLAIN,
    RECOVERY_S,
    Course,
    Mode,
    Scenario,
    World,
    check_works_again,
    checked,
)

NEIGHBOUR: Final = "neighbour"
NEIGHBOURS_PAUSE_S: Final = 0.02

ACKNOWLEDGED_IN_S: Final = 1.5
"""How soon after the fault a record is acknowledged with Kafka's backoffs of up to 1 s, a fifth more for jitter."""
REST_S: Final = 0.25
"""The pause between two records of which each is alone."""
GETTING_ACQUAINTED: Final = 3
"""How many records each partition has got before the fault: a log that loses two of them is not empty then."""

# Kafka's own backoffs. Not its request timeout: the faults of the table last a multiple of a shorter one, and where
# a broker falls silent only that shows it.
DEFAULT_BACKOFFS = {
    name: value for name, value in table.KAFKA_S_DEFAULTS.items() if "backoff" in name or name == "linger_ms"
}


class Way(StrEnum):
    """Order in which a quiet producer sends its records."""

    FIRST = "first"
    """One by one, with pauses; the fault is there before the first."""
    NEXT = "next"
    """One by one, with pauses; each partition has been written to before the fault."""
    LOOP = "loop"
    """One the moment that the one before is acknowledged; one is under way when the fault begins."""


class Neighbour(StrEnum):
    """Events of another topic during the scenario."""

    NONE = "alone"
    BUSY = "busy"
    """It is written to steadily."""
    REFUSED = "refused"
    """So it is, and each batch is refused for good."""


NEIGHBOURS: Final = (Neighbour.BUSY, Neighbour.REFUSED)


class Quiet(NamedTuple):
    """A scenario and its variant."""

    scenario: Scenario
    mode: Mode
    way: Way
    neighbour: Neighbour

    def __str__(self) -> str:
        return f"{self.scenario.name}-{self.mode}-{self.way}-{self.neighbour}"

    @property
    def course(self) -> Course:
        """Course of the scenario with its way and neighbour."""
        return partial(_play, way=self.way, neighbour=self.neighbour)


def quiet(scenario: Scenario) -> Scenario:
    """Return *scenario* for a producer with Kafka's backoffs that has a neighbour topic to write to, too."""
    late_s = 0.0 if scenario.recovery_s is None else scenario.recovery_s - RECOVERY_S
    return replace(
        scenario,
        topics={**scenario.topics, NEIGHBOUR: BROKERS},
        options={**OPTIONS, **scenario.options, **DEFAULT_BACKOFFS},
        recovery_s=None if scenario.recovery_s is None else ACKNOWLEDGED_IN_S + late_s,
    )


async def _play(world: World, scenario: Scenario, mode: Mode, way: Way, neighbour: Neighbour) -> Findings:
    if way is Way.FIRST:
        scenario = _from_the_start(scenario)
    elif _may_get_acquainted(scenario):
        for _ in range(GETTING_ACQUAINTED):
            _ = await _one_each(world)
    async with _neighbour(neighbour, world):
        over_at = await _send_through_fault(world, scenario, way)
    # Until the last answer to expired records has arrived, or can no longer arrive.
    await asyncio.sleep(world.producer.config.request_timeout_ms / 1000)
    last = await _one_each(world)
    findings = checked(world, scenario, mode)
    if scenario.recovery_s is not None:
        _check_recovery(world.load, over_at, scenario.recovery_s, scenario.may_fail, findings)
    check_works_again(last, findings)
    return findings


async def _send_through_fault(world: World, scenario: Scenario, way: Way) -> float:
    """Run the fault, send until some time after it, and return the time of its end."""
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        _ = group.create_task(_send_until(over, world, 0.0 if way is Way.LOOP else REST_S), name="sending")
        if way is Way.LOOP:
            await asyncio.sleep(CALM_S)
        await scenario.fault(world)
        over.set()
        return asyncio.get_running_loop().time()


def _from_the_start(scenario: Scenario) -> Scenario:
    """Return *scenario* for records that wait for metadata before the append, and may fail while they wait."""
    may_fail = scenario.may_fail
    if DeliveryTimeout in may_fail:
        may_fail += (MetadataTimeout,)
    unsent_may_fail = scenario.unsent_may_fail or TopicAuthorizationFailed in may_fail
    return replace(scenario, may_fail=may_fail, unsent_may_fail=unsent_may_fail)


def _may_get_acquainted(scenario: Scenario) -> bool:
    """True if the cluster works before the fault begins."""
    return scenario.before is None and TOPIC in scenario.topics


async def _send_until(over: asyncio.Event, world: World, rest_s: float) -> None:
    """Send to the partitions in turn until *over* is set, and then once more to each partition."""
    turn = itertools.count()
    while not over.is_set():
        _ = await world.load.call(next(turn) % world.partitions)
        await asyncio.sleep(rest_s)
    _ = await _one_each(world, rest_s)


async def _one_each(world: World, rest_s: float = 0.0) -> list[Sent]:
    """Send one record to each partition, one after the other."""
    sent = []
    for partition in range(world.partitions):
        sent.append(await world.load.call(partition))
        await asyncio.sleep(rest_s)
    return sent


def _check_recovery(
    load: Load,
    over_at: float,
    recovery_s: float,
    may_fail: tuple[type[ProducerError], ...],
    findings: Findings,
) -> None:
    """Report a finding if a record is not delivered *recovery_s* after the fault, or after its call."""
    for each in load:
        rightly_failed = each.called_at <= over_at and isinstance(each.error, may_fail)
        if rightly_failed or each.resolved_at <= over_at:
            continue
        after_s = each.resolved_at - max(over_at, each.called_at)
        if each.delivered is None or after_s > recovery_s:
            findings.report("recovers in time", f"{each} after {after_s:.3f} s ({each.outcome!r})")


@asynccontextmanager
async def _neighbour(kind: Neighbour, world: World) -> AsyncIterator[None]:
    """Run the events of the other topic."""
    if kind is Neighbour.REFUSED:
        _ = world.cluster.on("produce", topic=NEIGHBOUR, times=None).answer(TopicAuthorizationFailed)
    if kind is Neighbour.NONE:
        yield
        return
    task = asyncio.create_task(_send_to_neighbour(world.producer), name="neighbour")
    try:
        yield
    finally:
        _ = task.cancel()
        await asyncio.wait([task])
        await world.producer.flush()


async def _send_to_neighbour(producer: Producer) -> None:
    for number in itertools.count():
        with suppress(ProducerError):
            _ = await producer.enqueue(NEIGHBOUR, b"n/%d" % number, partition=number % BROKERS)
        await asyncio.sleep(NEIGHBOURS_PAUSE_S)


def cases() -> Iterator[Quiet]:
    """Yield what is played: a choice of all that there is, since with a neighbour a scenario takes ten times as long.

    What goes wrong with brokers and topics is played alone in every way, and with one neighbour. What answers say is
    played alone in every way by an idempotent producer, in one way by a plain one, and a third of it with a neighbour.
    """
    about_the_cluster = (*table.BROKERS, *table.TOPICS)
    numbers = itertools.count()
    for scenario in table.SCENARIOS:
        if scenario.options.items() >= table.KAFKA_S_DEFAULTS.items():
            continue  # here all have Kafka's backoffs
        ways = [way for way in Way if way is not Way.NEXT or _may_get_acquainted(scenario)]
        for mode in (IDEMPOTENT, PLAIN[0]):
            if mode not in scenario.modes:
                continue
            number = next(numbers)
            at_turn = ways[number % len(ways)]
            everything = scenario in about_the_cluster
            for way in ways if everything or mode.idempotent else [at_turn]:
                yield Quiet(quiet(scenario), mode, way, Neighbour.NONE)
            if everything or number % 3 == 0:
                yield Quiet(quiet(scenario), mode, at_turn, NEIGHBOURS[number // 3 % 2])
