"""One run: records go out as fast as memory allows, or at a rate, each with its run and sequence in its headers."""

from __future__ import annotations

import asyncio
import random
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Final

from aioproducer.audit import stamp
from aioproducer.cli.perf.latencies import Latencies
from aioproducer.cli.shell import Failures, await_topic
from aioproducer.config import ProducerConfig
from aioproducer.errors import ProducerError
from aioproducer.producer import Producer
from aioproducer.types import RecordMetadata

DIFFERENT_VALUES: Final = 1_000
VALUES_BYTES: Final = 16 * 1024 * 1024
"""Of all different values: where they are large, there are fewer."""
_LETTERS: Final = bytes(ord("A") + byte % 26 for byte in range(256))
RECORDS_A_TURN: Final = 100
"""After so many the event loop gets a turn: `enqueue` does not wait while there is memory."""
WINDOW_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be sent where."""

    config: ProducerConfig
    topic: str
    run: str
    """The run's id, in the header aioproducer-run."""
    records: int
    value_bytes: int
    rate: float | None
    """Records per second; None: as fast as possible."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was acknowledged between two moments of a run."""

    began_s: float
    """Since the run began."""
    seconds: float
    latencies: Latencies


@dataclass(slots=True)
class Outcome:
    """What became of the records."""

    plan: Plan
    sent: int = 0
    """How many were handed over: those with sequences below it."""
    seconds: float = 0.0
    """From the first call to the last outcome."""
    latencies: Latencies = field(default_factory=Latencies)
    """Of what was acknowledged, each from its call on."""
    failures: Failures = field(default_factory=Failures)
    windows: list[Window] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        """How many are in the topic for sure."""
        return self.latencies.count

    @property
    def complete(self) -> bool:
        """Whether all that was planned was acknowledged."""
        return self.acknowledged == self.plan.records


async def run(plan: Plan, on_window: Callable[[Window], None]) -> Outcome:
    """Send what *plan* says and wait for every outcome; *on_window* hears of each five seconds.

    Cancelled, it hands over no more, and waits for the outcomes of what is under way; cancelled again, it gives those
    up. Cancelled while it starts, it raises CancelledError.

    Raises: ConnectionFailed, MetadataTimeout: the cluster or the topic is not there. Nothing was sent then.
    """
    outcome, different = Outcome(plan), values_of(plan)
    async with Producer.from_config(plan.config) as producer:
        await await_topic(producer, plan.topic)  # no record's latency is to have that in it
        meter = _Meter(outcome, on_window)
        async with meter.running():
            try:
                await _send(producer, plan, different, meter)
                await producer.flush()
            except asyncio.CancelledError:
                _uncancel()
                try:
                    await producer.flush()
                except asyncio.CancelledError:
                    _uncancel()
                    _ = await producer.close(0)
    return outcome


async def _send(producer: Producer, plan: Plan, different: Sequence[bytes], meter: _Meter) -> None:
    values = cycle(different)
    now = asyncio.get_running_loop().time
    began = now()
    for number in range(plan.records):
        if plan.rate is not None and (ahead_s := began + number / plan.rate - now()) > 0:
            await asyncio.sleep(ahead_s)
        elif number % RECORDS_A_TURN == 0:
            await asyncio.sleep(0)
        called = now()
        try:
            future = await producer.enqueue(plan.topic, next(values), headers=stamp(plan.run, number))
        except ProducerError as error:
            meter.outcome.failures.add(error)
        else:
            future.add_done_callback(partial(meter.settle, called))
        meter.outcome.sent = number + 1


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def values_of(plan: Plan) -> Sequence[bytes]:
    """Return values that compress as badly as random letters do, the same ones in every run."""
    affordable = VALUES_BYTES // max(1, plan.value_bytes)
    count = max(1, min(plan.records, DIFFERENT_VALUES, affordable))
    chance = random.Random(1)
    return [chance.randbytes(plan.value_bytes).translate(_LETTERS) for _ in range(count)]


class _Meter:
    """Takes outcomes, and closes a window every five seconds."""

    def __init__(self, outcome: Outcome, on_window: Callable[[Window], None]) -> None:
        self.outcome = outcome
        self._on_window = on_window
        self._now = asyncio.get_running_loop().time
        self._window = Latencies()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the clock."""
        self._began = self._window_began = self._now()
        windows = asyncio.create_task(self._close_windows())
        try:
            yield
        finally:
            windows.cancel()
            await asyncio.wait([windows])
            self._close_window()
            self.outcome.seconds = self._now() - self._began

    def settle(self, called: float, future: Future[RecordMetadata]) -> None:
        """Take the outcome of a record that was handed over at *called*."""
        error = future.exception()
        if error is not None:
            self.outcome.failures.add(error)
            return
        latency_s = self._now() - called
        self.outcome.latencies.add(latency_s)
        self._window.add(latency_s)

    async def _close_windows(self) -> None:
        while True:
            await asyncio.sleep(WINDOW_S)
            self._close_window()

    def _close_window(self) -> None:
        now = self._now()
        window = Window(self._window_began - self._began, now - self._window_began, self._window)
        self._window_began, self._window = now, Latencies()
        self.outcome.windows.append(window)
        self._on_window(window)
