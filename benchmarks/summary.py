"""From runs to what is said of them: median and spread, ratios round by round, and whether targets are reached."""

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
    """The median of several runs, and how far they lie apart."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """Return that of *values*; None if there are none."""
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
    """A target, the number that it is about, and the verdict."""

    target: Target
    value: Spread | None
    verdict: Verdict
    remark: str = ""


def spread_of(played: Played, client: str, figure: str) -> Spread | None:
    """Return a client's median of a figure; None if there is no run that has it."""
    runs = played.runs.get(client, ())
    return Spread.of(run.figures[figure] for run in runs if run is not None and figure in run.figures)


def ratio(played: Played, target: Target) -> Spread | None:
    """Return our figure over the other client's, of the rounds that both have; or ours, if there is no other.

    Round by round, because what else goes on on a machine changes from round to round, and less within one.
    """
    if not target.against:
        return spread_of(played, target.ours, target.figure)
    pairs = zip(played.runs.get(target.ours, ()), played.runs.get(target.against, ()), strict=False)
    figures = ((_figure(ours, target.figure), _figure(theirs, target.figure)) for ours, theirs in pairs)
    return Spread.of(ours / theirs for ours, theirs in figures if ours is not None and theirs)


def judge(row: Row, played: Played, tuning: Tuning = Tuning.EQUAL) -> list[Judged]:
    """Return what came of each of a row's targets in the table *tuning*."""
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
    """Return how much of a client's CPU its compressor takes alone, 0 … 1; None if that was not measured."""
    compressor, cpu = (spread_of(played, client, figure) for figure in ("compressor_us", "cpu_us"))
    return None if compressor is None or cpu is None or not cpu.median else compressor.median / cpu.median


def growth(costs: Sequence[float]) -> float:
    """Return how many times dearer any size is than a smaller one, at most; 1 if cost never grows.

    Not the last over the first: small sizes can be dear for want of company, and must not hide what comes after.
    """
    lowest = math.inf
    worst = 1.0
    for cost in costs:
        lowest = min(lowest, cost)
        worst = max(worst, cost / lowest)
    return worst


def wanted(target: Target, value: float | None) -> str:
    """Return a bound as it is written: `≥ 2.5×`, `≤ 10 ms`."""
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
