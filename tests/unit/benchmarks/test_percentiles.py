from __future__ import annotations

import pytest

from benchmarks.percentiles import latency_figures, percentile


@pytest.mark.parametrize(("percent", "value"), [(0.1, 1), (50, 500), (99, 990), (99.9, 999), (100, 1000)])
def test_percentile_is_not_exceeded_by_its_share_of_values(percent: float, value: float) -> None:
    assert percentile(range(1, 1001), percent) == value


def test_percentiles_of_a_single_value_are_that_value() -> None:
    assert percentile([7.0], 50) == percentile([7.0], 99.9) == 7.0


def test_latencies_in_any_order_become_milliseconds() -> None:
    figures = latency_figures([0.004, 0.001, 0.002, 0.003])
    assert figures == {"mean_ms": 2.5, "p50_ms": 2.0, "p90_ms": 4.0, "p99_ms": 4.0, "p999_ms": 4.0}


def test_latency_figures_are_empty_without_latencies() -> None:
    assert latency_figures([]) == {}
