"""What `aioproducer send` shows: a bar on a terminal, then what became of it; and its ear for signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from aioproducer.cli.send.plan import Outcome, Plan
from aioproducer.cli.send.run import Sending
from aioproducer.cli.send.source import size_of


async def send_and_report(plan: Plan) -> bool:
    """Do what *plan* says, show what came of it, and return whether every record was acknowledged.

    SIGINT and SIGTERM end it early: what was handed over is waited for, and told. The second one gives that up.

    Raises: ProducerError if nothing could be sent, or the checkpoint is of no use.
    """
    screen = Console(stderr=True, highlight=False)

    def interrupt() -> None:
        if sending.interrupt():
            screen.print(
                "Interrupted: waiting for what was handed over. Once more gives it up.", soft_wrap=True
            )

    with _on_signals(interrupt):
        with _bar(screen, plan) as on_progress:
            sending = Sending(plan, on_progress)
            try:
                outcome = await sending.run()
            except asyncio.CancelledError:  # while it started
                outcome = sending.outcome
                outcome.stopped = "interrupted"
        # whoever sends a third signal is told it, too
        Console(highlight=False).print(_verdict(outcome), end="", soft_wrap=True)
    return outcome.complete


@contextmanager
def _bar(screen: Console, plan: Plan) -> Iterator[Callable[[Outcome], None]]:
    """Show how far it is, on a terminal."""
    if not screen.is_terminal:
        yield lambda _: None
        return
    columns = (
        SpinnerColumn(),
        BarColumn(),
        TextColumn(
            "{task.fields[acked]:,} acked, {task.fields[failed]:,} failed, {task.fields[rate]:,.0f} records/s"
        ),
    )
    with Progress(*columns, console=screen, transient=True) as progress:
        bar = progress.add_task("", total=size_of(plan.paths), acked=0, failed=0, rate=0.0)

        def show(outcome: Outcome) -> None:
            elapsed_s = progress.tasks[0].elapsed or 0.0
            progress.update(
                bar,
                completed=outcome.prefix.size,
                acked=outcome.acknowledged,
                failed=outcome.failures.total(),
                rate=outcome.acknowledged / elapsed_s if elapsed_s else 0.0,
            )

        yield show


@contextmanager
def _on_signals(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call *interrupt* in the event loop for each signal that asks the process to end."""
    loop = asyncio.get_running_loop()

    def ring(*_: object) -> None:
        loop.call_soon_threadsafe(interrupt)

    before = {number: signal.signal(number, ring) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _verdict(outcome: Outcome) -> Text:
    plan, verdict = outcome.plan, Text()
    done = "written, acks=0" if plan.config.acks == 0 else "acknowledged"
    per_second = outcome.acknowledged / outcome.seconds if outcome.seconds else 0.0
    if outcome.skipped:
        verdict.append(f"{outcome.skipped:,} records were acknowledged before and left out.\n")
    verdict.append(f"{outcome.acknowledged:,} records {done}", "bold")
    verdict.append(f" in {outcome.seconds:,.2f} s, {per_second:,.0f} records/s\n")
    for failure, count in outcome.failures.items():
        verdict.append(f"{count:,} failed: {failure}\n", "bold red")
    if outcome.doubtful:
        verdict.append(f"{outcome.doubtful:,} of those may be in the topic nevertheless.\n")
    if outcome.first_failure is not None:
        verdict.append(f"The first that failed: {outcome.first_failure}\n")
    if outcome.unknown:
        verdict.append(
            f"{outcome.unknown:,} were handed over and not waited for: they may be in the topic.\n"
        )
    if outcome.stopped is not None:
        verdict.append(f"Stopped: {outcome.stopped}\n", "bold red")
    if not outcome.complete:
        verdict.append(_how_far(outcome))
    elif plan.run is not None and outcome.prefix.records:
        servers = ",".join(plan.config.bootstrap_servers)
        verdict.append(
            f"Is all of it there? aioproducer audit --bootstrap-servers {servers} --topic {plan.topic}"
            f" --run {plan.run} --expect {outcome.prefix.records}\n"
        )
    return verdict


def _how_far(outcome: Outcome) -> str:
    """Say what is there without a gap, and what is to be repeated."""
    prefix, checkpoint = outcome.prefix, outcome.plan.checkpoint
    if checkpoint is not None and not outcome.recognised:
        return f"It did not get to the end of what {checkpoint.path} remembers, and left that as it was.\n"
    told = f"Acknowledged from the beginning to {prefix.place}: {prefix.records:,} records\n"
    if prefix.place is None:
        told = "Nothing of the input is acknowledged from its beginning on.\n"
    if behind := outcome.skipped + outcome.acknowledged - prefix.records:
        told += f"{behind:,} more behind it are acknowledged, too; going on from there repeats them.\n"
    if checkpoint is not None and prefix.place is not None:
        told += f"The same command goes on from there: {checkpoint.path} remembers it.\n"
    return told
