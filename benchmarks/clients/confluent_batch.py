"""confluent-kafka's Producer.produce_batch, the fastest call of librdkafka from Python."""

from __future__ import annotations

from itertools import repeat
from typing import Any, ClassVar, Final

from benchmarks.clients.base import Client
from benchmarks.clients.confluent import configuration, flush
from benchmarks.payload import Window
from benchmarks.settings import Work

QUEUE_RECORDS: Final = 100_000
"""Default capacity of librdkafka's queue, in records. Other clients have fewer records in flight."""
ROOM_POLL_S: Final = 0.001


class ConfluentBatch(Client):
    """Synchronous client without headers. Calls follow each other while librdkafka's queue has room."""

    workloads: ClassVar = frozenset({Work.BULK, Work.ONE_BY_ONE})
    distribution: ClassVar = "confluent-kafka"

    async def start(self) -> None:
        """Create the producer, which connects in the background."""
        from confluent_kafka import Producer

        self._producer = Producer(configuration(self.servers, self.settings))
        self._room = self.settings.options.get("queue.buffering.max.messages", QUEUE_RECORDS)
        self._messages: dict[int, list[dict[str, Any]]] = {}

    async def close(self) -> None:
        """Wait for all acknowledgements."""
        flush(self._producer)

    async def bulk(self, window: Window) -> None:
        """Append records with one call once the queue has room for all records, because a full queue is expensive."""
        messages = self._as_messages(window)
        while len(self._producer) + len(messages) > self._room:
            self._producer.poll(ROOM_POLL_S)
        taken = self._producer.produce_batch(self.topic, messages)
        self._producer.poll(0)
        if taken < len(messages):
            raise BufferError(f"only {taken} of {len(messages)} records were taken")

    async def settle(self) -> None:
        """Wait for all acknowledgements."""
        flush(self._producer)

    def _as_messages(self, window: Window) -> list[dict[str, Any]]:
        """Return *window* as arguments of `produce_batch`. The list is created once, as in a program with such records."""
        messages = self._messages.get(id(window))
        if messages is None:
            keys = window.keys or repeat(None)
            messages = [
                {"value": value} if key is None else {"value": value, "key": key}
                for value, key in zip(window.values, keys, strict=False)
            ]
            self._messages[id(window)] = messages
        return messages
