"""The display of the demo: bars while it runs, then a table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from aioproducer.cli.demo.demo_run import BROKERS, Outcome, Plan, run
from aioproducer.cli.demo.measure import TASKS, Measured
from aioproducer.cli.output import ACCELERATION, escaping
from aioproducer.cli.tables import on_terminal, plain_table, show_table

REFRESH_S: Final = 0.1
NOTHING: Final = "-"


async def run_and_report(plan: Plan, console: Console | None = None) -> bool:
    """Run the demo, show it, and return whether every record came back as it should."""
    console = console or escaping(Console(highlight=False))

    @asynccontextmanager
    async def follow(what: str, total: int, done: Callable[[], int]) -> AsyncIterator[None]:
        columns = TextColumn(f"{what:<13}"), BarColumn(), MofNCompleteColumn()
        shown = on_terminal(console)
        with Progress(
            *columns, console=console, transient=True, auto_refresh=False, disable=not shown
        ) as bar:
            task = bar.add_task(what, total=total)

            async def keep_moving() -> None:
                while True:
                    bar.update(task, completed=done(), refresh=True)
                    await asyncio.sleep(REFRESH_S)

            moving = asyncio.create_task(keep_moving())
            try:
                yield
            finally:
                moving.cancel()
                await asyncio.wait([moving])

    outcome = await run(plan, follow)
    console.print(_headline(outcome))
    show_table(console, _table(outcome))
    console.print(_notes(outcome), _verdict(outcome), sep="\n")
    return not outcome.flaws


def _headline(outcome: Outcome) -> Text:
    plan, config = outcome.plan, outcome.config
    where = (
        f"{BROKERS} brokers in this process" if plan.config is None else ",".join(config.bootstrap_servers)
    )
    return Text.assemble(
        (f"{plan.records:,} events of a shop's click stream to {where}\n", "bold"),
        f"topic {outcome.topic}, {plan.partitions} partition{'s' * (plan.partitions > 1)}, keyed by customer, ",
        f"acks={config.acks}, linger_ms={config.linger_ms:g}, compression_type={config.compression_type}, {ACCELERATION}\n",
    )


def _table(outcome: Outcome) -> Table:
    parts = outcome.one_by_one, outcome.in_bulk
    table = plain_table()
    table.add_column("")
    table.add_column(f"await send()\n{TASKS} tasks at a time", justify="right")
    table.add_column("await send_many()\none call", justify="right")
    rows: dict[str, Callable[[Measured], str]] = {
        "records": lambda part: f"{part.records:,}",
        "seconds": lambda part: f"{part.seconds:.2f}",
        "records/s": lambda part: f"{part.records / part.seconds:,.0f}",
        "latency p50": lambda part: _latency(part, 0.50),
        "latency p99": lambda part: _latency(part, 0.99),
        "batches": lambda part: f"{part.batches:,}",
        "records per batch": lambda part: f"{part.records / part.batches:,.1f}",
        "compression ratio": lambda part: f"{part.compression_ratio:.1f}",
    }
    for name, cell in rows.items():
        style = "bold green" if name == "records/s" else ""
        table.add_row(Text(name), *(Text(cell(part), style=style) for part in parts))
    return table


def _latency(part: Measured, share: float) -> str:
    return f"{part.latency_s(share) * 1000:.1f} ms" if part.latencies_s else NOTHING


def _notes(outcome: Outcome) -> Text:
    whose = (
        "The brokers share this process and its event loop: the numbers contain their work, too."
        if outcome.plan.config is None
        else f"Topic {outcome.topic} stays on the cluster."
    )
    return Text(
        "\nLatency is from the call to its return with the acknowledgement, lingering included. Not in the table: "
        f"the {outcome.warm_up.records:,} records that were sent before, to open the connections. {whose}\n"
    )


def _verdict(outcome: Outcome) -> Text:
    read = f"Read back {outcome.records_read:,} records in {outcome.seconds_reading:.2f} s: "
    if outcome.flaws:
        flaws = ", ".join(f"{count:,} {flaw}" for flaw, count in outcome.flaws.items())
        return Text.assemble(read, (f"FAILED, {flaws}", "bold red"))
    found = "each is there once, unaltered, in order of its key, at the offset that was acknowledged"
    return Text.assemble(read, (found, "bold green"))
