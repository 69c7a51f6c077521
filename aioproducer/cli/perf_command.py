"""`aioproducer perf`: many records, their throughput and their latencies."""

from __future__ import annotations

import asyncio
import math
import random
from asyncio import Future, Semaphore, Task
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer._core.acceleration import accelerated
from aioproducer._core.intake.many import OrderedCalls
from aioproducer.audit import stamp
from aioproducer.cli.logs import without_warnings
from aioproducer.cli.output import ACCELERATION, echo_json, escaping, plain_table, show_table
from aioproducer.cli.reports import Failures, audit_hint, await_topic, counted, done, failures_of, on_signals
from aioproducer.config import ProducerConfig
from aioproducer.errors import ProducerError
from aioproducer.producer import Producer
from aioproducer.types import RecordMetadata

STEP: Final = 1.01
"""Ratio of bucket limits: percentiles are exact to 1 %."""
_LOG_STEP: Final = math.log(STEP)
SHORTEST_S: Final = 1e-9
"""Shortest latency that is counted."""


class Latencies:
    """A histogram of latencies in seconds, which keeps counts per bucket."""

    def __init__(self) -> None:
        self.count: int = 0
        self.longest_s: float = 0.0
        self._total_s = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, latency_s: float, records: int = 1) -> None:
        """Count *records* records with the same latency."""
        if not records:
            return
        self.count += records
        self._total_s += latency_s * records
        self.longest_s = max(self.longest_s, latency_s)
        self._buckets[math.ceil(math.log(max(latency_s, SHORTEST_S)) / _LOG_STEP)] += records

    @property
    def mean_s(self) -> float:
        """Mean latency; 0 without records."""
        return self._total_s / self.count if self.count else 0.0

    def percentile_s(self, share: float) -> float:
        """Return the latency that *share* (above 0, up to 1) did not exceed, at most 1 % too high; 0 without records."""
        remaining = math.ceil(share * self.count)
        for bucket in sorted(self._buckets):
            remaining -= self._buckets[bucket]
            if remaining <= 0:
                return min(STEP**bucket, self.longest_s)
        return 0.0


DIFFERENT_VALUES: Final = 1_000
VALUES_BYTES: Final = 16 * 1024 * 1024
"""Total size of the different values, which limits their number."""
_LETTERS: Final = bytes(ord("A") + byte % 26 for byte in range(256))
CALLS: Final = 4
"""Largest number of concurrent `send_many` calls."""
RECORDS_A_CALL: Final = 5_000
BYTES_A_CALL: Final = 4 * 1024 * 1024
"""Total size of the values of a call, which limits its number of records."""
WINDOW_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfArguments:
    """Arguments of a run."""

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
    """Acknowledgements in one interval of a run."""

    began_s: float
    """Start of the interval, in seconds from the start of the run."""
    seconds: float
    latencies: Latencies


@dataclass(slots=True)
class PerfOutcome:
    """Results of a run."""

    arguments: PerfArguments
    sent: int = 0
    """Number of records passed to the producer, with sequences below this number."""
    seconds: float = 0.0
    """Time from the first call to the last outcome."""
    latencies: Latencies = field(default_factory=Latencies)
    """Latencies of acknowledged records from their call on; for `send_many`, until the call returns."""
    failures: Failures = field(default_factory=Failures)
    windows: list[Window] = field(default_factory=list)

    @property
    def method(self) -> str:
        """Method of the producer that sends the records."""
        return "send_many" if self.arguments.rate is None else "enqueue"

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged records."""
        return self.latencies.count

    @property
    def complete(self) -> bool:
        """True if all planned records were acknowledged."""
        return self.acknowledged == self.arguments.records


async def run(arguments: PerfArguments, on_window: Callable[[Window], None]) -> PerfOutcome:
    """Send the records of *arguments* and wait for every outcome; call *on_window* every five seconds.

    After a cancellation, the run sends no more records and waits for the outcomes of the sent records. A second
    cancellation abandons these records. A cancellation during start-up raises CancelledError.

    Raises: ConnectionFailed, MetadataTimeout: no cluster or no topic; no record was sent.
    """
    outcome, different = PerfOutcome(arguments), values_of(arguments)
    async with Producer.from_config(arguments.config) as producer:
        # Waited for before the first record, because the wait would count in its latency.
        await await_topic(producer, arguments.topic)
        meter = _Meter(outcome, on_window)
        async with meter.running():
            calls: set[Task[None]] = set()
            try:
                if arguments.rate is None:
                    await _send_in_bulk(producer, arguments, different, meter, calls)
                else:
                    await _send_at_rate(producer, arguments, arguments.rate, different, meter)
                await _wait_for_outcomes(producer, calls)
            except asyncio.CancelledError:
                _uncancel()
                try:
                    await _wait_for_outcomes(producer, calls)
                except asyncio.CancelledError:
                    _uncancel()
                    _ = await producer.close(0)
                    await _wait_for_outcomes(None, calls)
    return outcome


async def _wait_for_outcomes(producer: Producer | None, calls: Collection[Task[None]]) -> None:
    """Wait for every outcome; cancelling the wait leaves the records to the producer."""
    if calls:
        await asyncio.wait(calls)
    if producer is not None:
        await producer.flush()


async def _send_in_bulk(
    producer: Producer,
    arguments: PerfArguments,
    different: Sequence[bytes],
    meter: _Meter,
    calls: set[Task[None]],
) -> None:
    """Send all records in order by a few concurrent *calls*, which continue when this task is cancelled."""
    values, ordered, free = cycle(different), OrderedCalls(), Semaphore(CALLS)
    a_call = max(1, min(RECORDS_A_CALL, BYTES_A_CALL // max(1, arguments.value_bytes)))

    async def send(numbers: range) -> None:
        columns = list(islice(values, len(numbers)))
        headers = [stamp(arguments.run, number) for number in numbers]
        called = asyncio.get_running_loop().time()
        call = partial(producer._send_in, ordered, arguments.topic, columns, headers=headers)  # noqa: SLF001 - of this package
        failures = await failures_of(call, len(numbers))
        meter.settle_call(called, len(numbers), failures.values())

    for first in range(0, arguments.records, a_call):
        await free.acquire()
        numbers = range(first, min(first + a_call, arguments.records))
        call = asyncio.create_task(send(numbers))
        calls.add(call)
        call.add_done_callback(calls.discard)
        call.add_done_callback(lambda _: free.release())
        meter.outcome.sent = numbers.stop


async def _send_at_rate(
    producer: Producer, arguments: PerfArguments, rate: float, different: Sequence[bytes], meter: _Meter
) -> None:
    values = cycle(different)
    now = asyncio.get_running_loop().time
    began = now()
    for number in range(arguments.records):
        await asyncio.sleep(max(0.0, began + number / rate - now()))
        called = now()
        try:
            future = await producer.enqueue(
                arguments.topic, next(values), headers=stamp(arguments.run, number)
            )
        except ProducerError as error:
            meter.outcome.failures.add(error)
        else:
            future.add_done_callback(partial(meter.settle, called))
        meter.outcome.sent = number + 1


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def values_of(arguments: PerfArguments) -> Sequence[bytes]:
    """Return values of random letters, equal in every run."""
    affordable = VALUES_BYTES // max(1, arguments.value_bytes)
    count = max(1, min(arguments.records, DIFFERENT_VALUES, affordable))
    rng = random.Random(1)
    return [rng.randbytes(arguments.value_bytes).translate(_LETTERS) for _ in range(count)]


class _Meter:
    """Records outcomes, and ends a window every five seconds."""

    def __init__(self, outcome: PerfOutcome, on_window: Callable[[Window], None]) -> None:
        self.outcome = outcome
        self._on_window = on_window
        self._now = asyncio.get_running_loop().time
        self._window = Latencies()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Measure the time while the block runs."""
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
        """Record the outcome of a record sent at *called*."""
        error = future.exception()
        self.settle_call(called, 1, () if error is None else (error,))

    def settle_call(self, called: float, records: int, failures: Collection[BaseException]) -> None:
        """Record the outcomes of *records* records sent by one call at *called*."""
        for error in failures:
            self.outcome.failures.add(error)
        for latencies in (self.outcome.latencies, self._window):
            latencies.add(self._now() - called, records - len(failures))

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


PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
MIB: Final = 1024 * 1024


async def run_and_report(arguments: PerfArguments, *, as_json: bool) -> bool:
    """Run *arguments*, show the results, and return True if every record was acknowledged.

    A signal ends the run early and waits for sent records; a second signal ends the waiting.

    Raises: ProducerError: no record could be sent; click.Abort: a signal arrived during start-up.
    """
    console = escaping(Console(highlight=False, stderr=as_json))
    running = asyncio.create_task(run(arguments, lambda window: _show_window(console, arguments, window)))
    left = 2  # the first signal ends the sending, the second the waiting

    def interrupt() -> None:
        nonlocal left
        if left:
            left -= 1
            running.cancel()

    try:
        with without_warnings("aioproducer.batching"), on_signals(interrupt):
            outcome = await running
    except asyncio.CancelledError:
        if running.done() and not running.cancelled():
            raise  # a failed output ended the process, such as a broken pipe
        raise click.Abort from None  # a signal during start-up
    if as_json:
        echo_json(to_dict(outcome))
    else:
        show_table(console, _table(outcome))
        console.print(_verdict(outcome), end="", soft_wrap=True)
    return outcome.complete


def to_dict(outcome: PerfOutcome) -> dict[str, Any]:
    """Return all results as JSON values."""
    arguments = outcome.arguments
    return {
        "topic": arguments.topic,
        "run": arguments.run,
        "value_bytes": arguments.value_bytes,
        "records": arguments.records,
        "sent_with": outcome.method,
        "accelerated": accelerated,
        "sent": outcome.sent,
        "acknowledged": outcome.acknowledged,
        "failures": dict(outcome.failures),
        **_figures(arguments, outcome.seconds, outcome.latencies),
        "windows": [
            {"began_s": window.began_s, **_figures(arguments, window.seconds, window.latencies)}
            for window in outcome.windows
        ],
    }


def _figures(arguments: PerfArguments, seconds: float, latencies: Latencies) -> dict[str, Any]:
    per_second = latencies.count / seconds if seconds else 0.0
    return {
        "seconds": seconds,
        "records_per_second": per_second,
        "mib_per_second": per_second * arguments.value_bytes / MIB,
        "latency_ms": _latency_ms(latencies),
    }


def _latency_ms(latencies: Latencies) -> dict[str, float | None]:
    if not latencies.count:
        return dict.fromkeys(("mean", *PERCENTILES, "max"))
    return {
        "mean": latencies.mean_s * 1000,
        **{name: latencies.percentile_s(share) * 1000 for name, share in PERCENTILES.items()},
        "max": latencies.longest_s * 1000,
    }


def _ms(latency_ms: float | None) -> str:
    return "-" if latency_ms is None else f"{latency_ms:,.1f} ms"


def _show_window(console: Console, arguments: PerfArguments, window: Window) -> None:
    figures = _figures(arguments, window.seconds, window.latencies)
    latency_ms = figures["latency_ms"]
    console.print(
        f"{window.began_s + window.seconds:6.1f} s: {counted(window.latencies.count)} {done(arguments.config)},"
        f" {figures['records_per_second']:,.0f} records/s, {figures['mib_per_second']:,.1f} MiB/s,"
        f" p50 {_ms(latency_ms['p50'])}, p99 {_ms(latency_ms['p99'])}",
        soft_wrap=True,
    )


def _table(outcome: PerfOutcome) -> Table:
    arguments = outcome.arguments
    figures = _figures(arguments, outcome.seconds, outcome.latencies)
    table = plain_table()
    table.add_column("")
    table.add_column(f"{arguments.value_bytes:,} bytes each", justify="right")
    table.add_row(f"records {done(arguments.config)}", f"{outcome.acknowledged:,}")
    table.add_row("sent with", outcome.method)
    table.add_row("producer", ACCELERATION)
    table.add_row("seconds", f"{outcome.seconds:,.2f}")
    table.add_row("records/s", Text(f"{figures['records_per_second']:,.0f}", style="bold green"))
    table.add_row("MiB/s", f"{figures['mib_per_second']:,.1f}")
    for name, latency_ms in figures["latency_ms"].items():
        table.add_row(f"latency {name}", _ms(latency_ms))
    return table


def _verdict(outcome: PerfOutcome) -> Text:
    arguments, verdict = outcome.arguments, Text()
    for failure, count in outcome.failures.items():
        verdict.append(f"{count:,} failed: {failure}\n", style="bold red")
    if outcome.sent < arguments.records:
        verdict.append(f"Interrupted: {outcome.sent:,} of {counted(arguments.records)} were sent.\n", "bold")
    if outcome.acknowledged and arguments.config.acks != 0:
        verdict.append(audit_hint(arguments.config, arguments.topic, arguments.run, outcome.sent))
    return verdict
