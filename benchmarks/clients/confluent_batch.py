"""confluent-kafka's Producer.produce_batch: the fastest way there is into librdkafka from Python."""

from __future__ import annotations

from itertools import repeat
from typing import Any, ClassVar, Final

from benchmarks.clients.base import Client
from benchmarks.clients.confluent import configuration, flush
from benchmarks.payload import Window
from benchmarks.settings import Work

QUEUE_RECORDS: Final = 100_000
"""What librdkafka's queue holds by default: more than the calls that others have in flight."""
ROOM_POLL_S: Final = 0.001


class ConfluentBatch(Client):
    """Synchronous; call follows call as long as librdkafka's queue has room. It takes no headers."""

    works: ClassVar = frozenset({Work.BULK, Work.ONE_BY_ONE})
    distribution: ClassVar = "confluent-kafka"

    async def start(self) -> None:
        """Make a producer; it connects by itself."""
        from confluent_kafka import Producer

        self._producer = Producer(configuration(self.servers, self.settings))
        self._room = self.settings.options.get("queue.buffering.max.messages", QUEUE_RECORDS)
        self._messages: dict[int, list[dict[str, Any]]] = {}

    async def close(self) -> None:
        """End it."""
        flush(self._producer)

    async def bulk(self, window: Window) -> None:
        """Hand records over with one call, when there is room for all of them: finding none is dear."""
        messages = self._as_messages(window)
        while len(self._producer) + len(messages) > self._room:
            self._producer.poll(ROOM_POLL_S)
        taken = self._producer.produce_batch(self.topic, messages)
        self._producer.poll(0)
        if taken < len(messages):
            raise BufferError(f"only {taken} of {len(messages)} records were taken")

    async def settle(self) -> None:
        """Wait for everything."""
        flush(self._producer)

    def _as_messages(self, window: Window) -> list[dict[str, Any]]:
        """Return the form that the call takes; made once, as a program would that has its records in that form."""
        messages = self._messages.get(id(window))
        if messages is None:
            keys = window.keys or repeat(None)
            messages = [
                {"value": value} if key is None else {"value": value, "key": key}
                for value, key in zip(window.values, keys, strict=False)
            ]
            self._messages[id(window)] = messages
        return messages
