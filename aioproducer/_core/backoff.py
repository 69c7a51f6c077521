"""Waits between attempts: exponential, capped, with jitter (KIP-580)."""

from __future__ import annotations

import random
from typing import Final, NamedTuple


class Backoff(NamedTuple):
    """Exponential backoff: the first wait is *initial_s*, and each failure multiplies the wait by *multiplier*.

    A random *jitter* (0.2: ±20 %) changes each wait, so that clients that failed at the same time retry at
    different times. No wait is longer than *max_s* seconds.
    """

    initial_s: float
    max_s: float
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay_s(self, attempt: int, draw: float | None = None) -> float:
        """Return the wait after failure number *attempt* (from 0), in seconds; *draw*, 0 to 1, is random by default."""
        # The exponent has a limit, because 2.0 ** 1024 overflows, and a long outage may have more attempts.
        unspread_s = min(self.max_s, self.initial_s * self.multiplier ** min(attempt, 64))
        at = random.random() if draw is None else draw
        return min(self.max_s, unspread_s * (1 + self.jitter * (2 * at - 1)))


MARKERS_BACKOFF: Final = Backoff(0.01, 0.2)
"""Backoff after CONCURRENT_TRANSACTIONS: brokers write transaction markers in milliseconds (the JVM client waits 20 ms)."""
