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
"""The shortest time after which it looks for records that wait in its buffer."""


class ConfluentAio(Client):
    """It buffers records before librdkafka does: by default until there are 1,000, or for a second.

    It takes no headers. With equal settings its buffer holds one record where others get no linger.
    """

    works: ClassVar = frozenset({Work.CLOSED, Work.FIRE, Work.LONE, Work.LAG})
    distribution: ClassVar = "confluent-kafka"

    async def start(self) -> None:
        """Make a producer; it connects by itself."""
        from confluent_kafka.aio import AIOProducer

        self._producer = AIOProducer(configuration(self.servers, self.settings), **self._buffer())

    def _buffer(self) -> dict[str, Any]:
        if self.settings.tuning is not Tuning.EQUAL:
            return {name: value for name, value in self.settings.options.items() if "." not in name}
        if self.settings.linger_ms == 0:
            return {"batch_size": 1, "buffer_timeout": SOON_S}
        return {"buffer_timeout": SOON_S}

    async def close(self) -> None:
        """End it."""
        await self._producer.close()

    def call(self, value: bytes) -> Send:
        """Return the call that sends one record, in two steps."""
        return partial(self._send, value)

    async def _send(self, value: bytes) -> Any:
        return await (await self._producer.produce(self.topic, value))

    def enqueue(self, value: bytes) -> Awaitable[Future[Any]]:
        """Hand one record over."""
        return self._producer.produce(self.topic, value)

    async def fire(self, window: Window) -> None:
        """Hand records over one by one, then wait for each."""
        topic, produce = self.topic, self._producer.produce
        futures = [await produce(topic, value) for value in window.values]
        for future in futures:
            await future
