"""aioproducer."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable
from functools import partial
from typing import Any, ClassVar

from benchmarks.clients.base import Client, Send, rows
from benchmarks.clients.options import options
from benchmarks.payload import Header, Window
from benchmarks.settings import Work


class Aioproducer(Client):
    """Fires through `enqueue`; in bulk through `send_many`."""

    works: ClassVar = frozenset(Work)
    distribution: ClassVar = "aioproducer"

    async def start(self) -> None:
        """Connect."""
        from aioproducer import Producer
        from aioproducer.config import ProducerConfig

        given = self.options()
        if self.settings.tls:
            given["ssl_truststore_location"] = self.settings.ca_file
        config = ProducerConfig(bootstrap_servers=self.servers, **given)
        self._producer = Producer.from_config(config)
        await self._producer.start()

    def options(self) -> dict[str, Any]:
        """Return what it is configured with."""
        return options(self.settings)

    async def close(self) -> None:
        """End it."""
        await self._producer.close()

    def call(self, value: bytes) -> Send:
        """Return the call that sends one record."""
        return partial(self._producer.send, self.topic, value)

    def call_whole(self, value: bytes, key: bytes | None, headers: list[Header] | None) -> Send:
        """Return the call that sends one record with a key and headers."""
        return partial(self._producer.send, self.topic, value, key, headers=headers or ())

    def enqueue(self, value: bytes) -> Awaitable[Future[Any]]:
        """Hand one record over."""
        return self._producer.enqueue(self.topic, value)

    async def fire(self, window: Window) -> None:
        """Hand records over one by one, then wait for each."""
        topic, enqueue = self.topic, self._producer.enqueue
        if window.keys is None and window.headers is None:
            futures = [await enqueue(topic, value) for value in window.values]
        else:
            futures = [
                await enqueue(topic, value, key, headers=headers or ())
                for value, key, headers in rows(window)
            ]
        for future in futures:
            await future

    async def bulk(self, window: Window) -> None:
        """Hand records over with one call."""
        await self._producer.send_many(self.topic, window.values, keys=window.keys, headers=window.headers)

    async def transact(self, window: Window) -> None:
        """Begin a transaction, hand the records over, commit."""
        async with self._producer.transaction():
            await self._producer.send_many(self.topic, window.values, keys=window.keys)


class AioproducerNowait(Aioproducer):
    """Fires through `send_nowait`."""

    async def start(self) -> None:
        """Connect, and wait until the topic is known: `send_nowait` does not."""
        await super().start()
        await self._producer.partitions_for(self.topic)

    async def fire(self, window: Window) -> None:
        """Hand records over one by one, then wait for each."""
        topic, send_nowait = self.topic, self._producer.send_nowait
        if window.keys is None and window.headers is None:
            futures = [send_nowait(topic, value) for value in window.values]
        else:
            futures = [
                send_nowait(topic, value, key, headers=headers or ()) for value, key, headers in rows(window)
            ]
        for future in futures:
            await future


class AioproducerLinger0(Aioproducer):
    """As many have it who came from a client that lingers: without any linger, whatever else is set."""

    def options(self) -> dict[str, Any]:
        """Return what it is configured with."""
        return {**super().options(), "linger_ms": 0}
