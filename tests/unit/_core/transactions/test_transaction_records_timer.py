"""A timer that counts in microseconds."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import select
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aioproducer._core.transactions.transaction_records import FineTimer
from aioproducer.testing.virtual_time import in_virtual_time

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux's")


class Rung:
    """Counts calls, and lets a task wait for the next."""

    def __init__(self) -> None:
        self.times = 0
        self.event = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self.event.set()


@asynccontextmanager
async def timer(rung: Callable[[], None]) -> AsyncIterator[FineTimer]:
    made = FineTimer(asyncio.get_running_loop(), rung)
    try:
        yield made
    finally:
        made.close()


def descriptors() -> set[str]:
    return {each.name for each in Path("/proc/self/fd").iterdir()}


async def test_timer_calls_back_once_and_never_early() -> None:
    rung = Rung()
    async with timer(rung) as made:
        began = time.monotonic()
        made.start(0.0003)
        await asyncio.wait_for(rung.event.wait(), 10)
        assert time.monotonic() - began >= 0.0003
        rung.event.clear()
        made.start(0.02)
        await asyncio.wait_for(rung.event.wait(), 10)
        assert time.monotonic() - began >= 0.0203
    assert rung.times == 2


async def test_later_start_replaces_an_earlier_one() -> None:
    rung = Rung()
    async with timer(rung) as made:
        made.start(1000)
        made.start(0.000001)
        await asyncio.wait_for(rung.event.wait(), 10)


@on_linux
async def test_timer_does_not_use_a_timer_of_the_loop() -> None:
    """The timer wakes select, so the loop schedules no handle."""
    async with timer(Rung()) as made:
        made.start(1000)
        assert not asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]


@on_linux
async def test_restarted_timer_ignores_the_pending_callback() -> None:
    rung = Rung()
    async with timer(rung) as made:
        made.start(0.000001)
        assert select.select([made._descriptor], [], [], 10)[0]
        made.start(1000)
        made._expired()
    assert not rung.times


@on_linux
async def test_closed_timer_closes_its_descriptor() -> None:
    rung, before = Rung(), descriptors()
    made = FineTimer(asyncio.get_running_loop(), rung)
    assert descriptors() > before
    made.start(0.000001)
    made.close()
    made.close()
    assert descriptors() == before
    made.start(0.000001)  # by the loop
    await asyncio.wait_for(rung.event.wait(), 10)
    assert rung.times == 1


@on_linux
def test_timer_of_a_lost_event_loop_closes_its_descriptor() -> None:
    async def forget() -> int:
        made = FineTimer(asyncio.get_running_loop(), Rung())
        made.start(1000)
        return made._descriptor

    descriptor = asyncio.run(forget())
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@in_virtual_time
async def test_timer_uses_the_loop_on_other_platforms_and_clocks(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    rung, loop = Rung(), asyncio.get_running_loop()
    async with timer(rung) as made:
        began = loop.time()
        made.start(50)
        made.start(100)
        await rung.event.wait()
        assert loop.time() - began == pytest.approx(100)
        made.start(100)
    await asyncio.sleep(200)
    assert rung.times == 1


class FakeLibc:
    """The calls of timerfd in the C library."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.started: list[tuple[int, int, tuple[int, ...]]] = []

    def timerfd_create(self, clock: int, flags: int) -> int:
        assert (clock, flags) == (time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        return self.descriptor

    def timerfd_settime(self, descriptor: int, flags: int, new: bytes, old: None) -> int:
        self.started.append((descriptor, flags, struct.unpack("@4l", new)))
        return 0


@on_linux
async def test_timer_starts_without_flags_and_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.eventfd(0)
    libc = FakeLibc(descriptor)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
    async with timer(Rung()) as made:
        made.start(2.0003)
    assert libc.started == [(descriptor, 0, (0, 0, 2, 300_000))]


@on_linux
async def test_timer_uses_the_loop_without_a_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: FakeLibc(-1))
    rung = Rung()
    async with timer(rung) as made:
        made.start(0)
        await asyncio.wait_for(rung.event.wait(), 10)
