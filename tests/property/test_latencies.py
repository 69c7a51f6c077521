"""The percentiles of `aioproducer perf`, whatever the latencies."""

from __future__ import annotations

import math

from hypothesis import given, strategies as st

from aioproducer.cli.perf_command import STEP, Latencies


@given(st.lists(st.floats(1e-9, 1e4), min_size=1, max_size=200), st.floats(0, 1, exclude_min=True))
def test_percentile_is_accurate_to_one_percent(latencies_s: list[float], share: float) -> None:
    exact = sorted(latencies_s)[math.ceil(share * len(latencies_s)) - 1]
    latencies = Latencies()
    for each in latencies_s:
        latencies.add(each)
    found = latencies.percentile_s(share)
    assert exact * (1 - 1e-9) <= found <= exact * STEP * (1 + 1e-9)
