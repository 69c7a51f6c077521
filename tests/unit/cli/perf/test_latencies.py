from __future__ import annotations

import pytest

from aioproducer.cli.perf.latencies import Latencies


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


def test_the_highest_percentile_is_the_longest() -> None:
    assert of(0.0015, 0.7).percentile_s(1) == 0.7


def test_no_time_at_all_counts_as_next_to_none() -> None:
    assert of(0.0, 0.0).percentile_s(0.5) == 0.0


def test_many_of_one_length_count_as_often() -> None:
    together, one_by_one = Latencies(), Latencies()
    together.add(0.5, 3)
    together.add(1.0, 0)
    for _ in range(3):
        one_by_one.add(0.5)
    assert vars(together) == vars(one_by_one)
