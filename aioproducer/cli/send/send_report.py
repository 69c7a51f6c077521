"""The display of `aioproducer send`: its progress on a terminal, then the outcome."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.text import Text

from aioproducer._core.logfmt import escaped
from aioproducer.cli.logs import without_warnings
from aioproducer.cli.output import OutputLost, echo_json, escaping, on_terminal
from aioproducer.cli.reports import audit_hint, counted, done, on_signals
from aioproducer.cli.send.arguments import SendArguments, SendOutcome
from aioproducer.cli.send.input_source import STDIN, size_of
from aioproducer.cli.send.send_run import Sending

BAR_CELLS: Final = 20
BAR_FROM_CELLS: Final = 120
"""Width of a terminal with room for a bar beside the figures."""


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

    def _all(self, task: Task) -> list[tuple[int, str]]:
        """Return the figures with their weights; a narrow terminal omits figures of higher weight first."""
        outcome: SendOutcome = task.fields["outcome"]
        size = decimal(int(task.completed))
        if task.total is not None:
            size += f" of {decimal(int(task.total))} ({task.percentage:.0f} %)"
        failed, elapsed_s = outcome.failures.total(), task.elapsed or 0.0
        rate = outcome.acknowledged / elapsed_s if elapsed_s else 0.0
        return [
            (0, size),
            (2, f"{outcome.acknowledged:,} {self._acknowledged}"),
            *([(3, f"{failed:,} failed")] if failed else []),
            (4, f"{rate:,.0f} records/s"),
            (1, self._time(task, elapsed_s)),
        ]

    @staticmethod
    def _time(task: Task, elapsed_s: float) -> str:
        if task.total is None:
            return str(timedelta(seconds=int(elapsed_s)))
        left_s = task.time_remaining
        return "-:--:-- left" if left_s is None else f"{timedelta(seconds=int(left_s))} left"


@contextmanager
def progress(console: Console, arguments: SendArguments) -> Iterator[Callable[[SendOutcome], None]]:
    """Show the progress of *arguments* on a terminal while the block runs."""
    figures = _Figures(console, done(arguments.config))
    columns = (BarColumn(BAR_CELLS), figures) if console.width >= BAR_FROM_CELLS else (figures,)
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=size_of(arguments.paths), outcome=SendOutcome(arguments))

        def show(outcome: SendOutcome) -> None:
            position = outcome.meter.position(outcome.prefix.size)
            if not outcome.acknowledged:  # skipping a checkpoint's prefix is faster than sending
                bars.reset(bar, completed=int(position), outcome=outcome)
            bars.update(bar, completed=position, outcome=outcome)

        yield show


RATE_FROM_S: Final = 1.0
"""Shortest run with a rate; below it the first acknowledgement dominates."""


class _Notes(Console):
    """Console of standard error that ignores broken pipes.

    In `aioproducer send … 2>&1 | tee log` Ctrl-C ends `tee` as well, and the command has to continue without `tee`.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # Python flushes it at exit


class _Result(Console):
    """Standard output or standard error, for the outcome."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - the BrokenPipeError that rich handles


async def send_and_report(arguments: SendArguments, *, as_json: bool = False) -> bool:
    """Run *arguments*, show the results, and return True if every record was acknowledged.

    *as_json* writes the results to standard output in any case.

    SIGINT, SIGTERM and SIGHUP end the run early and wait for sent records; a second signal ends the waiting.

    Raises: ProducerError: no record could be sent, or the checkpoint is unusable.
    """
    screen = escaping(_Notes(stderr=True, highlight=False))

    def interrupt() -> None:
        if sending.interrupt():
            with suppress(OSError):  # the terminal may be closed
                what = (
                    "waiting for what was sent" if arguments.config.transactional_id is None else "ending it"
                )
                screen.print(
                    f"Interrupted: {what}. Press Ctrl-C again to stop waiting.",
                    soft_wrap=True,
                )

    with without_warnings("aioproducer.batching"), on_signals(interrupt):
        with _bar(screen, arguments) as on_progress:
            sending = Sending(arguments, on_progress)
            try:
                outcome = await sending.run()
            except asyncio.CancelledError:  # during start-up
                outcome = sending.outcome
                outcome.stopped = "interrupted"
        # a third signal does not suppress the report
        try:
            if as_json:
                echo_json(to_dict(outcome))
            else:
                out = escaping(_Result(stderr=not outcome.complete, highlight=False))
                out.print(_verdict(outcome), end="", soft_wrap=True)
        except (BrokenPipeError, OutputLost):
            screen.print(_verdict(outcome), end="", soft_wrap=True)
            raise
    return outcome.complete


@contextmanager
def _bar(screen: Console, arguments: SendArguments) -> Iterator[Callable[[SendOutcome], None]]:
    """Show the progress on a terminal, unless the user types records on the terminal."""
    typed = STDIN in arguments.paths and sys.stdin.isatty()
    if typed:
        screen.print(f"Type records, one {arguments.format.unit} each; Ctrl-D ends them.")
    if typed or not on_terminal(screen):
        yield lambda _: None
        return
    with progress(screen, arguments) as show:
        yield show


def to_dict(outcome: SendOutcome) -> dict[str, Any]:
    """Return the results as JSON values."""
    letters = outcome.arguments.dead_letters
    return {
        "topic": outcome.arguments.topic,
        "run": outcome.arguments.run,
        "complete": outcome.complete,
        "stopped": outcome.stopped,
        "sent": outcome.sent,
        "acknowledged": outcome.acknowledged,
        "acknowledged_before": outcome.skipped,
        "failed": outcome.failures.total(),
        "failed_possibly_persisted": outcome.possibly_persisted,
        "left_out": outcome.left_out,
        "dead_letters": None if letters is None or letters.path is None else str(letters.path),
        "without_outcome": outcome.unknown,
        "errors": dict(outcome.failures),
        "first_failure": outcome.first_failure,
        "transaction": None if outcome.transaction is None else outcome.transaction.name.lower(),
        "acknowledged_up_to": outcome.prefix.place,
        "seconds": outcome.seconds,
    }


def _verdict(outcome: SendOutcome) -> Text:
    arguments, verdict = outcome.arguments, Text()
    if outcome.skipped:
        verdict.append(f"{counted(outcome.skipped)} had been acknowledged before, and not sent again.\n")
    verdict.append(f"{counted(outcome.acknowledged)} {done(arguments.config)}", "bold")
    verdict.append(f" in {outcome.seconds:,.2f} s")
    if outcome.seconds >= RATE_FROM_S:
        verdict.append(f", {outcome.acknowledged / outcome.seconds:,.0f} records/s")
    verdict.append("\n")
    if outcome.left_out:
        letters = arguments.dead_letters
        where = "" if letters is None or letters.path is None else f": {escaped(str(letters.path))} has them"
        verdict.append(f"{counted(outcome.left_out)} left out{where}\n", "bold yellow")
    verdict.append_text(_failures(outcome))
    if outcome.stopped is not None:
        verdict.append(f"Stopped: {outcome.stopped}\n", "bold red")
    if outcome.transaction is not None:
        verdict.append(f"{outcome.transaction.value}\n", "bold")
    if not outcome.complete:
        if arguments.config.transactional_id is None:
            verdict.append(_progress_text(outcome))
    elif arguments.run is not None and outcome.prefix.records:
        verdict.append(_audit_hint(outcome, arguments.run))
    return verdict


def _audit_hint(outcome: SendOutcome, run: str) -> str:
    text = audit_hint(outcome.arguments.config, outcome.arguments.topic, run, outcome.prefix.records)
    if outcome.refused:
        text += f"The audit counts {counted(outcome.refused)} as lost, which the brokers refused.\n"
    if outcome.skipped:
        text += "If an earlier command was killed, its last records may be duplicated.\n"
    return text


def _failures(outcome: SendOutcome) -> Text:
    failures = Text()
    for failure, count in outcome.failures.items():
        failures.append(f"{count:,} failed: {failure}\n", "bold red")
    if outcome.failures and outcome.arguments.config.transactional_id is None:
        count = outcome.possibly_persisted
        failures.append(f"{f'{count:,} of these may be' if count else 'None of these is'} in the topic.\n")
    if outcome.first_failure is not None:
        failures.append(f"First failure: {outcome.first_failure}\n")
    if outcome.unknown and outcome.arguments.config.transactional_id is None:
        failures.append(f"Not waited for: {counted(outcome.unknown)}, which may be in the topic.\n")
    return failures


def _progress_text(outcome: SendOutcome) -> str:
    """Return the acknowledged prefix, and the records that a repetition sends again."""
    prefix, checkpoint = outcome.prefix, outcome.arguments.checkpoint
    if checkpoint is not None and not outcome.prefix_matched:
        shown = escaped(str(checkpoint.path))
        return f"The command ended before the acknowledged part of {shown} was read, and did not change the file.\n"
    there = prefix.records - outcome.refused_before
    text = f"Acknowledged from the beginning to {prefix.place}: {counted(there)}\n"
    if prefix.place is None:
        text = "Nothing is acknowledged from the beginning of the input.\n"
    if behind := outcome.skipped + outcome.acknowledged - there:
        text += (
            f"Also acknowledged, after that part: {counted(behind)}; continuing from there repeats them.\n"
        )
    if checkpoint is not None and not outcome.is_saved:
        text += f"{escaped(str(checkpoint.path))} has a shorter part: the same command repeats the rest.\n"
    elif checkpoint is not None and prefix.place is not None:
        text += f"The same command continues from there: {escaped(str(checkpoint.path))} has the position.\n"
    return text
