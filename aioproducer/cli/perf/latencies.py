"""Many latencies in little memory: counts by size, not the latencies themselves."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

STEP: Final = 1.01
"""Each bucket reaches a hundredth further than the one before: so exact are percentiles."""
_LOG_STEP: Final = math.log(STEP)
SHORTEST_S: Final = 1e-9
"""Taken for what is no time at all."""


class Latencies:
    """How long records took, in seconds."""

    def __init__(self) -> None:
        self.count: int = 0
        self.longest_s: float = 0.0
        self._total_s = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, latency_s: float, records: int = 1) -> None:
        """Count so many more that took as long."""
        if not records:
            return
        self.count += records
        self._total_s += latency_s * records
        self.longest_s = max(self.longest_s, latency_s)
        self._buckets[math.ceil(math.log(max(latency_s, SHORTEST_S)) / _LOG_STEP)] += records

    @property
    def mean_s(self) -> float:
        """The mean; 0 if there are none."""
        return self._total_s / self.count if self.count else 0.0

    def percentile_s(self, share: float) -> float:
        """Return what *share* (above 0, up to 1) of them did not exceed; 0 if there are none.

        It is at most a hundredth too high.
        """
        wanted = math.ceil(share * self.count)
        for bucket in sorted(self._buckets):
            wanted -= self._buckets[bucket]
            if wanted <= 0:
                return min(STEP**bucket, self.longest_s)
        return 0.0
