"""Percentiles, and the latency figures of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

PERCENTILES: Final = {50.0: "p50_ms", 90.0: "p90_ms", 99.0: "p99_ms", 99.9: "p999_ms"}
"""Percentiles of latencies, with their figure names."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that *percent* (above 0, up to 100) of the sorted *values* do not exceed."""
    return values[max(0, math.ceil(round(percent / 100 * len(values), 6)) - 1)]


def latency_figures(seconds: Iterable[float]) -> dict[str, float]:
    """Return the mean and the percentiles of latencies, in milliseconds; empty without latencies."""
    values = sorted(seconds)
    if not values:
        return {}
    figures = {name: percentile(values, percent) * 1000 for percent, name in PERCENTILES.items()}
    return {"mean_ms": fmean(values) * 1000, **figures}
