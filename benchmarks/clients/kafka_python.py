"""kafka-python."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

from benchmarks.clients.base import Client, Send, rows
from benchmarks.clients.options import options
from benchmarks.payload import Window
from benchmarks.settings import Work

TIMEOUT_S: Final = 60.0


class KafkaPython(Client):
    """Synchronous client whose thread sends requests to brokers."""

    workloads: ClassVar = frozenset({Work.FIRE, Work.LONE})
    distribution: ClassVar = "kafka-python"

    async def start(self) -> None:
        """Connect."""
        from kafka import KafkaProducer

        self._producer = KafkaProducer(bootstrap_servers=self.servers, **options(self.settings))

    async def close(self) -> None:
        """Close the producer."""
        self._producer.close()

    def call(self, value: bytes) -> Send:
        """Return the call that sends one record, in two steps."""
        return partial(self._send, value)

    async def _send(self, value: bytes) -> Any:
        return self._producer.send(self.topic, value).get(timeout=TIMEOUT_S)

    async def fire(self, window: Window) -> None:
        """Append records one by one, then wait for each."""
        topic, send = self.topic, self._producer.send
        if window.keys is None and window.headers is None:
            futures = [send(topic, value) for value in window.values]
        else:
            futures = [send(topic, value, key, headers) for value, key, headers in rows(window)]
        for future in futures:
            future.get(timeout=TIMEOUT_S)
