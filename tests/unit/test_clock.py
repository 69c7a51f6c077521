from __future__ import annotations

import asyncio
import time

import pytest

from aioproducer import clock as module
from aioproducer.clock import LoopClock, wall_ms
from aioproducer.testing import in_virtual_time


def test_it_counts_milliseconds_since_the_epoch() -> None:
    before = time.time_ns()
    now_ms = wall_ms()
    after = time.time_ns()
    assert before // 1_000_000 <= now_ms <= after // 1_000_000


@in_virtual_time
async def test_it_is_read_once_per_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1_000, 2_000))
    monkeypatch.setattr(module, "wall_ms", lambda: next(ticks))
    clock = LoopClock(asyncio.get_running_loop())
    assert [clock.now_ms(), clock.now_ms()] == [1_000, 1_000]
    await asyncio.sleep(0)
    assert clock.now_ms() == 1_001


@in_virtual_time
async def test_forgotten_it_is_read_again_in_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1_000, 2_000))
    monkeypatch.setattr(module, "wall_ms", lambda: next(ticks))
    clock = LoopClock(asyncio.get_running_loop())
    assert clock.now_ms() == 1_000
    clock.forget()
    assert clock.now_ms() == 1_001


@in_virtual_time
async def test_read_afresh_it_remembers_nothing_unless_somebody_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(range(1_000, 2_000))
    monkeypatch.setattr(module, "wall_ms", lambda: next(ticks))
    clock = LoopClock(asyncio.get_running_loop())
    assert [clock.fresh_ms(), clock.known_ms] == [1_000, 0]
    assert [clock.now_ms(), clock.fresh_ms(), clock.now_ms()] == [1_001, 1_002, 1_002]
    await asyncio.sleep(0)
    assert clock.known_ms == 0
