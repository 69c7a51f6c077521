from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from aioproducer.cli.perf.latencies import STEP, Latencies


def of(*latencies_s: float) -> Latencies:
    latencies = Latencies()
    for each in latencies_s:
        latencies.add(each)
    return latencies


def test_of_none_everything_is_nothing() -> None:
    none = of()
    assert (none.count, none.mean_s, none.percentile_s(0.99), none.longest_s) == (0, 0, 0, 0)


def test_it_counts_and_means() -> None:
    latencies = of(0.001, 0.002, 0.006)
    assert latencies.count == 3
    assert latencies.mean_s == pytest.approx(0.003)
    assert latencies.longest_s == 0.006


@given(st.lists(st.floats(1e-9, 1e4), min_size=1, max_size=200), st.floats(0, 1, exclude_min=True))
def test_a_percentile_is_no_more_than_a_hundredth_off(latencies_s: list[float], share: float) -> None:
    exact = sorted(latencies_s)[math.ceil(share * len(latencies_s)) - 1]
    found = of(*latencies_s).percentile_s(share)
    assert exact * (1 - 1e-9) <= found <= exact * STEP * (1 + 1e-9)


def test_the_highest_percentile_is_the_longest() -> None:
    assert of(0.0015, 0.7).percentile_s(1) == 0.7


def test_no_time_at_all_counts_as_next_to_none() -> None:
    assert of(0.0, 0.0).percentile_s(0.5) == 0.0
