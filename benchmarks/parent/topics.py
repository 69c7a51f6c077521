"""Topics of runs: creation, record count and deletion, by confluent-kafka's admin client and consumer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.kafka.apache.leaders import all_answer, all_named

TIMEOUT_S: Final = 30.0


class MissingRecordsError(RuntimeError):
    """A topic lacks acknowledged records or has duplicates, so the figures of the run are invalid."""


class Topics:
    """Topics of one session on one cluster, with a random prefix."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._prefix = f"aioproducer-bench-{secrets.token_hex(3)}"

    @cached_property
    def _admin(self) -> AdminClient:
        """Admin client, created at its first use. Curves of scale use no admin client."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    @contextmanager
    def fresh(self, name: str, partitions: int) -> Iterator[str]:
        """Create a topic, wait until each partition has a leader, and delete the topic afterwards."""
        topic = f"{self._prefix}-{name}"
        created = self._admin.create_topics([NewTopic(topic, num_partitions=partitions)])
        created[topic].result(TIMEOUT_S)
        try:
            self._await_leaders(topic, partitions)
            yield topic
        finally:
            self._admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def check(self, topic: str, partitions: int, sent: int, *, committed: bool = False) -> None:
        """Raise MissingRecordsError unless *topic* has exactly *sent* records.

        With *committed*, only committed records count. A consumer counts the committed records, because markers also
        take offsets.
        """
        of_topic = [(topic, partition) for partition in range(partitions)]
        check_count(sent, seen(self.servers, of_topic) if committed else stored(self.servers, of_topic))

    def _await_leaders(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not self._is_led(topic, partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic} has no leaders after {TIMEOUT_S:.0f} s")
            self._admin.poll(0.02)

    def _is_led(self, topic: str, partitions: int) -> bool:
        known = self._admin.list_topics(topic=topic, timeout=TIMEOUT_S).topics[topic]
        return all_named(known, partitions) and all_answer(self._admin, topic, partitions, TIMEOUT_S)


def stored(servers: str, partitions: Iterable[tuple[str, int]]) -> int:
    """Return the number of records in *partitions* of new topics: the sum of their end offsets."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(*each): latest for each in partitions}
    ends = admin.list_offsets(asked, request_timeout=TIMEOUT_S)
    return sum(end.result(TIMEOUT_S).offset for end in ends.values())


def seen(servers: str, partitions: Sequence[tuple[str, int]]) -> int:
    """Return the number of committed records in *partitions*, as read by a consumer."""
    options = {
        "bootstrap.servers": servers,
        "group.id": "benchmark",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    count, unread, deadline = 0, len(partitions), time.monotonic() + TIMEOUT_S
    with closing(Consumer(options)) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
        while unread and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.2):
                at_end = message.error() is not None
                count, unread = count + (not at_end), unread - at_end
    return count


def check_count(sent: int, stored: int) -> None:
    """Raise MissingRecordsError unless *stored* equals *sent*; duplicates are also an error."""
    if stored != sent:
        raise MissingRecordsError(f"{sent:,} records were acknowledged, but the topic holds {stored:,}")
