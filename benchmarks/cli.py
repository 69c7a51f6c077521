"""`python -m benchmarks`: its commands and their options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from benchmarks.clients import CLIENTS
from benchmarks.figures import Results
from benchmarks.micro import baseline
from benchmarks.micro.clock import SAMPLES, measure
from benchmarks.parent.session import Asked, Session, best_of, broker, empty_results, steps_of
from benchmarks.parent.topics import Topics
from benchmarks.scale.shapes import QUICK_SIZES, SIZES
from benchmarks.settings import Tuning, Work
from benchmarks.show import Bar, new_console, show_check, show_results
from benchmarks.spark.table import TABLE as SPARK_ROWS
from benchmarks.sweep.winners import BEST, Winners
from benchmarks.table import CODECS, ROWS

REPORT: Final = Path(__file__).with_name("report")
README: Final = REPORT.parents[1] / "README.md"
PERFORMANCE: Final = REPORT.parents[1] / "docs/performance.md"
THROUGHPUT: Final = REPORT.parents[1] / "docs/how-to/tune-throughput.md"
PAGES: Final = REPORT.parents[1] / ".cache/report"
ROUNDS: Final = 3
SECONDS: Final = 0.7
QUICK_ROUNDS: Final = 1
QUICK_SECONDS: Final = 0.5
SWEEP_SECONDS: Final = 0.5
SPARK_ROUNDS: Final = 5

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def program() -> None:
    """Measure aioproducer and other Kafka producers for Python on this machine."""


def _selected(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    """Split `fire,scale,compression-*` into row names. Each word is a row name, a workload or a pattern."""
    if given is None:
        return None
    chosen: list[str] = []
    for word in given.split(","):
        found = [name for name, row in ROWS.items() if fnmatch(name, word)]
        found = found or [name for name, row in ROWS.items() if word == row.work]
        if not found:
            raise click.BadParameter(f"unknown row {word!r}; known rows: {', '.join(ROWS)}")
        chosen += found
    return tuple(dict.fromkeys(chosen))


def _spark_work(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    """Split `batch,exactly-once*` into names of Spark rows."""
    words = [] if given is None else given.split(",")
    for word in words:
        if not any(fnmatch(name, word) for name in SPARK_ROWS):
            raise click.BadParameter(f"unknown row {word!r}; known rows: {', '.join(SPARK_ROWS)}")
    return tuple(name for name in SPARK_ROWS if any(fnmatch(name, word) for word in words)) or None


def _clients(ctx: click.Context, param: click.Parameter, given: str) -> tuple[str, ...]:
    """Split `aioproducer,aiokafka` into client names."""
    chosen = tuple(given.split(","))
    for client in chosen:
        if client not in CLIENTS:
            raise click.BadParameter(f"unknown client {client!r}; known clients: {', '.join(CLIENTS)}")
    return chosen


def _tables(ctx: click.Context, param: click.Parameter, given: str) -> tuple[Tuning, ...]:
    """Split `defaults,best` into tables."""
    chosen = given.split(",")
    if others := set(chosen) - set(Tuning):
        raise click.BadParameter(
            f"unknown table {', '.join(sorted(others))}; known tables: {', '.join(Tuning)}"
        )
    return tuple(tuning for tuning in Tuning if tuning in chosen)


def _added(options: Iterable[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """Return a decorator that adds *options*, in this order."""

    def add(command: Command) -> Command:
        for option in reversed([*options]):
            command = option(command)
        return command

    return add


def choosing(rounds: int) -> Callable[[Command], Command]:
    """Return a decorator that adds the options for cluster, clients, rows and rounds."""
    return _added(
        [
            click.option(
                "--bootstrap-servers",
                metavar="HOST:PORT",
                help="Existing cluster. By default an Apache Kafka is started.",
            ),
            click.option(
                "--clients",
                metavar="NAME,…",
                callback=_clients,
                default=",".join(CLIENTS),
                help=f"Clients to measure. Default: {', '.join(CLIENTS)}.",
            ),
            click.option(
                "--work",
                "rows",
                metavar="NAME,…",
                callback=_selected,
                help="Rows to measure; * as in file names. Default: all.",
            ),
            click.option("--rounds", type=click.IntRange(1), default=rounds, show_default=True),
        ]
    )


def run_options(rounds: int) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a session."""
    return _added(
        [
            choosing(rounds),
            click.option(
                "--tables",
                metavar="NAME,…",
                callback=_tables,
                default=",".join(Tuning),
                help=f"Tables to measure. Default: {', '.join(Tuning)}.",
            ),
            click.option("--value-bytes", type=click.IntRange(10, 1_000_000), help="Value size of all rows."),
            click.option(
                "--compression",
                type=click.Choice(["none", *CODECS]),
                help="Codec of all rows, with JSON values.",
            ),
            click.option("--uvloop", is_flag=True, help="Run all rows on uvloop."),
            click.option(
                "--json",
                "json_path",
                type=click.Path(dir_okay=False, path_type=Path),
                help="Keep the results.",
            ),
        ]
    )


@program.command(short_help="Measure all three tables (10 to 15 minutes).")
@run_options(ROUNDS)
@click.option(
    "--seconds", type=click.FloatRange(0.05), default=SECONDS, show_default=True, help="Duration of each run."
)
def run(json_path: Path | None, rows: tuple[str, ...] | None, **asked: Any) -> None:
    """Measure every row: each client at its own defaults, at its best (see `sweep`), and with equal settings."""
    _measure(Asked(rows=rows or tuple(ROWS), scale_sizes=SIZES, **asked), json_path)


@program.command(short_help="Measure the main rows (about two minutes).")
@run_options(QUICK_ROUNDS)
def quick(json_path: Path | None, rows: tuple[str, ...] | None, **asked: Any) -> None:
    """Measure some rows of each table in one round of shorter runs."""
    rows = rows or tuple(name for name, row in ROWS.items() if row.quick)
    _measure(
        Asked(rows=rows, seconds=QUICK_SECONDS, scale_sizes=QUICK_SIZES, **asked),
        json_path,
    )


@program.command(short_help="Measure CPU per record over partitions and topics (a few minutes).")
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Keep the results."
)
@click.option("--quick", "is_quick", is_flag=True, help="Fewer sizes.")
def scale(json_path: Path | None, *, is_quick: bool) -> None:
    """Measure only the curves of scale, which need no Kafka."""
    rows = tuple(name for name, row in ROWS.items() if row.work is Work.SCALE)
    asked = Asked(
        rows=rows,
        clients=CLIENTS,
        rounds=1,
        seconds=SECONDS,
        bootstrap_servers="none",
        scale_sizes=QUICK_SIZES if is_quick else SIZES,
    )
    _measure(asked, json_path)


def _measure(asked: Asked, json_path: Path | None) -> None:
    console = new_console()
    try:
        tables = steps_of(asked, Winners.load(BEST))
    except LookupError as error:
        raise click.ClickException(str(error)) from error
    steps = [step for planned in tables.values() for step in planned]
    if not steps:
        raise click.UsageError("the selected clients run none of the selected rows")
    results = empty_results(asked)
    results.best = best_of(tables.get(Tuning.BEST, ()))
    with Bar(console, steps) as bar, broker(asked.bootstrap_servers) as (servers, tls):
        session = Session(asked, Topics(servers), tls)
        session.warm_up(steps)
        for tuning, planned in tables.items():
            results.tables[tuning] = session.run_steps(planned, bar.follow)
    show_results(results, console)
    if json_path is not None:
        results.save(json_path)
    if results.failures:
        raise click.exceptions.Exit(1)


@program.command(short_help="Find the best options of each client (about half an hour).")
@choosing(ROUNDS)
@click.option(
    "--seconds",
    type=click.FloatRange(0.05),
    default=SWEEP_SECONDS,
    show_default=True,
    help="Duration of each run.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=BEST,
    help="File of winners. Swept rows and clients are replaced.",
)
def sweep(rows: tuple[str, ...] | None, out: Path, **asked: Any) -> None:
    """Try the sets of options of benchmarks/sweep/grid.toml for each client; `run` and `quick` use the winners."""
    from benchmarks.sweep import trial

    console = new_console()
    swept = tuple(name for name in rows or ROWS if ROWS[name].swept)
    asked_for = Asked(rows=swept, scale_sizes=SIZES, tables=(Tuning.BEST,), **asked)
    steps = trial.steps_of(asked_for)
    if not steps:
        raise click.UsageError("the selected clients have no options to sweep in the selected rows")
    with Bar(console, steps) as bar, broker(asked_for.bootstrap_servers) as (servers, tls):
        session = Session(asked_for, Topics(servers), tls)
        session.warm_up(steps)
        played = session.run_steps(steps, bar.follow)
    winners = Winners.load(out)
    trial.note(winners, empty_results(asked_for), steps, played)
    winners.save(out)
    for row, client in dict.fromkeys((step.row.name, step.client) for step in steps):
        console.print(
            f"{row}, {client}: {winners.rows.get(row, {}).get(client, ['every set of options failed'])[0]}"
        )


@program.command(short_help="Measure the Spark sinks of aioproducer and of Spark (about 20 minutes).")
@click.option(
    "--work",
    metavar="NAME,…",
    callback=_spark_work,
    help=f"Rows to measure; * as in file names. Default: {', '.join(SPARK_ROWS)}.",
)
@click.option(
    "--rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Rows of the DataFrame."
)
@click.option("--rounds", type=click.IntRange(1), default=SPARK_ROUNDS, show_default=True)
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Keep the results."
)
def spark(json_path: Path | None, **asked_for: Any) -> None:
    """Measure DataFrames and micro-batches written by aioproducer's sink and by Spark's sink, and exactly-once delivery."""
    from benchmarks.spark import session, show

    console = new_console()
    asked = session.Asked(**asked_for)
    results = session.empty_results(asked)
    with Bar(console, asked.steps()) as bar, broker(None) as (servers, _):
        results.tables |= session.run_steps(asked, servers, bar.follow)
    show.show_results(results, console)
    if json_path is not None:
        results.save(json_path)
    if results.failures:
        raise click.exceptions.Exit(1)


@program.command(short_help="Compare the cost of code units with the baseline (30 seconds).")
@click.option("--update", is_flag=True, help="Write the baseline. Requires an idle machine.")
@click.option("--samples", type=click.IntRange(1), default=SAMPLES, show_default=True)
def check(samples: int, *, update: bool) -> None:
    """Time code units as ratios to a loop in the same process, and compare the ratios with the committed baseline."""
    from benchmarks.micro.units import units

    console = new_console()
    loop = asyncio.new_event_loop()
    try:
        timed = measure(units(loop), samples=samples)
    finally:
        loop.close()
    before = baseline.Baseline.load()
    compared = baseline.compare(timed, before)
    show_check(compared, console)
    if update:
        baseline.Baseline.of(timed).save()
        console.print("Wrote the baseline.")
        return
    if before.python != baseline.python_version():
        console.print(
            f"The baseline was written by Python {before.python or '(none)'}; other versions have other ratios."
        )
    if slower := [each.name for each in compared if each.slower]:
        console.print(f"More than {baseline.TOLERANCE - 1:.0%} slower: {', '.join(slower)}", style="bold red")
        raise click.exceptions.Exit(1)


@program.command(short_help="Make pages with plots from results.")
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=PAGES, help="Folder of the page."
)
@click.option(
    "--commit", is_flag=True, help="Also update benchmarks/report, and the figures in README.md and docs."
)
def report(results: Path, out: Path, *, commit: bool) -> None:
    """Make an HTML page with plots from stored RESULTS, without a measurement."""
    from benchmarks.reporting.headline import write_calls, write_into, write_sentence
    from benchmarks.reporting.pages import write, write_report

    try:
        loaded = Results.load(results)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if others := {name for rows in loaded.tables.values() for name in rows} - set(ROWS):
        raise click.ClickException(f"{results.name}: unknown rows {', '.join(sorted(others))}")
    click.echo(write(loaded, out))
    if commit:
        for path in write_report(loaded, REPORT):
            click.echo(path)
        try:
            write_sentence(README, loaded)
            write_into(PERFORMANCE, loaded)
            write_calls(THROUGHPUT, loaded)
        except ValueError as error:
            raise click.ClickException(str(error)) from error
