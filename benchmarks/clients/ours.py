"""aioproducer."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable
from functools import partial
from itertools import cycle, islice
from typing import Any, ClassVar

from benchmarks.clients.base import Send, rows
from benchmarks.clients.futures import TURN_EVERY, FuturesClient, HandOver, repeated
from benchmarks.clients.options import options
from benchmarks.payload import Header, Window
from benchmarks.settings import ZONE, Work


class Aioproducer(FuturesClient):
    """aioproducer: `fire` uses `enqueue`, `gather` uses `send_nowait`, and `bulk` uses `send_many`."""

    workloads: ClassVar = frozenset(Work)
    distribution: ClassVar = "aioproducer"

    async def start(self) -> None:
        """Connect."""
        from aioproducer import BufferFull, Producer
        from aioproducer.config import ProducerConfig

        given = self.options()
        if self.settings.tls:
            given["ssl_truststore_location"] = self.settings.ca_file
        config = ProducerConfig(bootstrap_servers=self.servers, **given)
        self._full = BufferFull
        self._producer = Producer.from_config(config)
        await self._producer.start()

    def options(self) -> dict[str, Any]:
        """Return the producer's options."""
        return options(self.settings)

    async def close(self) -> None:
        """Close the producer."""
        await self._producer.close()

    def call(self, value: bytes) -> Send:
        """Return the call that sends one record."""
        return partial(self._producer.send, self.topic, value)

    def call_whole(self, value: bytes, key: bytes | None, headers: list[Header] | None) -> Send:
        """Return the call that sends one record with a key and headers."""
        return partial(self._producer.send, self.topic, value, key, headers=headers or ())

    def enqueue(self, value: bytes) -> Awaitable[Future[Any]]:
        """Append one record."""
        return self._producer.enqueue(self.topic, value)

    @property
    def hand_over(self) -> HandOver:
        """`Producer.enqueue`."""
        return self._producer.enqueue

    async def gather(self, window: Window, count: int) -> None:
        """Append records by `send_nowait`, or by `enqueue` while memory is full, then gather the Futures."""
        topic, send_nowait, enqueue, full = (
            self.topic,
            self._producer.send_nowait,
            self._producer.enqueue,
            self._full,
        )
        futures = []
        if window.keys is None and window.headers is None:
            for number, value in enumerate(islice(cycle(window.values), count), 1):
                try:
                    future = send_nowait(topic, value)
                except full:
                    future = await enqueue(topic, value)
                futures.append(future)
                if not number % TURN_EVERY:
                    await asyncio.sleep(0)
        else:
            for number, (value, key, headers) in enumerate(repeated(window, count), 1):
                try:
                    future = send_nowait(topic, value, key, headers=headers or ())
                except full:
                    future = await enqueue(topic, value, key, headers=headers or ())
                futures.append(future)
                if not number % TURN_EVERY:
                    await asyncio.sleep(0)
        await asyncio.gather(*futures)

    async def settle(self) -> None:
        """Wait for all acknowledgements."""
        await self._producer.flush()

    async def bulk(self, window: Window) -> None:
        """Append records with one call."""
        await self._producer.send_many(self.topic, window.values, keys=window.keys, headers=window.headers)

    async def transact(self, window: Window) -> None:
        """Begin a transaction, append the records, commit."""
        async with self._producer.transaction():
            await self._producer.send_many(self.topic, window.values, keys=window.keys)


class AioproducerNowait(Aioproducer):
    """aioproducer with `send_nowait` in `fire`."""

    async def start(self) -> None:
        """Connect, and wait for the metadata of the topic, which `send_nowait` requires."""
        await super().start()
        await self._producer.partitions_for(self.topic)

    async def futures(self, window: Window) -> list[Future[Any]]:
        """Append the records of *window* one by one and return their Futures."""
        topic, send_nowait = self.topic, self._producer.send_nowait
        if window.keys is None and window.headers is None:
            return [send_nowait(topic, value) for value in window.values]
        return [send_nowait(topic, value, key, headers=headers or ()) for value, key, headers in rows(window)]


class AioproducerLinger0(Aioproducer):
    """aioproducer with `linger_ms=0` in every table, a common setting of users of other clients."""

    def options(self) -> dict[str, Any]:
        """Return the producer's options."""
        return {**super().options(), "linger_ms": 0}


class AioproducerRackAware(Aioproducer):
    """aioproducer with records without a key sent to leaders in its zone (KIP-1123)."""

    def options(self) -> dict[str, Any]:
        """Return the producer's options."""
        return {**super().options(), "client_rack": ZONE, "partitioner_rack_aware": True}
