"""What the three ways into librdkafka share."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from benchmarks.settings import Settings, Tuning, Work

FULL_POLL_S: Final = 0.01
"""How long to wait when librdkafka's queue is full."""
FLUSH_S: Final = 60.0


def configuration(servers: str, settings: Settings) -> dict[str, Any]:
    """Return librdkafka's configuration: of the options of its best those with dots, as all of its names have.

    With keys, partitions are chosen as the JVM client and we choose them, but for its own defaults.
    """
    options: dict[str, Any] = {"bootstrap.servers": servers, "compression.type": settings.compression}
    if settings.tls:
        options |= {"security.protocol": "SSL", "ssl.ca.location": settings.ca_file}
    if settings.work is Work.TRANSACTIONS:
        options["transactional.id"] = f"benchmark-{uuid4()}"
    if settings.tuning is not Tuning.DEFAULTS:
        options |= {"acks": "all", "enable.idempotence": True}
        if settings.keys:
            options["partitioner"] = "murmur2_random"
    if settings.tuning is Tuning.EQUAL:
        options |= {"batch.size": settings.batch_bytes, "linger.ms": settings.linger_ms}
    return options | {name: value for name, value in settings.options.items() if "." in name}


def flush(producer: Any) -> None:
    """Wait until everything is acknowledged. Raises: TimeoutError."""
    if left := producer.flush(FLUSH_S):
        raise TimeoutError(f"{left} records are not acknowledged after {FLUSH_S:.0f} s")
