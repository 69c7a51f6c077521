"""Statistics of runs: median and spread, ratios per round, and verdicts on targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Self

from benchmarks.clients import TITLES
from benchmarks.figures import Played, Run
from benchmarks.row import FIGURES, Row, Target
from benchmarks.settings import Tuning


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum of several runs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """Return the spread of *values*; None if *values* is empty."""
        values = list(values)
        return cls(median(values), min(values), max(values)) if values else None


class Verdict(StrEnum):
    """Result of a target."""

    GOAL = "goal met"
    MUST = "minimum met"
    MISSED = "minimum missed"
    SHORT = "goal missed"
    """The target has no minimum."""
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Judged:
    """A target with its measured value and verdict."""

    target: Target
    value: Spread | None
    verdict: Verdict
    remark: str = ""


def spread_of(played: Played, client: str, figure: str) -> Spread | None:
    """Return the spread of a client's figure; None if no run has the figure."""
    runs = played.runs.get(client, ())
    return Spread.of(run.figures[figure] for run in runs if run is not None and figure in run.figures)


def ratio(played: Played, target: Target) -> Spread | None:
    """Return aioproducer's figure divided by the other client's, or aioproducer's figure without another client.

    The ratio is taken per round, because the load of the machine varies more between rounds than within a round.
    """
    if not target.against:
        return spread_of(played, target.ours, target.figure)
    pairs = zip(played.runs.get(target.ours, ()), played.runs.get(target.against, ()), strict=False)
    figures = ((_figure(ours, target.figure), _figure(theirs, target.figure)) for ours, theirs in pairs)
    return Spread.of(ours / theirs for ours, theirs in figures if ours is not None and theirs)


def judge(row: Row, played: Played, tuning: Tuning = Tuning.EQUAL) -> list[Judged]:
    """Return the verdicts on a row's targets in the table *tuning*."""
    return [_judge(row, played, target) for target in row.targets if target.tuning is tuning]


def _judge(row: Row, played: Played, target: Target) -> Judged:
    value = ratio(played, target)
    if value is None:
        return Judged(target, None, Verdict.UNKNOWN)
    reached = _comparison(target.figure)
    if target.goal is not None and reached(value.median, target.goal):
        return Judged(target, value, Verdict.GOAL)
    share = compressor_share(played, target.ours)
    remark = "" if share is None else f"the compressor takes {share:.0%} of aioproducer's CPU"
    if target.must is None:
        return Judged(target, value, Verdict.SHORT, remark)
    verdict = Verdict.MUST if reached(value.median, target.must) else Verdict.MISSED
    return Judged(target, value, verdict, remark)


def compressor_share(played: Played, client: str) -> float | None:
    """Return the compressor's share of a client's CPU, from 0 to 1; None if unknown."""
    compressor, cpu = (spread_of(played, client, figure) for figure in ("compressor_us", "cpu_us"))
    return None if compressor is None or cpu is None or not cpu.median else compressor.median / cpu.median


def growth(costs: Sequence[float]) -> float:
    """Return the largest ratio of a cost to the cost of a smaller size; 1 if the cost never grows.

    A ratio of the last cost to the first would hide growth, because small sizes can be expensive for other reasons.
    """
    lowest = math.inf
    worst = 1.0
    for cost in costs:
        lowest = min(lowest, cost)
        worst = max(worst, cost / lowest)
    return worst


def wanted(target: Target, value: float | None) -> str:
    """Return the text of a bound, such as `≥ 2.5×` or `≤ 10 ms`."""
    if value is None:
        return ""
    unit = "×" if target.against or target.figure == "growth" else f" {FIGURES[target.figure].unit}"
    return f"{'≥' if FIGURES[target.figure].more_is_better else '≤'} {value:g}{unit}"


def compared(target: Target) -> str:
    """Return the compared figure: `throughput against aiokafka`."""
    who = "" if target.ours == "aioproducer" else f"{TITLES[target.ours]}: "
    next_to = f" against {TITLES[target.against]}" if target.against else ""
    return f"{who}{FIGURES[target.figure].title}{next_to}"


def _comparison(figure: str) -> Callable[[float, float], bool]:
    if FIGURES[figure].more_is_better:
        return lambda value, bound: value >= bound
    return lambda value, bound: value <= bound


def _figure(run: Run | None, figure: str) -> float | None:
    return None if run is None else run.figures.get(figure)
