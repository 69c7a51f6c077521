"""Terminal output of the Spark benchmark: figures and targets."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.figures import Played, Results
from benchmarks.row import FIGURES
from benchmarks.settings import Tuning
from benchmarks.show import STYLES, TARGET_HEADINGS, amount, times, verdict_text
from benchmarks.spark.table import COLUMNS, TABLE
from benchmarks.summary import judge, spread_of, wanted


def show_results(results: Results, console: Console) -> None:
    """Print machine, versions, tables, verdicts and failures."""
    facts = ", ".join([*results.machine.values(), *(f"{name} {v}" for name, v in results.versions.items())])
    console.print(Text(facts, style="dim"))
    for tuning, rows in results.tables.items():
        console.print(measured_table(rows))
        console.print(target_table(rows, tuning))
    for failure in results.failures:
        console.print(Text(f"failed: {failure}", style="bold red"))


def measured_table(rows: Mapping[str, Played]) -> Table:
    """Return a table of the medians over all rounds, by row and sink."""
    table = _table("workload", "sink")
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for name, played in rows.items():
        for place, sink in enumerate(TABLE[name].clients):
            cells = [amount(spread_of(played, sink, figure)) for figure in COLUMNS]
            table.add_row("" if place else TABLE[name].title, sink, *cells)
    return table


def target_table(rows: Mapping[str, Played], tuning: Tuning) -> Table:
    """Return the targets, relative to Spark's sink or to a weaker guarantee, with their verdicts."""
    table = _table(*TARGET_HEADINGS)
    for name, played in rows.items():
        for judged in judge(TABLE[name], played, tuning):
            target = judged.target
            table.add_row(
                target.tuning,
                name,
                f"{target.ours}: {FIGURES[target.figure].title} against {target.against}",
                "" if judged.value is None else times(judged.value, "×"),
                wanted(target, target.must),
                wanted(target, target.goal),
                Text(verdict_text(judged), style=STYLES[judged.verdict]),
            )
    return table


def _table(*headings: str) -> Table:
    return Table(*headings, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
