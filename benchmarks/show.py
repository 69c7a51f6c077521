"""Terminal output: a progress bar with an estimate, then two tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from benchmarks.clients import TITLES
from benchmarks.figures import Played, Results
from benchmarks.micro.baseline import Compared
from benchmarks.parent.rounds import Step
from benchmarks.row import FIGURES, Row
from benchmarks.settings import Tuning
from benchmarks.summary import Judged, Spread, Verdict, compared, judge, spread_of, wanted
from benchmarks.table import ROWS

STYLES: Final = {
    Verdict.GOAL: "bold green",
    Verdict.MUST: "green",
    Verdict.MISSED: "bold red",
    Verdict.SHORT: "yellow",
    Verdict.UNKNOWN: "dim",
}
PIPE_WIDTH: Final = 170
TABLES: Final = {
    Tuning.DEFAULTS: "Defaults: each client with its defaults",
    Tuning.BEST: "Best: each client with its fastest options for the workload, idempotent with acks=all",
    Tuning.EQUAL: "Equal settings: the same batch size and linger for all clients, idempotent with acks=all",
}
"""Title of each table."""


def new_console() -> Console:
    """Return a console. For a file or pipe, the width fits the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


class Bar:
    """A progress bar over steps. Its unit is the estimated time of the steps."""

    def __init__(self, console: Console, steps: Iterable[Step]) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            speed_estimate_period=120,
        )
        self._task = self._progress.add_task("starting", total=sum(step.estimate_s for step in steps))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def follow(self, step: Step, failure: str) -> None:
        """Advance the bar by a finished step, and print its *failure*."""
        what = f"{step.tuning}, {step.row.name}: {step.player}"
        self._progress.update(self._task, advance=step.estimate_s, description=what)
        if failure:
            self._console.print(Text(f"{what}: {failure}", style="red"))
        elif not self._console.is_terminal:
            self._console.print(f"{what}, round {step.round_number + 1}")


def amount(spread: Spread | None) -> str:
    """Return the median with about three digits; empty for None."""
    return "" if spread is None else number(spread.median)


def number(value: float) -> str:
    """Return *value* with about three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(spread: Spread, target_unit: str) -> str:
    """Return the median and the range of the rounds, such as `2.50× (2.41-2.63)`."""
    return f"{number(spread.median)}{target_unit} ({number(spread.low)}-{number(spread.high)})"


def cells_of(row: Row, played: Played, client: str) -> list[str]:
    """Return the cells of one client in one row, under `HEADINGS`."""
    rate = spread_of(played, client, "records_s")
    apart = "" if rate is None or not rate.low else f"{rate.high / rate.low:.2f}"
    rest = [amount(spread_of(played, client, figure)) for figure in COLUMNS]
    more = [
        f"{title} {number(spread.median)} {FIGURES[figure].unit}"
        for figure, title in MORE.items()
        if (spread := spread_of(played, client, figure)) is not None
    ]
    return [TITLES[client], amount(rate), apart, *rest, ", ".join(more)]


COLUMNS: Final = ("cpu_us", "mean_ms", "p50_ms", "p99_ms", "rss_mib")
MORE: Final = {
    "kept_mib": "memory growth",
    "compressor_us": "compressor",
    "load_us": "load",
    "lag_ms": "lag p99.9",
    "control_ms": "control p99.9",
    "import_ms": "import",
    "first_ms": "first record",
    "growth": "growth",
    "requests": "requests per 1,000 records",
    "slow_share": "slow broker",
    "zone_share": "to other zones",
}
"""Figures that only some rows have."""
TARGET_HEADINGS: Final = ("table", "workload", "figure", "result (rounds)", "minimum", "goal", "verdict")
HEADINGS: Final = ("client", "records/s", "max/min", "CPU µs", "mean ms", "p50 ms", "p99 ms", "peak MiB", "")


def measured_table(rows: Mapping[str, Played], title: str) -> Table:
    """Return a table of the medians over all rounds, by row and client."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("workload", no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in {"client", ""} else "right", no_wrap=True)
    for name, played in rows.items():
        told = name
        for client in ordered(ROWS[name], played):
            who, *cells = cells_of(ROWS[name], played, client)
            if any(cells):
                table.add_row(told, who, *cells)
                told = ""
    return table


def ordered(row: Row, played: Played) -> list[str]:
    """Return the clients that ran, in the order of their declaration. The order of runs changes per round."""
    return [client for client in row.clients if client in played.runs]


def judged_rows(results: Results) -> list[tuple[Row, Judged]]:
    """Return every target with its verdict, by table."""
    return [
        (ROWS[name], judged)
        for tuning, rows in results.tables.items()
        for name, played in rows.items()
        for judged in judge(ROWS[name], played, tuning)
    ]


def value_text(judged: Judged) -> str:
    """Return the text of a target's measured value."""
    if judged.value is None:
        return ""
    target = judged.target
    unit = "×" if target.against or target.figure == "growth" else f" {FIGURES[target.figure].unit}"
    return times(judged.value, unit)


def verdict_text(judged: Judged) -> str:
    """Return the verdict and its remark."""
    return f"{judged.verdict}{f'; {judged.remark}' if judged.remark else ''}"


def target_table(results: Results) -> Table:
    """Return the targets with their results."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in TARGET_HEADINGS:
        table.add_column(heading)
    for row, judged in judged_rows(results):
        table.add_row(
            judged.target.tuning,
            row.name,
            compared(judged.target),
            value_text(judged),
            wanted(judged.target, judged.target.must),
            wanted(judged.target, judged.target.goal),
            Text(verdict_text(judged), style=STYLES[judged.verdict]),
        )
    return table


def show_results(results: Results, console: Console) -> None:
    """Print machine, versions, tables, verdicts and failures."""
    facts = ", ".join([*results.machine.values(), *(f"{name} {v}" for name, v in results.versions.items())])
    console.print(Text(facts, style="dim"))
    for tuning, rows in results.tables.items():
        console.print(measured_table(rows, TABLES[tuning]))
    if results.judged:
        console.print(target_table(results))
    for failure in results.failures:
        console.print(Text(f"failed: {failure}", style="bold red"))


def show_check(compared_units: Iterable[Compared], console: Console) -> None:
    """Print the cost of each code unit and its change since the baseline."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("unit", "µs", "ratio", "baseline", "change"):
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    for each in compared_units:
        change = "new" if each.change is None else f"{each.change - 1:+.0%}"
        table.add_row(
            each.name,
            number(each.timed.microseconds),
            f"{each.timed.ratio:.5f}",
            "" if each.baseline is None else f"{each.baseline:.5f}",
            Text(change, style="bold red" if each.slower else ""),
        )
    console.print(table)
