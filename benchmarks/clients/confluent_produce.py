"""confluent-kafka's Producer.produce without a callback per record, which would be slower."""

from __future__ import annotations

from typing import Any, ClassVar

from benchmarks.clients.base import Client, rows
from benchmarks.clients.confluent import FULL_POLL_S, configuration, flush
from benchmarks.payload import Window
from benchmarks.settings import Work


class ConfluentProduce(Client):
    """Synchronous client that blocks the event loop, which has no other task."""

    workloads: ClassVar = frozenset({Work.FIRE, Work.BULK, Work.ONE_BY_ONE, Work.TRANSACTIONS})
    distribution: ClassVar = "confluent-kafka"

    async def start(self) -> None:
        """Create the producer, which connects in the background."""
        from confluent_kafka import Producer

        self._producer = Producer(configuration(self.servers, self.settings))
        if self.settings.work is Work.TRANSACTIONS:
            self._producer.init_transactions()

    async def close(self) -> None:
        """Wait for all acknowledgements."""
        flush(self._producer)

    async def fire(self, window: Window) -> None:
        """Append records one by one, then wait for all acknowledgements."""
        await self.bulk(window)
        flush(self._producer)

    async def bulk(self, window: Window) -> None:
        """Append records one by one."""
        topic, produce = self.topic, self._producer.produce
        if window.keys is None and window.headers is None:
            for value in window.values:
                try:
                    produce(topic, value)
                except BufferError:
                    self._insist(value)
        else:
            for value, key, headers in rows(window):
                try:
                    produce(topic, value, key, headers=headers)  # type: ignore[arg-type] # a list is invariant
                except BufferError:
                    self._insist(value, key, headers=headers)
        self._producer.poll(0)

    async def transact(self, window: Window) -> None:
        """Begin a transaction, append the records, commit."""
        producer = self._producer
        producer.begin_transaction()
        for value, key, _ in rows(window):
            producer.produce(self.topic, value, key)
        producer.commit_transaction()

    async def settle(self) -> None:
        """Wait for all acknowledgements."""
        flush(self._producer)

    def _insist(self, *record: Any, **more: Any) -> None:
        while True:
            self._producer.poll(FULL_POLL_S)
            try:
                self._producer.produce(self.topic, *record, **more)
            except BufferError:
                continue
            return
