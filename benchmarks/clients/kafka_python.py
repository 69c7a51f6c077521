"""kafka-python."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from benchmarks.clients.base import Client
from benchmarks.payload import Window
from benchmarks.settings import Work

PATIENCE_S: Final = 60.0


class KafkaPython(Client):
    """Synchronous, with a thread of its own that talks to brokers."""

    works: ClassVar = frozenset({Work.FIRE, Work.LONE})
    distribution: ClassVar = "kafka-python"

    async def start(self) -> None:
        """Connect."""
        from kafka import KafkaProducer

        settings = self.settings
        options: dict[str, Any] = {}
        if settings.compression != "none":
            options["compression_type"] = settings.compression
        if not settings.own_defaults:
            options |= {
                "acks": "all",
                "enable_idempotence": True,
                "batch_size": settings.batch_bytes,
                "linger_ms": settings.linger_ms,
            }
        self._producer = KafkaProducer(bootstrap_servers=self.servers, **options)

    async def close(self) -> None:
        """End it."""
        self._producer.close()

    async def send(self, value: bytes) -> Any:
        """Send one record."""
        return self._producer.send(self.topic, value).get(timeout=PATIENCE_S)

    async def fire(self, window: Window) -> None:
        """Hand records over one by one, then wait for each."""
        topic, send = self.topic, self._producer.send
        futures = [send(topic, value) for value in window.values]
        for future in futures:
            future.get(timeout=PATIENCE_S)
