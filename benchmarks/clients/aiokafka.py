"""aiokafka, and the class of `aioproducer.compat.aiokafka` in its place."""

from __future__ import annotations

import ssl
from asyncio import Future
from collections.abc import Awaitable
from functools import partial
from typing import Any, ClassVar

from benchmarks.clients.base import Send, rows
from benchmarks.clients.futures import FuturesClient, HandOver
from benchmarks.clients.options import options
from benchmarks.payload import Header, Window
from benchmarks.settings import Work


class Aiokafka(FuturesClient):
    """aiokafka has no call for many records, so `bulk` equals `fire`."""

    workloads: ClassVar = frozenset(Work) - {Work.SCALE}
    distribution: ClassVar = "aiokafka"

    async def start(self) -> None:
        """Connect."""
        given = options(self.settings, batch_size="max_batch_size")
        if self.settings.tls:
            given["ssl_context"] = ssl.create_default_context(cafile=self.settings.ca_file)
        self._producer = self.kind()(bootstrap_servers=self.servers, **given)
        await self._producer.start()

    def kind(self) -> type[Any]:
        """Import and return the producer class."""
        from aiokafka import AIOKafkaProducer

        kind: type[Any] = AIOKafkaProducer
        return kind

    async def close(self) -> None:
        """Stop the producer."""
        await self._producer.stop()

    def call(self, value: bytes) -> Send:
        """Return the call that sends one record."""
        return partial(self._producer.send_and_wait, self.topic, value)

    def call_whole(self, value: bytes, key: bytes | None, headers: list[Header] | None) -> Send:
        """Return the call that sends one record with a key and headers."""
        return partial(self._producer.send_and_wait, self.topic, value, key, headers=headers)

    def enqueue(self, value: bytes) -> Awaitable[Future[Any]]:
        """Append one record."""
        taken: Awaitable[Future[Any]] = self._producer.send(self.topic, value)
        return taken

    @property
    def hand_over(self) -> HandOver:
        """`AIOKafkaProducer.send`."""
        send: HandOver = self._producer.send
        return send

    async def settle(self) -> None:
        """Wait for all acknowledgements."""
        await self._producer.flush()

    async def transact(self, window: Window) -> None:
        """Begin a transaction, append the records, commit."""
        async with self._producer.transaction():
            for value, key, _ in rows(window):
                _ = await self._producer.send(self.topic, value, key)

    async def bulk(self, window: Window) -> None:
        """Append records one by one, then wait for each."""
        await self.fire(window)


class AiokafkaCompat(Aiokafka):
    """The program of `Aiokafka` with the class of `aioproducer.compat.aiokafka`."""

    distribution: ClassVar = "aioproducer"

    def kind(self) -> type[Any]:
        """Import and return the class of `aioproducer.compat.aiokafka`."""
        from aioproducer.compat.aiokafka import AIOKafkaProducer

        return AIOKafkaProducer
