"""Random faults of an honest cluster: brokers and connections are lost, and all answers are true."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from aioproducer import Producer, ProducerError
from aioproducer.errors import (
    MessageTooLarge,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    OutOfOrderSequenceNumber,
    RecordPurged,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from aioproducer.testing import Cluster, Rule
from tests.scenarios.faults.chronicle import Chronicle
from tests.scenarios.faults.faults import may_move
from tests.scenarios.faults.meddler import Meddler
from tests.scenarios.faults.shortage import no_threads
from tests.scenarios.faults.world import BROKERS

log: Final = logging.getLogger(__name__)

MOST_PARTITIONS: Final = 6
BATCHES_MAX_BYTES: Final = 1_000_000
OUTAGES_S: Final = (0.05, 0.5, 1.5, 3.0)

Trouble = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Troubles:
    """Lets things go wrong, one after the other or several at a time, and puts them right again."""

    cluster: Cluster
    chronicle: Chronicle
    chance: Random
    shrinks: bool
    """Whether a topic may have fewer partitions when it is created again."""
    ill: set[int] = field(default_factory=set)
    """The nodes that are away or frozen."""
    meddler: Meddler | None = None
    producer: Producer | None = None
    rules: list[Rule] = field(default_factory=list)
    may_fail: set[type[ProducerError]] = field(default_factory=set)
    """What records may fail with, by what has gone wrong so far."""

    async def run(self, seconds: float, per_second: float) -> None:
        """Begin something every now and then for *seconds*; return when all is well again."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        kinds: list[Trouble] = [
            *[self.leader_moves] * 3,
            *[self.connections_reset] * 2,
            *[self.broker_stops] * 2,
            *[self.broker_freezes] * 2,
            self.broker_moves,
            self.addresses_exchanged,
            *[self.answers_lost] * 3,
            *[self.answers_late] * 2,
            self.replicas_missing,
            self.writing_forbidden,
            self.topic_unheard_of,
            self.topic_grows,
            self.topic_recreated,
            self.batches_limited,
            self.end_lost,
            *[self.user_code] * 2,
            self.no_threads,
            *[self.long_throttle] * 2,
        ]
        async with asyncio.TaskGroup() as group:
            while loop.time() < end:
                kind = self.chance.choice(kinds)
                _ = group.create_task(kind(), name=kind.__name__)
                await asyncio.sleep(self.chance.expovariate(per_second))
        await self.end_rules()

    async def end_rules(self) -> None:
        """Remove all rules, and wait until the last throttle is over: the calm begins without a throttled broker."""
        for rule in self.rules:
            rule.remove()
        throttle_ms = max((rule.throttle_ms for rule in self.rules), default=0)
        self.rules.clear()
        await asyncio.sleep(throttle_ms / 1_000)

    @property
    def alive(self) -> list[int]:
        """Running nodes, which may become leaders."""
        return sorted(set(range(1, BROKERS + 1)) - self.ill)

    def leaders(self, partitions: int) -> list[int]:
        """Return a leader for each of *count* new partitions."""
        if self.chance.random() < 0.5 and not self.ill:  # as brokers choose them
            return [1 + partition % BROKERS for partition in range(partitions)]
        return [self.chance.choice(self.alive) for _ in range(partitions)]

    # --- each returns when it is over -------------------------------------------------------------------------------

    async def leader_moves(self) -> None:
        """Let other nodes lead a partition, or all of them; maybe there and back."""
        found = self._partitions()
        for topic, partition in found if self.chance.random() < 0.3 else found[:1]:
            leaders = [self.chance.choice(self.alive) for _ in range(self.chance.choice((1, 1, 2)))]
            self._say(f"{topic}-{partition} is led by {leaders}")
            for leader in leaders:
                self.cluster.move_leader(topic, partition, to_broker=leader)

    async def connections_reset(self) -> None:
        """Reset the connections to a node, or to all."""
        nodes = self.chance.choice(((1,), (2,), (3,), (1, 2, 3)))
        self._say(f"the connections to {nodes} are reset")
        for node in nodes:
            self.cluster.disconnect(node)

    async def broker_stops(self) -> None:
        """Stop a node for a while."""
        if len(self.alive) < 2:
            return
        node, s = self.chance.choice(self.alive), self.chance.choice(OUTAGES_S)
        failover = self.chance.random() < 0.5
        self.ill.add(node)
        self._say(f"broker {node} stops for {s} s{', others lead' if failover else ''}")
        await self.cluster.stop_broker(node, failover=False)
        if failover:
            for topic in self.chronicle.topics:
                for partition in range(self.chronicle.partitions(topic)):
                    if self.chronicle.leader(topic, partition) == node:
                        self.cluster.move_leader(topic, partition, to_broker=self.chance.choice(self.alive))
        await asyncio.sleep(s)
        await self.cluster.start_broker(node)
        self._say(f"broker {node} is back")
        self.ill.discard(node)

    async def broker_freezes(self) -> None:
        """Freeze a node for a while."""
        if len(self.alive) < 2:
            return
        node, s = self.chance.choice(self.alive), self.chance.choice(OUTAGES_S)
        self.ill.add(node)
        self._say(f"broker {node} freezes for {s} s")
        self.cluster.freeze_broker(node)
        await asyncio.sleep(s)
        self.cluster.thaw_broker(node)
        self.ill.discard(node)

    async def broker_moves(self) -> None:
        """Give a node another address."""
        node = self.chance.choice(self.alive or [None])
        if node is not None and self.producer is not None and may_move(self.cluster, self.producer, node):
            self._say(f"broker {node} moves")
            await self.cluster.move_broker(node)

    async def addresses_exchanged(self) -> None:
        """Let two nodes exchange their addresses."""
        if len(self.alive) >= 2:
            one, other = self.chance.sample(self.alive, 2)
            self._say(f"brokers {one} and {other} exchange their addresses")
            await self.cluster.exchange_addresses(one, other)

    async def answers_lost(self) -> None:
        """Lose the connection over some requests, before the append or after it."""
        before_append = self.chance.random() < 0.3
        self._say(f"the connection is lost {'before' if before_append else 'after'} an append")
        self._rule("produce").close(before_append=before_append)

    async def answers_late(self) -> None:
        """Be late with some answers."""
        s, before_append = self.chance.choice((0.05, 0.3, 1.5)), self.chance.random() < 0.5
        request = self.chance.choice(("produce", "produce", "metadata", None))
        self._say(f"answers to {request} are late by {s} s")
        self._rule(request).delay(s, before_append=before_append)

    async def long_throttle(self) -> None:
        """Throttle some requests for longer than the request timeout, or even the delivery timeout."""
        s, request = (
            self.chance.choice((1.5, 3.0)),
            self.chance.choice(("produce", "produce", "metadata", None)),
        )
        self._say(f"requests ({request}) are throttled for {s} s")
        self._rule(request).throttle(int(s * 1_000))

    async def replicas_missing(self) -> None:
        """Have too few replicas to append, or to acknowledge an append."""
        errors = (NotEnoughReplicas, NotEnoughReplicas, NotEnoughReplicasAfterAppend, RequestTimedOut)
        error = self.chance.choice(errors)
        self._say(f"too few replicas: {error.__name__}")
        self._rule("produce").answer(error, before_append=error is NotEnoughReplicas)

    async def writing_forbidden(self) -> None:
        """Refuse some batches with a final error; later batches are accepted."""
        self._say("some batches are refused for good")
        self.may_fail.add(TopicAuthorizationFailed)
        self._rule("produce").answer(TopicAuthorizationFailed)

    async def topic_unheard_of(self) -> None:
        """Let brokers learn a topic late, as with a new topic."""
        topic = self.chance.choice(self.chronicle.topics or [None])
        times = self.chance.choice((1, 2, 4))
        self._say(f"{times} answers do not know {topic}")
        self._rule("produce", topic=topic).answer(UnknownTopicOrPartition)
        self._rule("metadata", topic=topic, times=times).answer(UnknownTopicOrPartition)

    async def topic_grows(self) -> None:
        """Give a topic more partitions."""
        if not self.chronicle.topics:
            return
        topic, more = self.chance.choice(self.chronicle.topics), self.chance.choice((1, 2))
        if self.chronicle.partitions(topic) + more <= MOST_PARTITIONS:
            self._say(f"{topic} has {more} partitions more")
            self.chronicle.grow(topic, self.leaders(more))

    async def topic_recreated(self) -> None:
        """Delete a topic and recreate it at once or later, with the same or other leaders."""
        if not self.chronicle.topics:
            return
        topic = self.chance.choice(self.chronicle.topics)
        before = count = self.chronicle.partitions(topic)
        leaders = [self.chronicle.leader(topic, partition) for partition in range(count)]
        s = self.chance.choice((0.0, 0.05, 0.5))
        self._say(f"{topic} is deleted, and is back after {s} s")
        self.chronicle.delete(topic)
        await asyncio.sleep(s)
        if self.chance.random() < 0.5 or not self.ill.isdisjoint(leaders):
            count += self.chance.choice((-1, 0, 1) if self.shrinks else (0, 1))
            leaders = self.leaders(min(max(count, 1), MOST_PARTITIONS))
        if len(leaders) < before:
            self.may_fail.add(UnknownTopicOrPartition)
        self.chronicle.create(topic, leaders)
        self._say(f"{topic} is back, led by {leaders}")

    async def batches_limited(self) -> None:
        """Take only small batches for a while."""
        limit = self.chance.choice((100, 300, 2000))
        self._say(f"batches have at most {limit} bytes")
        # The second one says of a record that it is in the log already, from before, and has become too large (R13).
        self.may_fail |= {MessageTooLarge, OutOfOrderSequenceNumber}
        self.cluster.message_max_bytes = limit
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        self.cluster.message_max_bytes = BATCHES_MAX_BYTES

    async def user_code(self) -> None:
        """Let an interceptor and a log handler call the producer, and raise, for a while."""
        meddler, producer = self.meddler, self.producer
        if meddler is None or producer is None or meddler.is_active:
            return
        s = self.chance.choice((0.05, 0.5, 3.0))
        self._say(f"user code calls the producer for {s} s")
        self.may_fail.add(RecordPurged)
        with meddler.active(producer, producer.purge):
            await asyncio.sleep(s)

    async def end_lost(self) -> None:
        """Let a log lose its last records: the new leader has not replicated them."""
        for topic, partition in self._partitions()[:1]:
            records = self.chance.choice((1, 3, 10, 1_000_000))
            leader = self.chance.choice(self.alive)
            self._say(f"{topic}-{partition} loses its last {records} records, broker {leader} leads")
            self.chronicle.lose_end(topic, partition, records, leader)

    async def no_threads(self) -> None:
        """Let no thread start for a while."""
        s = self.chance.choice(OUTAGES_S)
        self._say(f"no thread can be started for {s} s")
        await no_threads(s)

    # --- details ----------------------------------------------------------------------------------------------------

    def _partitions(self) -> list[tuple[str, int]]:
        """Return the partitions of a topic, in any order; none if there is no topic."""
        if not self.chronicle.topics:
            return []
        topic = self.chance.choice(self.chronicle.topics)
        count = self.chronicle.partitions(topic)
        return [(topic, partition) for partition in self.chance.sample(range(count), count)]

    def _rule(self, request: str | None, *, topic: str | None = None, times: int | None = None) -> Rule:
        rule = self.cluster.on(request, topic=topic, times=times or self.chance.choice((1, 1, 2, 4)))
        self.rules.append(rule)
        return rule

    def _say(self, what: str) -> None:
        log.info("%.3f %s", asyncio.get_running_loop().time(), what)
