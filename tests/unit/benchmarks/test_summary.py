from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.figures import Played, Run
from benchmarks.row import Target
from benchmarks.settings import Tuning
from benchmarks.summary import (
    Spread,
    Verdict,
    compared,
    compressor_share,
    growth,
    judge,
    ratio,
    spread_of,
    wanted,
)
from benchmarks.table import ROWS
from tests.unit.benchmarks.samples import closed, run

RATE = Target(figure="records_s", against="aiokafka", must=2.5, goal=4)
CPU = Target(figure="cpu_us", against="aiokafka", must=0.6, goal=0.4)


def two(ours: float, theirs: float, figure: str = "records_s") -> Played:
    return Played(runs={"aioproducer": [run(**{figure: ours})], "aiokafka": [run(**{figure: theirs})]})


def verdict(played: Played, *targets: Target) -> Verdict:
    [judged] = judge(replace(ROWS["closed"], targets=targets), played)
    return judged.verdict


def test_spread_is_median_minimum_and_maximum() -> None:
    assert spread_of(closed(), "aioproducer", "records_s") == Spread(400_000, 300_000, 500_000)


def test_rounds_that_failed_do_not_count() -> None:
    assert spread_of(closed(), "aiokafka", "records_s") == Spread(112_500, 100_000, 125_000)


def test_spread_is_none_without_a_measurement() -> None:
    assert spread_of(closed(), "aiokafka", "rss_mib") is None
    assert spread_of(closed(), "jvm", "records_s") is None


def test_ratios_are_computed_within_a_round() -> None:
    assert ratio(closed(), RATE) == Spread(3.5, 3.0, 4.0)


def test_ratio_without_another_client_is_the_figure() -> None:
    assert ratio(closed(), Target(figure="p99_ms", must=10)) == Spread(4.0, 4.0, 4.0)


def test_ratio_by_zero_is_none() -> None:
    assert ratio(two(1, 0), RATE) is None


@pytest.mark.parametrize(
    ("ours", "expected"),
    [(4.0, Verdict.GOAL), (3.99, Verdict.MUST), (2.5, Verdict.MUST), (2.49, Verdict.MISSED)],
)
def test_verdict_prefers_more_throughput(ours: float, expected: Verdict) -> None:
    assert verdict(two(ours, 1.0), RATE) == expected


@pytest.mark.parametrize(
    ("ours", "expected"),
    [(0.4, Verdict.GOAL), (0.41, Verdict.MUST), (0.6, Verdict.MUST), (0.61, Verdict.MISSED)],
)
def test_verdict_prefers_less_cpu(ours: float, expected: Verdict) -> None:
    assert verdict(two(ours, 1.0, "cpu_us"), CPU) == expected


def test_verdict_without_a_minimum_falls_short_of_the_goal() -> None:
    assert verdict(two(2.0, 1.0), replace(RATE, must=None)) == Verdict.SHORT


def test_verdict_without_a_goal_uses_the_minimum() -> None:
    assert verdict(two(9.0, 1.0), replace(RATE, goal=None)) == Verdict.MUST


def test_verdict_without_a_measurement_is_unknown() -> None:
    assert verdict(Played(), RATE) == Verdict.UNKNOWN


def test_compressor_share_is_a_remark_beside_the_verdict() -> None:
    ours = Run(figures={"records_s": 1.0, "cpu_us": 10.0, "compressor_us": 9.0})
    played = Played(runs={"aioproducer": [ours], "aiokafka": [run(records_s=1.0)]})
    assert compressor_share(played, "aioproducer") == 0.9
    [judged] = judge(replace(ROWS["closed"], targets=(RATE,)), played)
    assert judged.verdict == Verdict.MISSED
    assert judged.remark == "the compressor takes 90% of aioproducer's CPU"


def test_target_is_judged_only_in_its_own_table() -> None:
    row = replace(ROWS["closed"], targets=(RATE, replace(RATE, tuning=Tuning.BEST, must=3.6)))
    assert [judged.verdict for judged in judge(row, closed())] == [Verdict.MUST]
    assert [judged.verdict for judged in judge(row, closed(), Tuning.BEST)] == [Verdict.MISSED]
    assert judge(row, closed(), Tuning.DEFAULTS) == []


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([5.0], 1.0),
        ([5.0, 6.0], 1.2),
        ([6.0, 5.0], 1.0),
        ([9.0, 5.0, 6.0, 5.5], 1.2),
        ([5.0, 10.0, 5.0], 2.0),
    ],
)
def test_growth_is_from_any_size_to_a_larger_one(costs: list[float], expected: float) -> None:
    assert math.isclose(growth(costs), expected)


def test_bounds_are_written_with_their_direction_and_unit() -> None:
    assert wanted(RATE, RATE.must) == "≥ 2.5×"
    assert wanted(CPU, CPU.goal) == "≤ 0.4×"
    assert wanted(Target(figure="lag_ms", must=10), 10) == "≤ 10 ms"
    assert wanted(Target(figure="growth", must=1.5), 1.5) == "≤ 1.5×"
    assert wanted(RATE, None) == ""


def test_compared_describes_a_target_in_words() -> None:
    assert compared(RATE) == "throughput against aiokafka"
    assert (
        compared(replace(RATE, ours="aioproducer-nowait", against=""))
        == "aioproducer send_nowait: throughput"
    )
