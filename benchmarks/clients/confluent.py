"""Configuration and flush of all clients on librdkafka."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from benchmarks.settings import Settings, Tuning, Work

FULL_POLL_S: Final = 0.01
"""Duration of a poll while librdkafka's queue is full, in seconds."""
FLUSH_S: Final = 60.0


def configuration(servers: str, settings: Settings) -> dict[str, Any]:
    """Return librdkafka's configuration, including the options of the table *best* whose names have a dot.

    Except in the table *defaults*, keys select partitions as in the JVM client and aioproducer.
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
    """Wait until all records are acknowledged. Raises: TimeoutError."""
    if left := producer.flush(FLUSH_S):
        raise TimeoutError(f"{left} records are not acknowledged after {FLUSH_S:.0f} s")
