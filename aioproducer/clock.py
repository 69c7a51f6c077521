"""The wall clock, in Kafka's unit. Durations and deadlines use the event loop's clock instead."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Return the milliseconds since the epoch, as Kafka's CreateTime counts them."""
    return time.time_ns() // 1_000_000
