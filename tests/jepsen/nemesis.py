"""Faults, one after the other: each lasts some seconds and is then healed. The seed decides kinds, nodes and durations."""

from __future__ import annotations

import asyncio
from itertools import combinations
from random import Random
from typing import Final

from tests.jepsen.history import Recorder
from tests.jepsen.network import (
    BROKERS,
    CLIENT,
    COORDINATOR_REQUESTS,
    PRODUCE_REQUESTS,
    Network,
    ProxiedKafka,
)

FAULTS: Final = ("kill", "pause", "cut clients", "cut brokers")
LATE: Final = {
    "coordinator": (COORDINATOR_REQUESTS, 0.2),
    "produce": (PRODUCE_REQUESTS, 0.1),
    "no": ((), 0.0),
}


class Nemesis:
    """Two concurrent sequences: faults of brokers and links, and periods with late requests."""

    def __init__(self, kafka: ProxiedKafka, network: Network, record: Recorder, seed: str) -> None:
        self._kafka = kafka
        self._network = network
        self._record = record
        self._faults = Random(f"{seed}/faults")
        self._lateness = Random(f"{seed}/late")

    async def run(self, stop: asyncio.Event) -> None:
        """Cause faults until *stop* is set; return after the last fault is healed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._break(stop))
            tasks.create_task(self._delay(stop))

    async def _break(self, stop: asyncio.Event) -> None:
        random = self._faults
        while not await passed(stop, random.uniform(2, 6)):
            kind, node_id = random.choice(FAULTS), random.choice(BROKERS)
            link = random.choice([*combinations(BROKERS, 2)])
            duration_s = random.uniform(1, 6)
            where = link if kind == "cut brokers" else (node_id,)
            self._record("fault", fault=kind, nodes=where, duration_s=round(duration_s, 1))
            match kind:
                case "kill":
                    await asyncio.to_thread(self._kafka.kill, node_id)
                    await passed(stop, duration_s)
                    await asyncio.to_thread(self._kafka.restart, node_id)
                case "pause":
                    self._kafka.freeze(node_id)
                    await passed(stop, duration_s)
                    self._kafka.thaw(node_id)
                case _:
                    ends = link if kind == "cut brokers" else (CLIENT, node_id)
                    self._network.cut(*ends)
                    await passed(stop, duration_s)
                    self._network.heal(*ends)
            self._record("healed", fault=kind)

    async def _delay(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            requests = self._lateness.choice([*LATE])
            self._record("late requests", requests=requests)
            self._network.deliver_late(*LATE[requests])
            await passed(stop, self._lateness.uniform(2, 6))
        self._network.deliver_late(())


async def passed(stop: asyncio.Event, seconds: float) -> bool:
    """Wait for *seconds*, or until *stop* is set. Return True if *stop* is set."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True
