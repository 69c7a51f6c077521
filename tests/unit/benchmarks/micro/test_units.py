from __future__ import annotations

import asyncio

from benchmarks.micro.baseline import Baseline
from benchmarks.micro.clock import measure
from benchmarks.micro.units import units


def test_units_run_and_stand_in_the_baseline() -> None:
    loop = asyncio.new_event_loop()
    try:
        timed = measure(units(loop), samples=1)
    finally:
        loop.close()
    assert set(timed) == set(Baseline.load().ratios)
