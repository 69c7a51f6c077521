"""How long does one unit of work take, as a multiple of a loop that never changes?

Both are timed in turns in one process, and the fastest of many times counts: what a machine does besides can only add.
So the ratio is about the same on a busy machine and an idle one, and far closer from machine to machine than a time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final

SAMPLES: Final = 1_000
COLLECT_EVERY: Final = 50


@dataclass(frozen=True, slots=True)
class Unit:
    """Something that our code does often."""

    prepare: Callable[[], Any]
    """Makes what one run works on; not timed."""
    run: Callable[[Any], object]
    per: int
    """How many times a run does it."""


def calibration(_: None = None) -> int:
    """Do what Python code does: look things up, add, append, call, slice, join."""
    table = {number: number * 7 for number in range(64)}
    out: list[bytes] = []
    total = 0
    for number in range(500):
        total += table[number & 63]
        if total & 1:
            total ^= 0x5BD1E995
        out.append(b"%d" % (total & 0xFFFF))
    return len(b"".join(out)[10:]) + max(map(len, out))


CALIBRATION: Final = Unit(lambda: None, calibration, 1)


def sample_ns(unit: Unit) -> int:
    """Return how long one run takes, in nanoseconds."""
    prepared = unit.prepare()
    began = perf_counter_ns()
    unit.run(prepared)
    return perf_counter_ns() - began


@dataclass(frozen=True, slots=True)
class Timed:
    """A unit's cost."""

    ratio: float
    """Of a single one to the calibration loop."""
    microseconds: float


def measure(
    units: Mapping[str, Unit], *, samples: int = SAMPLES, clock: Callable[[Unit], int] = sample_ns
) -> dict[str, Timed]:
    """Return the cost of every unit. The garbage collector is off meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return {name: _measure(unit, samples, clock) for name, unit in units.items()}
    finally:
        if was_enabled:
            gc.enable()


def _measure(unit: Unit, samples: int, clock: Callable[[Unit], int]) -> Timed:
    fastest, yardstick = clock(unit), clock(CALIBRATION)
    for number in range(samples):
        fastest = min(fastest, clock(unit))
        yardstick = min(yardstick, clock(CALIBRATION))
        if number % COLLECT_EVERY == 0:
            gc.collect()
    single_ns = fastest / unit.per
    return Timed(ratio=single_ns / yardstick, microseconds=single_ns / 1000)
