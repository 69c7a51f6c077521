"""One seed of the differential check: a random producer, callers and troubles, and the result."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, Final, NamedTuple
from unittest import mock

from aioproducer import Producer
from aioproducer.testing import Cluster
from tests.checker import Findings
from tests.scenarios.faults.callers import Callers, Wish
from tests.scenarios.faults.chronicle import Chronicle
from tests.scenarios.faults.meddler import Meddler
from tests.scenarios.faults.model import ACKNOWLEDGED_IN_S, Calm, History, check
from tests.scenarios.faults.traffic import TOPICS, Traffic
from tests.scenarios.faults.troubles import BATCHES_MAX_BYTES, Troubles
from tests.scenarios.faults.world import BROKERS, check_connections, check_leftovers, check_tasks

EPISODES: Final = 3
SETTLING_S: Final = 5.0
"""How long, beyond the request timeout, it may take until nothing is held up any more by what went wrong."""
CALM_S: Final = ACKNOWLEDGED_IN_S + 0.5
EPOCH_NS: Final = 1_700_000_000_000_000_000
"""What the wall clock shows at the beginning: it goes with the loop's, so that a seed always makes the same batches."""
SLOW_S: Final = 0.02
PLENTY: Final = 33_554_432
SHORT: Final = 12_000


class Played(NamedTuple):
    """Result of a trial."""

    findings: Findings
    records: int


@dataclass(slots=True)
class Trial:
    """Parameters of a seed."""

    seed: int
    chance: Random = field(init=False)
    idempotent: bool = field(init=False)
    latency_s: float = field(init=False)
    largest: int = field(init=False)
    """How large values are at most."""
    options: dict[str, Any] = field(init=False)
    meddler: Meddler | None = field(init=False)

    def __post_init__(self) -> None:
        # Records of producers without user code go a shorter way.
        self.meddler = Meddler(Random(self.seed)) if self.seed % 2 else None
        chance = self.chance = Random(self.seed)
        self.idempotent = chance.random() < 0.7
        self.latency_s = chance.choice((0.0, 0.002, SLOW_S))
        memory = chance.choice((PLENTY, PLENTY, SHORT))
        self.largest = chance.choice((20, 20, 4000)) if memory == PLENTY else 20
        request_timeout_ms = chance.choice((300, 1000))
        self.options = {
            "enable_idempotence": self.idempotent,
            "request_timeout_ms": request_timeout_ms,  # as short as the outages; the backoffs are Kafka's
            "socket_connection_setup_timeout_ms": request_timeout_ms,
            "delivery_timeout_ms": request_timeout_ms + chance.choice((2000, 5000, 20_000)),
            "max_block_ms": chance.choice((300, 4000)),
            "buffer_memory": memory,
            "batch_size": chance.choice((0, 300, 16_384, 200_000)),
            "linger_ms": chance.choice((0, 5, 50)),
            "max_in_flight_requests_per_connection": chance.choice((1, 2, 5)),
            "compression_type": chance.choice(("none", "none", "lz4")),
            "interceptors": [] if self.meddler is None else [self.meddler],
        }

    def __str__(self) -> str:
        kind = "idempotent" if self.idempotent else "plain"
        return f"{kind}, latency {self.latency_s} s, values of up to {self.largest} bytes, {self.options}"

    @property
    def memory_is_short(self) -> bool:
        """True if calls may have to wait for memory."""
        return bool(self.options["buffer_memory"] == SHORT)

    async def play(self) -> Played:
        """Run the trial, and return the broken promises."""
        random.seed(self.seed)  # jitter, and which broker is asked first
        loop = asyncio.get_running_loop()
        complaints: list[str] = []
        loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
        cluster = Cluster(
            BROKERS,
            transport="memory",
            latency_s=self.latency_s,
            auto_create_topics=False,
            message_max_bytes=BATCHES_MAX_BYTES,
        )
        left = Findings()

        def wall_ns() -> int:
            return EPOCH_NS + int(1_000_000_000 * loop.time())

        with mock.patch("time.time_ns", wall_ns):
            async with cluster:
                chronicle = Chronicle(cluster)
                troubles = Troubles(cluster, chronicle, self.chance, shrinks=not self.memory_is_short)
                for topic in TOPICS:
                    chronicle.create(topic, troubles.leaders(self.chance.randint(1, 4)))
                async with Producer(cluster.bootstrap_servers, **self.options) as producer:
                    troubles.meddler, troubles.producer = self.meddler, producer
                    callers = Callers(producer, self.memory_is_short)
                    calms = [
                        *[await self._episode(callers, troubles) for _ in range(EPISODES)],
                        await self._end(callers, chronicle),
                    ]
                    check_leftovers(producer, left)
                await check_connections(cluster, left)
                chronicle.end()
        check_tasks(left)
        for what in (*complaints, *callers.bugs):
            left.report("no bug comes up", what)
        findings = check(
            History(
                idempotent=self.idempotent,
                calls=callers.calls,
                lives=chronicle.lives,
                calms=calms,
                may_fail=troubles.may_fail,
            )
        )
        findings.broken.update(left.broken)
        return Played(findings, len(callers.calls))

    async def _episode(self, callers: Callers, troubles: Troubles) -> Calm:
        """Send while things go wrong, and for a while after that."""
        loop, chance = asyncio.get_running_loop(), self.chance
        # Where a batch takes long and has but one record, a partition cannot take more.
        calls_per_s = 10.0 if self.latency_s == SLOW_S else 50.0
        traffic = Traffic(callers, troubles.chronicle, chance, self.largest, calls_per_s)
        quiet = chance.random() < 0.5
        sending = loop.create_task(traffic.one_by_one() if quiet else traffic.many(), name="traffic")
        await asyncio.sleep(chance.choice((0.0, 0.1, 0.5)))
        traffic.calm = False
        await troubles.run(chance.uniform(0.1, 2.0), 1.0 if quiet else 4.0)
        traffic.calm = True
        began_at = loop.time()
        settled_at = began_at + SETTLING_S + self.options["request_timeout_ms"] / 1000
        await asyncio.sleep(settled_at - began_at + CALM_S)
        calm = Calm(began_at, settled_at, loop.time())
        traffic.enough = True
        await sending
        return calm

    async def _end(self, callers: Callers, chronicle: Chronicle) -> Calm:
        """Wait until every call has its outcome; then send one record to each partition, and one more."""
        with suppress(TimeoutError):  # if it does not end, calls have no outcome: the model will say so
            await callers.producer.flush(callers.producer.config.delivery_timeout_ms / 1000 + 1)
        await asyncio.sleep(SETTLING_S)
        began_at = asyncio.get_running_loop().time()
        places = [(topic, partition) for topic in TOPICS for partition in range(chronicle.partitions(topic))]
        for topic, partition in places:
            await asyncio.wait([callers.start(Wish("send", topic, partition, [20]))])
        await asyncio.wait([callers.start(Wish("send", *place, [20])) for place in places])
        return Calm(began_at, began_at, inf)
