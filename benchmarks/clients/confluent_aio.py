"""confluent-kafka's AIOProducer."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable
from functools import partial
from typing import Any, ClassVar, Final

from benchmarks.clients.base import Client, Send
from benchmarks.clients.confluent import configuration
from benchmarks.payload import Window
from benchmarks.settings import Tuning, Work

SOON_S: Final = 0.1
"""Shortest interval in which AIOProducer checks its buffer for records, in seconds."""


class ConfluentAio(Client):
    """AIOProducer buffers records before librdkafka: by default 1,000 records, or for a second.

    AIOProducer has no headers. In the table *equal*, its buffer holds one record for workloads without a linger.
    """

    workloads: ClassVar = frozenset({Work.CLOSED, Work.FIRE, Work.LONE, Work.LAG})
    distribution: ClassVar = "confluent-kafka"

    async def start(self) -> None:
        """Create the producer, which connects in the background."""
        from confluent_kafka.aio import AIOProducer

        self._producer = AIOProducer(configuration(self.servers, self.settings), **self._buffer())

    def _buffer(self) -> dict[str, Any]:
        if self.settings.tuning is not Tuning.EQUAL:
            return {name: value for name, value in self.settings.options.items() if "." not in name}
        if self.settings.linger_ms == 0:
            return {"batch_size": 1, "buffer_timeout": SOON_S}
        return {"buffer_timeout": SOON_S}

    async def close(self) -> None:
        """Close the producer."""
        await self._producer.close()

    def call(self, value: bytes) -> Send:
        """Return the call that sends one record, in two steps."""
        return partial(self._send, value)

    async def _send(self, value: bytes) -> Any:
        return await (await self._producer.produce(self.topic, value))

    def enqueue(self, value: bytes) -> Awaitable[Future[Any]]:
        """Append one record."""
        return self._producer.produce(self.topic, value)

    async def fire(self, window: Window) -> None:
        """Append records one by one, then wait for each."""
        topic, produce = self.topic, self._producer.produce
        futures = [await produce(topic, value) for value in window.values]
        for future in futures:
            await future
