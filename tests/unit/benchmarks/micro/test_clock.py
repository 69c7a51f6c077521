from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from benchmarks.micro.clock import CALIBRATION, Unit, calibration, measure, sample_ns


def test_the_fastest_of_many_counts_and_is_told_per_piece() -> None:
    unit = Unit(lambda: None, lambda _: None, per=10)
    times: dict[Unit, Iterator[int]] = {
        unit: iter((9_000, 4_000, 5_000, 8_000)),
        CALIBRATION: iter((700, 300, 200, 900)),
    }
    timed = measure({"it": unit}, samples=3, clock=lambda each: next(times[each]))
    assert timed["it"].microseconds == pytest.approx(0.4)
    assert timed["it"].ratio == pytest.approx(400 / 200)


def test_each_run_gets_what_was_prepared_for_it() -> None:
    seen: list[int] = []
    numbers = iter(range(10))
    unit = Unit(lambda: next(numbers), seen.append, 1)
    assert sample_ns(unit) > 0
    assert sample_ns(unit) > 0
    assert seen == [0, 1]


def test_the_garbage_collector_is_off_only_meanwhile() -> None:
    enabled: list[bool] = []
    measure({"it": Unit(lambda: None, lambda _: enabled.append(gc.isenabled()), 1)}, samples=1)
    assert set(enabled) == {False}
    assert gc.isenabled()


def test_calibration_does_the_same_each_time() -> None:
    assert calibration() == calibration()
