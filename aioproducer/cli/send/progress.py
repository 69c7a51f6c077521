"""The progress of `aioproducer send`: bytes, records, rate and remaining time, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, NamedTuple

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.text import Text

from aioproducer.cli.send.input_source import size_of
from aioproducer.cli.send.plan import Outcome, Plan
from aioproducer.cli.shell import done

BAR_CELLS: Final = 20
BAR_FROM_CELLS: Final = 120
"""Width of a terminal with room for a bar beside the figures."""


class _Figure(NamedTuple):
    """Part of the line; figures of higher *weight* are left out first on a narrow terminal."""

    weight: int
    text: str


class _Figures(ProgressColumn):
    """The figures that fit the terminal."""

    def __init__(self, console: Console, acknowledged: str) -> None:
        super().__init__()
        self._console = console
        self._acknowledged = acknowledged

    def render(self, task: Task) -> Text:
        """Return one line."""
        figures = self._all(task)
        width = self._console.width - (BAR_CELLS + 1 if self._console.width >= BAR_FROM_CELLS else 0)
        line = ", ".join(text for _, text in figures)
        while len(line) > width and len(figures) > 1:
            figures.remove(max(figures))
            line = ", ".join(text for _, text in figures)
        return Text(line, no_wrap=True, overflow="ellipsis")

    def _all(self, task: Task) -> list[_Figure]:
        outcome: Outcome = task.fields["outcome"]
        size = decimal(int(task.completed))
        if task.total is not None:
            size += f" of {decimal(int(task.total))} ({task.percentage:.0f} %)"
        failed, elapsed_s = outcome.failures.total(), task.elapsed or 0.0
        rate = outcome.acknowledged / elapsed_s if elapsed_s else 0.0
        return [
            _Figure(0, size),
            _Figure(2, f"{outcome.acknowledged:,} {self._acknowledged}"),
            *([_Figure(3, f"{failed:,} failed")] if failed else []),
            _Figure(4, f"{rate:,.0f} records/s"),
            _Figure(1, self._time(task, elapsed_s)),
        ]

    @staticmethod
    def _time(task: Task, elapsed_s: float) -> str:
        if task.total is None:
            return str(timedelta(seconds=int(elapsed_s)))
        left_s = task.time_remaining
        return "-:--:-- left" if left_s is None else f"{timedelta(seconds=int(left_s))} left"


@contextmanager
def progress(console: Console, plan: Plan) -> Iterator[Callable[[Outcome], None]]:
    """Show the progress of *plan* on a terminal while the block runs."""
    figures = _Figures(console, done(plan.config))
    columns = (BarColumn(BAR_CELLS), figures) if console.width >= BAR_FROM_CELLS else (figures,)
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=size_of(plan.paths), outcome=Outcome(plan))

        def show(outcome: Outcome) -> None:
            position = outcome.meter.position(outcome.prefix.size)
            if not outcome.acknowledged:  # a checkpoint skips faster than records are sent
                bars.reset(bar, completed=int(position), outcome=outcome)
            bars.update(bar, completed=position, outcome=outcome)

        yield show
