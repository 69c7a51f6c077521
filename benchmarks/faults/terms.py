"""Load and timeouts of every client, equal for comparable figures."""

from __future__ import annotations

from typing import Final

TOPIC: Final = "load"
BROKERS: Final = 3
PARTITIONS: Final = 4

BURST: Final = 5
"""Number of records that each partition receives at a time, usually as one batch."""
PAUSE_S: Final = 0.02
"""Time between two bursts of a partition, in seconds. All partitions together receive 1,000 records per second."""
VALUE_BYTES: Final = 100

LINGER_MS: Final = 5
REQUEST_TIMEOUT_S: Final = 2.0
DELIVERY_TIMEOUT_S: Final = 6.0
BACKOFF_MS: Final = 50
BACKOFF_MAX_MS: Final = 100
GRACE_S: Final = 1.0
"""Time after the delivery timeout, in seconds, until a record without an outcome counts as unresolved."""
