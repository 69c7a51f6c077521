"""What every client is given, so that figures can be set side by side."""

from __future__ import annotations

from typing import Final

TOPIC: Final = "load"
BROKERS: Final = 3
PARTITIONS: Final = 4

BURST: Final = 5
"""So many records each partition gets at a time; as a rule they become a batch …"""
PAUSE_S: Final = 0.02
"""… and so long it is until the next: 1,000 records a second in all."""
VALUE_BYTES: Final = 100

LINGER_MS: Final = 5
REQUEST_TIMEOUT_S: Final = 2.0
DELIVERY_TIMEOUT_S: Final = 6.0
BACKOFF_MS: Final = 50
BACKOFF_MAX_MS: Final = 100
GRACE_S: Final = 1.0
"""A record without an outcome so long after its delivery timeout counts as unresolved."""
