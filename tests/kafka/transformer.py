"""A process that consumes, transforms and produces exactly once, until it is killed.

python -m tests.kafka.transformer SERVERS ID GROUP INPUT OUTPUT [KILLED_AT]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from aioproducer import CommitFailed, Producer

SESSION_TIMEOUT_MS = 2_000
AT_ONCE = 20
PARTITIONS = 3


class Transformer:
    """A member of a group that commits its input offsets and its output together.

    *killed_at* is a step: "written", "offsets", "committed". It kills itself there in its third transaction.
    """

    def __init__(
        self, servers: str, name: str, group: str, source: str, sink: str, killed_at: str = ""
    ) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 200,
                "log_level": 0,
            }
        )
        self._producer = Producer(servers, transactional_id=name)
        self._source, self._sink, self._killed_at = source, sink, killed_at
        self._transactions = 0

    async def run(self) -> None:
        """Go on for ever."""
        async with self._producer:
            # With a callback the group waits for us before it takes partitions away; else they may be another's while
            # we still write what was read of them, and the metadata would already be that of the next generation.
            self._consumer.subscribe([self._source], on_revoke=lambda *_: say("revoked"))
            while True:
                messages = await asyncio.to_thread(self._consumer.consume, AT_ONCE, 0.1)
                if read := [each for each in messages if each.error() is None]:
                    await self._transform(read)

    async def _transform(self, messages: Sequence[Message]) -> None:
        self._transactions += 1
        offsets: dict[tuple[str, int], int] = {}
        try:
            async with self._producer.transaction() as transaction:
                for message in messages:
                    topic, partition, offset = message.topic(), message.partition(), message.offset()
                    assert topic is not None
                    assert partition is not None
                    assert offset is not None
                    offsets[topic, partition] = offset + 1
                    value = (message.value() or b"").upper()
                    _ = await self._producer.enqueue(self._sink, value, partition=offset % PARTITIONS)
                self._at("written")
                await transaction.send_offsets(offsets, self._consumer.consumer_group_metadata())
                self._at("offsets")
        except (
            CommitFailed
        ) as error:  # for example, the group has removed this member: it reads its records again
            say(f"{type(error).__name__}: {error}")
            self._rewind()
        self._at("committed")
        say(f"{len(messages)} transformed")

    def _rewind(self) -> None:
        assigned = self._consumer.assignment()
        for each in self._consumer.committed(assigned, timeout=10) if assigned else ():
            try:
                self._consumer.seek(TopicPartition(each.topic, each.partition, max(0, each.offset)))
            except KafkaException as error:  # it has been taken away meanwhile
                say(f"{error}")

    def _at(self, step: str) -> None:
        if step == self._killed_at and self._transactions == 3:
            os.kill(os.getpid(), signal.SIGKILL)


def say(what: str) -> None:
    """Say it at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(Transformer(*sys.argv[1:]).run())
