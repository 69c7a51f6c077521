"""A pipelined stream while brokers answer with changing errors: afterwards all records are delivered."""

from __future__ import annotations

import asyncio
import random

from aioproducer import Producer, RecordMetadata
from aioproducer._core.idempotence import SEQUENCE_REFUSALS
from aioproducer.errors import (
    BrokerError,
    CorruptMessage,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from aioproducer.testing import Cluster
from aioproducer.testing.faults import Rule
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, scenario, values

PARTITIONS = 2
SQUALL_S = 2.0
AT_ONCE = 4
RECOVERY_S = 1.0
DENIED_S = 0.15
"""The pause between two refusals of a sequence: longer than the longest until a batch is sent again."""
PASSING: list[type[BrokerError]] = [
    CorruptMessage,
    UnknownTopicOrPartition,
    NotLeaderOrFollower,
    RequestTimedOut,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    KafkaStorageError,
]
REFUSALS: list[type[BrokerError]] = [*PASSING, *SEQUENCE_REFUSALS]
AFTER_THE_APPEND: list[type[BrokerError]] = [
    RequestTimedOut,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
]


async def send_steadily(producer: Producer, until: float) -> int:
    """Send a record to each partition every few milliseconds, and return the acknowledged number per partition."""
    sent: list[asyncio.Future[RecordMetadata]] = []
    while now() < until:
        for partition in range(PARTITIONS):
            value = b"%06d" % (len(sent) // PARTITIONS)
            sent.append(producer.send_nowait(TOPIC, value, partition=partition))
        await asyncio.sleep(0.003)
    ended = now()
    await asyncio.gather(*sent)
    assert now() - ended < RECOVERY_S
    return len(sent) // PARTITIONS


async def blow(cluster: Cluster, chance: random.Random, until: float) -> None:
    """Let some answers be refusals, before or after the append; now and then a leader moves, a connection breaks.

    A leader that has a batch may deny it, but not again and again: three times in a row would be believed.
    """
    rules: list[Rule] = []
    denied_at = -1.0
    while now() < until:
        rules = [rule for rule in rules if not rule.is_spent()]
        if len(rules) < AT_ONCE and chance.random() < 0.5:
            after = chance.random() < 0.2
            kinds = AFTER_THE_APPEND if after else REFUSALS if now() > denied_at + DENIED_S else PASSING
            refusal = chance.choice(kinds)
            if refusal in SEQUENCE_REFUSALS:
                denied_at = now()
            rule = cluster.on("produce", topic=TOPIC, after=chance.randrange(4))
            rules.append(rule.answer(refusal, before_append=not after))
        if chance.random() < 0.01:
            cluster.move_leader(TOPIC, chance.randrange(PARTITIONS), to_broker=chance.randint(1, 3))
        if chance.random() < 0.01:
            cluster.disconnect(chance.randint(1, 3))
        await asyncio.sleep(0.002)
    for rule in rules:
        rule.remove()


@for_each("seed", [*range(5), 41, 87, 96])
@scenario
async def test_records_are_delivered_once_in_order_after_faults(seed: int) -> None:
    random.seed(seed)
    chance = random.Random(seed)
    async with (
        open_cluster(brokers=3, partitions=PARTITIONS, latency_s=0.01) as cluster,
        Producer(
            cluster.bootstrap_servers, linger_ms=0, retry_backoff_ms=50, retry_backoff_max_ms=100
        ) as producer,
    ):
        await producer.send_many(TOPIC, [b""] * PARTITIONS, partitions=range(PARTITIONS))
        end = now() + SQUALL_S
        squall = asyncio.create_task(blow(cluster, chance, end))
        count = await send_steadily(producer, end + 0.001)
        await squall
        for partition in range(PARTITIONS):
            assert values(cluster, partition) == [b"", *(b"%06d" % number for number in range(count))]
