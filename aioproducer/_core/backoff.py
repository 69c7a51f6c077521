"""Waits between attempts: exponential, capped, with jitter (KIP-580)."""

from __future__ import annotations

import random
from typing import Final, NamedTuple, Protocol


class UniformSource(Protocol):
    """The one method of `random` (the module, or a seeded `random.Random`) that is needed here."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a float between *a* and *b*."""


class Backoff(NamedTuple):
    """Waits of *initial_s*, then *multiplier* times more each, up to *max_s*; seconds.

    Every wait is spread by *jitter* (0.2: 20 % either way), so that clients that failed together do not
    come back together. No wait is ever longer than *max_s*.
    """

    initial_s: float
    max_s: float
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay_s(self, attempt: int, rng: UniformSource = random) -> float:
        """Return the seconds to wait after failure number *attempt*, counted from 0."""
        # The exponent is capped too: 2.0 ** 1024 overflows, and an outage may outlast that many attempts.
        unspread_s = min(self.max_s, self.initial_s * self.multiplier ** min(attempt, 64))
        return min(self.max_s, unspread_s * rng.uniform(1 - self.jitter, 1 + self.jitter))


MARKERS_BACKOFF: Final = Backoff(0.01, 0.2)
"""For CONCURRENT_TRANSACTIONS: the markers of the transaction before are being written, in milliseconds (JVM: 20 ms)."""
