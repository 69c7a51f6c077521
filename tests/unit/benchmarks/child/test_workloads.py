from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aioproducer.testing import in_virtual_time
from benchmarks.child import workloads
from benchmarks.clients.base import Client, Send
from benchmarks.payload import Header, Window, window_of
from benchmarks.settings import GATHERED, TASKS, TRANSACTION, WINDOW_BYTES, Settings, Work


class Clock:
    """A clock that advances only when a client works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeClient(Client):
    """Takes a tenth of a second for a transaction."""

    clock: Clock

    def __init__(self, settings: Settings, clock: Clock) -> None:
        super().__init__("here:1", "t", settings)
        self.clock = clock
        self.windows: list[Window] = []

    async def start(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to end."""

    async def transact(self, window: Window) -> None:
        self.windows.append(window)
        self.clock.now += 0.1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(workloads, "perf_counter", clock)
    return clock


async def test_transactions_of_the_warm_up_do_not_count(clock: Clock) -> None:
    settings = Settings(work=Work.TRANSACTIONS, keys=True, warm_up_s=2.95, seconds=0.95)
    client = FakeClient(settings, clock)
    run = await workloads.transactions(client, window_of(settings), settings)
    assert len(client.windows) == 30 + 10
    assert run.sent == 40 * TRANSACTION
    assert run.figures["p50_ms"] == pytest.approx(100)
    assert client.windows[0] != client.windows[1]
    assert {len(window) for window in client.windows} == {TRANSACTION}


class Sends(FakeClient):
    """Acknowledges at once, and notes when each record came."""

    def __init__(self, settings: Settings, time: Callable[[], float]) -> None:
        super().__init__(settings, Clock())
        self.time = time
        self.came_at: list[float] = []

    async def acknowledge(self) -> None:
        self.came_at.append(self.time())

    def call_whole(self, value: bytes, key: bytes | None, headers: list[Header] | None) -> Send:
        return self.acknowledge


@in_virtual_time
async def test_steady_load_keeps_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    time = asyncio.get_running_loop().time
    monkeypatch.setattr(workloads, "perf_counter", time)
    settings = Settings(work=Work.STEADY, keys=True, records=5, rate=1_000)
    client = Sends(settings, time)
    run = await workloads.steady(client, window_of(settings), settings)
    assert run.sent == len(client.came_at) == TASKS + 5
    assert client.came_at[TASKS:] == pytest.approx([0, 0.001, 0.002, 0.003, 0.004])
    assert run.figures.keys() >= {"cpu_us", "load_us"}


@in_virtual_time
async def test_steady_load_does_not_time_its_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[list[float]] = []

    def latency_figures(seconds: list[float]) -> dict[str, float]:
        timed.append(seconds)
        return {}

    time = asyncio.get_running_loop().time
    monkeypatch.setattr(workloads, "perf_counter", time)
    monkeypatch.setattr(workloads, "latency_figures", latency_figures)
    settings = Settings(work=Work.SLOW_BROKER, keys=True, records=5, rate=1_000, warm_up_s=0.02)
    client = Sends(settings, time)
    run = await workloads.steady(client, window_of(settings), settings)
    assert run.sent == len(client.came_at) == TASKS + 20 + 5
    assert [len(latencies) for latencies in timed] == [5]
    assert max(client.came_at) == pytest.approx(23 / 1_000)


class Outcomes(FakeClient):
    """Client that reports the given places, and takes 0.1 s per window."""

    def __init__(self, settings: Settings, clock: Clock, places: list[tuple[int, int]] | None) -> None:
        super().__init__(settings, clock)
        self.places = places
        self.counts: list[int] = []

    async def outcomes(self, window: Window) -> list[tuple[int, int]] | None:
        return self.places

    async def callbacks(self, window: Window) -> None:
        await self.gather(window, len(window))

    async def gather(self, window: Window, count: int) -> None:
        self.clock.now += 0.1
        self.counts.append(count)


@pytest.mark.parametrize("work", [Work.CALLBACKS, Work.GATHER])
async def test_outcomes_are_checked_before_they_are_timed(clock: Clock, work: Work) -> None:
    settings = Settings(work=work, value_bytes=WINDOW_BYTES // 2, seconds=0.25)
    program = workloads.callbacks if work is Work.CALLBACKS else workloads.gather
    count = 2 if work is Work.CALLBACKS else GATHERED
    for places in ([(0, 0), (0, 1)], [(0, 0), (1, 0)], None):
        client = Outcomes(settings, clock, places)
        run = await program(client, window_of(settings), settings)
        assert client.counts == [count] * 3
        assert run.sent == 2 + 3 * count
        assert run.figures["records_s"] > 0
    client = Outcomes(settings, clock, [(0, 0), (0, 0)])
    with pytest.raises(RuntimeError, match="2 records were sent, but have only 1 distinct offsets"):
        await program(client, window_of(settings), settings)
    assert client.counts == []
