from __future__ import annotations

import asyncio

import pytest

from benchmarks.micro.baseline import Baseline
from benchmarks.micro.clock import measure
from benchmarks.micro.units import units


@pytest.mark.slow
def test_every_unit_runs_and_is_in_the_baseline() -> None:
    loop = asyncio.new_event_loop()
    try:
        timed = measure(units(loop), samples=1)
    finally:
        loop.close()
    assert all(each.ratio > 0 for each in timed.values())
    assert list(Baseline.load().ratios) == list(timed)
