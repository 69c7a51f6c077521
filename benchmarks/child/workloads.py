"""Workloads for throughput and latency. Each workload warms up and then runs until its time ends.

The measured time includes the acknowledgement of every record that was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import cycle
from time import perf_counter
from typing import Final

from benchmarks.child.watch import Watch
from benchmarks.clients.base import Client, Send, sends
from benchmarks.figures import Run
from benchmarks.payload import Window
from benchmarks.percentiles import latency_figures
from benchmarks.settings import GATHERED, TASKS, TRANSACTION, Settings

TIMED_TASKS: Final = 16
"""Number of tasks that measure the latency of their calls. Each measurement costs up to a twentieth of a fast call."""
LOAD_S: Final = 1.0
"""Duration of the measurement of a steady load without a client, in seconds."""
LONE_WARM_UPS: Final = 5
LONE_WARM_UP_S: Final = 1.0
"""Time after which no further warm-up call starts, in seconds. Some clients delay a single record for seconds."""


class Turns:
    """End of a workload: after a duration or a number of records."""

    def __init__(self, settings: Settings) -> None:
        self._until = perf_counter() + settings.seconds
        self._wanted = settings.records
        self._done = 0

    def over(self, records: int = 1) -> bool:
        """Add *records* sent records; return True at the end of the workload."""
        if not self._wanted:
            return perf_counter() >= self._until
        self._done += records
        return self._done >= self._wanted


async def closed(client: Client, window: Window, settings: Settings) -> Run:
    """256 tasks, each awaiting one acknowledgement after the other."""
    calls = sends(client, window)
    await asyncio.gather(*(send() for send in calls[:TASKS]))
    latencies: list[float] = []
    counts: list[int] = []
    turns = Turns(settings)
    over = False

    async def timed(calls: Sequence[Send]) -> None:
        nonlocal over
        count = 0
        for send in cycle(calls):
            began = perf_counter()
            await send()
            latencies.append(perf_counter() - began)
            count += 1
            over = over or turns.over(TASKS // TIMED_TASKS)
            if over:
                break
        counts.append(count)

    async def untimed(calls: Sequence[Send]) -> None:
        count = 0
        for send in cycle(calls):
            await send()
            count += 1
            if over:
                break
        counts.append(count)

    watch = Watch()
    async with asyncio.TaskGroup() as group:
        for task in range(TASKS):
            own = calls[task % len(calls) :: TASKS]
            group.create_task((timed if task % (TASKS // TIMED_TASKS) == 0 else untimed)(own))
    figures = watch.figures(sum(counts))
    return Run(sent=min(TASKS, len(window)) + sum(counts), figures={**figures, **latency_figures(latencies)})


async def steady(client: Client, window: Window, settings: Settings) -> Run:
    """Records at a constant rate, each sent by a separate task, as in a service with this rate of requests."""
    calls = sends(client, window)
    await asyncio.gather(*(send() for send in calls[:TASKS]))
    going_round, warm_ups = cycle(calls), int(settings.rate * settings.warm_up_s)
    if warm_ups:
        _ = await _at_rate(going_round, settings.rate, lambda started: started >= warm_ups)
    turns, watch = Turns(settings), Watch()
    latencies = await _at_rate(going_round, settings.rate, lambda _: turns.over())
    figures = watch.figures(len(latencies))
    load, watch = int(settings.rate * LOAD_S), Watch()
    _ = await _at_rate(cycle([_nothing]), settings.rate, lambda started: started >= load)
    figures["load_us"] = watch.figures(load)["cpu_us"]
    sent = min(TASKS, len(window)) + warm_ups + len(latencies)
    return Run(sent=sent, figures={**figures, **latency_figures(latencies)})


async def _nothing() -> None:
    """Return immediately: the load without a client."""


async def _at_rate(calls: Iterator[Send], rate: int, is_over: Callable[[int], bool]) -> list[float]:
    """Send *rate* records a second until *is_over* is true for the number of records; return the latencies.

    One timer per record starts one task: a sleeping task would cost the client's process twice as much.
    """
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    latencies: list[float] = []
    last = asyncio.Event()
    began = loop.time()

    async def timed(send: Send) -> None:
        began = perf_counter()
        await send()
        latencies.append(perf_counter() - began)

    def start() -> None:
        tasks.append(loop.create_task(timed(next(calls))))
        if is_over(len(tasks)):
            last.set()
        else:
            loop.call_at(began + len(tasks) / rate, start)

    start()
    await last.wait()
    for task in tasks:
        await task
    return latencies


async def lone(client: Client, window: Window, settings: Settings) -> Run:
    """One task, awaiting one acknowledgement after the other."""
    calls, warm_ups = sends(client, window), 0
    warm_at = perf_counter() + LONE_WARM_UP_S
    while warm_ups < LONE_WARM_UPS and perf_counter() < warm_at:
        await calls[warm_ups % len(calls)]()
        warm_ups += 1
    latencies: list[float] = []
    turns, watch = Turns(settings), Watch()
    for send in cycle(calls):
        began = perf_counter()
        await send()
        latencies.append(perf_counter() - began)
        if turns.over():
            break
    figures = watch.figures(len(latencies))
    return Run(sent=warm_ups + len(latencies), figures={**figures, **latency_figures(latencies)})


async def fire(client: Client, window: Window, settings: Settings) -> Run:
    """Windows of records appended one by one; each outcome is then awaited."""
    return await _windows(client.fire, client, window, settings)


async def callbacks(client: Client, window: Window, settings: Settings) -> Run:
    """Windows of records appended one by one, each with a callback. The next window follows after all callbacks."""
    return await _windows(client.callbacks, client, window, settings)


async def _windows(
    send: Callable[[Window], Awaitable[None]], client: Client, window: Window, settings: Settings
) -> Run:
    await check(client, window)
    turns, watch, windows = Turns(settings), Watch(), 0
    while True:
        await send(window)
        windows += 1
        if turns.over(len(window)):
            break
    return Run(sent=(windows + 1) * len(window), figures=watch.figures(windows * len(window)))


async def gather(client: Client, window: Window, settings: Settings) -> Run:
    """100,000 records appended one by one; one call then gathers all outcomes."""
    await check(client, window)
    turns, watch, times = Turns(settings), Watch(), 0
    while True:
        await client.gather(window, GATHERED)
        times += 1
        if turns.over(GATHERED):
            break
    return Run(sent=len(window) + times * GATHERED, figures=watch.figures(times * GATHERED))


async def check(client: Client, window: Window) -> None:
    """Send *window* once, as a warm-up. Raises: RuntimeError if two records have the same partition and offset."""
    places = await client.outcomes(window)
    if places is not None and len(set(places)) != len(window):
        raise RuntimeError(
            f"{len(window)} records were sent, but have only {len(set(places))} distinct offsets"
        )


async def bulk(client: Client, window: Window, settings: Settings) -> Run:
    """Windows appended with one call each, several calls in flight."""
    await client.bulk(window)
    await client.settle()
    turns, watch, calls = Turns(settings), Watch(), 0

    async def caller() -> None:
        nonlocal calls
        while True:
            calls += 1
            await client.bulk(window)
            if turns.over(len(window)):
                break

    async with asyncio.TaskGroup() as group:
        for _ in range(settings.calls_in_flight):
            group.create_task(caller())
    await client.settle()
    return Run(sent=(calls + 1) * len(window), figures=watch.figures(calls * len(window)))


async def one_by_one(client: Client, window: Window, settings: Settings) -> Run:
    """Windows appended with one call each. The next call follows after all acknowledgements of the window."""
    await client.bulk(window)
    await client.settle()
    turns, watch, calls = Turns(settings), Watch(), 0
    while True:
        await client.bulk(window)
        await client.settle()
        calls += 1
        if turns.over(len(window)):
            break
    return Run(sent=(calls + 1) * len(window), figures=watch.figures(calls * len(window)))


async def transactions(client: Client, window: Window, settings: Settings) -> Run:
    """Transactions of ten records, one after the other."""
    keys = window.keys or ()
    small = [
        Window(window.values[start : start + TRANSACTION], keys[start : start + TRANSACTION] or None)
        for start in range(0, len(window), TRANSACTION)
    ]
    going_round, warm_ups = cycle(small), 0
    warm_at = perf_counter() + settings.warm_up_s
    while perf_counter() < warm_at:
        await client.transact(next(going_round))
        warm_ups += 1
    latencies: list[float] = []
    turns, watch = Turns(settings), Watch()
    for each in going_round:
        began = perf_counter()
        await client.transact(each)
        latencies.append(perf_counter() - began)
        if turns.over(TRANSACTION):
            break
    figures = watch.figures(len(latencies) * TRANSACTION)
    sent = (warm_ups + len(latencies)) * TRANSACTION
    return Run(sent=sent, figures={**figures, **latency_figures(latencies)})


def compressor_us(window: Window, settings: Settings, clock: Callable[[], float]) -> float:
    """Return the CPU of the compressor alone per record, in µs, with batches of `batch_bytes`."""
    from aioproducer._core.records.compression import Codec, compressor

    compress = compressor(getattr(Codec, settings.compression.upper()), None)
    data = b"".join(window.values)
    size = settings.batch_bytes
    began = clock()
    for start in range(0, len(data), size):
        compress(data[start : start + size])
    return (clock() - began) / len(window) * 1e6
