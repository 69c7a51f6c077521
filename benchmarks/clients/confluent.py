"""What the three ways into librdkafka share."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from benchmarks.settings import Settings, Work

FULL_POLL_S: Final = 0.01
"""How long to wait when librdkafka's queue is full."""
FLUSH_S: Final = 60.0


def configuration(servers: str, settings: Settings) -> dict[str, Any]:
    """Return librdkafka's configuration. With keys, partitions are chosen as the JVM client and we choose them."""
    options: dict[str, Any] = {"bootstrap.servers": servers, "compression.type": settings.compression}
    if settings.tls:
        options |= {"security.protocol": "SSL", "ssl.ca.location": settings.ca_file}
    if settings.work is Work.TRANSACTIONS:
        options["transactional.id"] = f"benchmark-{uuid4()}"
    if settings.keys:
        options["partitioner"] = "murmur2_random"
    if not settings.own_defaults:
        options |= {
            "acks": "all",
            "enable.idempotence": True,
            "batch.size": settings.batch_bytes,
            "linger.ms": settings.linger_ms,
        }
    return options


def flush(producer: Any) -> None:
    """Wait until everything is acknowledged. Raises: TimeoutError."""
    if left := producer.flush(FLUSH_S):
        raise TimeoutError(f"{left} records are not acknowledged after {FLUSH_S:.0f} s")
