"""Cost of a code unit, as a ratio to the cost of a constant calibration loop.

Unit and loop are timed alternately in one process, and the shortest of many times counts, because other load only adds
time. The ratio is nearly independent of the machine's load, and differs less between machines than a time.
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
    """A frequent operation of aioproducer."""

    prepare: Callable[[], Any]
    """Creates the argument of one run, outside the measured time."""
    run: Callable[[Any], object]
    per: int
    """Number of operations per run."""


def calibration(_: None = None) -> int:
    """Run typical Python operations: look-ups, additions, appends, calls, slices and a join."""
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
    """Return the duration of one run, in nanoseconds."""
    prepared = unit.prepare()
    began = perf_counter_ns()
    unit.run(prepared)
    return perf_counter_ns() - began


@dataclass(frozen=True, slots=True)
class Timed:
    """Cost of one operation."""

    ratio: float
    """Ratio of one operation to the calibration loop."""
    microseconds: float


def measure(
    units: Mapping[str, Unit], *, samples: int = SAMPLES, clock: Callable[[Unit], int] = sample_ns
) -> dict[str, Timed]:
    """Return the cost of every unit, measured with the garbage collector disabled."""
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
