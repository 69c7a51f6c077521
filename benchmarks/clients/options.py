"""Options of the clients written in Python, which share nearly all option names."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from benchmarks.settings import Settings, Tuning, Work


def options(settings: Settings, *, batch_size: str = "batch_size") -> dict[str, Any]:
    """Return keyword arguments. *batch_size* is the client's name of the batch size."""
    given: dict[str, Any] = {"security_protocol": "SSL"} if settings.tls else {}
    if settings.work is Work.TRANSACTIONS:
        given["transactional_id"] = f"benchmark-{uuid4()}"
    if settings.compression != "none":
        given["compression_type"] = settings.compression
    if settings.tuning is not Tuning.DEFAULTS:
        given |= {"acks": "all", "enable_idempotence": True}
    if settings.tuning is Tuning.EQUAL:
        given |= {batch_size: settings.batch_bytes, "linger_ms": settings.linger_ms}
    return given | settings.options
