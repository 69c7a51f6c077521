from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.micro.baseline import Baseline, compare, python_version
from benchmarks.micro.clock import Timed


def test_baseline_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    baseline = Baseline.of({"encode": Timed(0.123456789, 5.0)})
    baseline.save(tmp_path / "baseline.json")
    assert (
        Baseline.load(tmp_path / "baseline.json")
        == baseline
        == Baseline(python_version(), {"encode": 0.12346})
    )


def test_comparison_without_a_baseline_is_not_slower(tmp_path: Path) -> None:
    baseline = Baseline.load(tmp_path / "none.json")
    [compared] = compare({"encode": Timed(1.0, 1.0)}, baseline)
    assert (baseline.python, compared.change, compared.slower) == ("", None, False)


@pytest.mark.parametrize(("ratio", "slower"), [(2.0, False), (2.29, False), (2.31, True), (1.0, False)])
def test_slower_is_more_than_15_percent_over_the_baseline(ratio: float, slower: bool) -> None:
    [compared] = compare({"encode": Timed(ratio, 1.0)}, Baseline("3.11", {"encode": 2.0, "gone": 1.0}))
    assert compared.slower == slower
