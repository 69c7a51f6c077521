"""The display of `aioproducer perf`: a line for each window, then a table; or all of it as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer._core.acceleration import accelerated
from aioproducer.cli.output import ACCELERATION, echo, escaping
from aioproducer.cli.perf.latencies import Latencies
from aioproducer.cli.perf.perf_run import Outcome, Plan, Window, run
from aioproducer.cli.shell import audit_hint, counted, done, on_signals, told_once
from aioproducer.cli.tables import plain_table, show_table

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
MIB: Final = 1024 * 1024


async def run_and_report(plan: Plan, *, as_json: bool) -> bool:
    """Do what *plan* says, show what came of it, and return whether every record of it was acknowledged.

    A signal ends it early: what is under way is waited for. The second one gives that up.

    Raises: ProducerError if nothing could be sent; click.Abort if a signal came before that.
    """
    console = escaping(Console(highlight=False, stderr=as_json))
    running = asyncio.create_task(run(plan, lambda window: _show_window(console, plan, window)))
    left = 2  # the first ends the sending, the second the waiting

    def interrupt() -> None:
        nonlocal left
        if left:
            left -= 1
            running.cancel()

    try:
        with told_once("aioproducer.batching"), on_signals(interrupt):
            outcome = await running
    except asyncio.CancelledError:  # while it started
        raise click.Abort from None
    if as_json:
        echo(json.dumps(to_dict(outcome), indent=2))
    else:
        show_table(console, _table(outcome))
        console.print(_verdict(outcome), end="", soft_wrap=True)
    return outcome.complete


def to_dict(outcome: Outcome) -> dict[str, Any]:
    """Return everything there is to know, for programs."""
    plan = outcome.plan
    return {
        "topic": plan.topic,
        "run": plan.run,
        "value_bytes": plan.value_bytes,
        "records": plan.records,
        "sent_with": outcome.way,
        "accelerated": accelerated,
        "sent": outcome.sent,
        "acknowledged": outcome.acknowledged,
        "failures": dict(outcome.failures),
        **_figures(plan, outcome.seconds, outcome.latencies),
        "windows": [
            {"began_s": window.began_s, **_figures(plan, window.seconds, window.latencies)}
            for window in outcome.windows
        ],
    }


def _figures(plan: Plan, seconds: float, latencies: Latencies) -> dict[str, Any]:
    per_second = latencies.count / seconds if seconds else 0.0
    return {
        "seconds": seconds,
        "records_per_second": per_second,
        "mib_per_second": per_second * plan.value_bytes / MIB,
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


def _show_window(console: Console, plan: Plan, window: Window) -> None:
    figures = _figures(plan, window.seconds, window.latencies)
    latency_ms = figures["latency_ms"]
    console.print(
        f"{window.began_s + window.seconds:6.1f} s: {counted(window.latencies.count)} {done(plan.config)},"
        f" {figures['records_per_second']:,.0f} records/s, {figures['mib_per_second']:,.1f} MiB/s,"
        f" p50 {_ms(latency_ms['p50'])}, p99 {_ms(latency_ms['p99'])}",
        soft_wrap=True,
    )


def _table(outcome: Outcome) -> Table:
    plan = outcome.plan
    figures = _figures(plan, outcome.seconds, outcome.latencies)
    table = plain_table()
    table.add_column("")
    table.add_column(f"{plan.value_bytes:,} bytes each", justify="right")
    table.add_row(f"records {done(plan.config)}", f"{outcome.acknowledged:,}")
    table.add_row("sent with", outcome.way)
    table.add_row("producer", ACCELERATION)
    table.add_row("seconds", f"{outcome.seconds:,.2f}")
    table.add_row("records/s", Text(f"{figures['records_per_second']:,.0f}", style="bold green"))
    table.add_row("MiB/s", f"{figures['mib_per_second']:,.1f}")
    for name, latency_ms in figures["latency_ms"].items():
        table.add_row(f"latency {name}", _ms(latency_ms))
    return table


def _verdict(outcome: Outcome) -> Text:
    plan, verdict = outcome.plan, Text()
    for failure, count in outcome.failures.items():
        verdict.append(f"{count:,} failed: {failure}\n", style="bold red")
    if outcome.sent < plan.records:
        verdict.append(f"Interrupted: {outcome.sent:,} of {counted(plan.records)} were sent.\n", "bold")
    if outcome.acknowledged and plan.config.acks != 0:
        verdict.append(audit_hint(plan.config, plan.topic, plan.run, outcome.sent))
    return verdict
