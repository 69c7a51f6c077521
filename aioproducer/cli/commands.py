"""The commands and their options; what they do is imported when they are called."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import click

from aioproducer.errors import ConfigError, ProducerError
from aioproducer.version import __version__

PORTS = range(65_536)


class WrongOption(click.ClickException):
    """What we find wrong with a command line; click's own errors end with the same code."""

    exit_code = 2


class Program(click.Group):
    """Shows our errors in one line: they are made to be read without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ProducerError as error:
            shown = WrongOption if isinstance(error, ConfigError) else click.ClickException
            raise shown(f"{type(error).__name__}: {error}") from error


def _new_topics(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Take `orders:6` apart."""
    topics = {}
    for value in values:
        name, colon, partitions = value.partition(":")
        if colon and not (partitions.isascii() and partitions.isdigit()):
            raise click.BadParameter(f"{value!r} should be like orders:6", ctx, param)
        topics[name] = int(partitions or 1)
    return topics


def _settings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Take `linger.ms=0` apart."""
    settings = {}
    for each in values:
        name, equals, value = each.partition("=")
        if not equals:
            raise click.BadParameter(f"{each!r} should be like linger.ms=0", ctx, param)
        if name.strip().replace("_", ".") == "bootstrap.servers":
            raise click.BadParameter("--bootstrap-servers says so already", ctx, param)
        settings[name.strip()] = value.strip()
    return settings


def _topic(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse what no topic can be called, which brokers would only say they do not know."""
    from aioproducer.intake.checks import check_topic

    try:
        return check_topic(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _run_id(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("a run's id is not empty", ctx, param)
    return value


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def program() -> None:
    """An asyncio-native producer for Apache Kafka."""


@program.command(short_help="See the producer at work, and each record checked.")
@click.option("--bootstrap-servers", metavar="HOST:PORT", help="A Kafka cluster, not one in this process.")
@click.option("--records", type=click.IntRange(100, 5_000_000), default=200_000, show_default=True)
@click.option("--partitions", type=click.IntRange(1, 1_000), default=6, show_default=True)
@click.option("--compression", metavar="TYPE", default="zstd", show_default=True)
def demo(bootstrap_servers: str | None, records: int, partitions: int, compression: str) -> None:
    """Send a shop's click stream, measure that, read it back, and check every record.

    On a Kafka cluster it creates a topic of its own, which stays there.
    """
    from aioproducer.cli.demo.report import run_and_report
    from aioproducer.cli.demo.run import Plan

    plan = Plan(bootstrap_servers, records=records, partitions=partitions, compression=compression)
    if not asyncio.run(run_and_report(plan)):
        raise click.exceptions.Exit(1)


@program.command(short_help="Run a Kafka cluster in memory, for development.")
@click.option(
    "--port",
    type=click.IntRange(PORTS[0], PORTS[-1]),
    default=9092,
    show_default=True,
    help="Of the first broker; 0: any free ones.",
)
@click.option(
    "--brokers", type=click.IntRange(1, 100), default=1, show_default=True, help="On consecutive ports."
)
@click.option(
    "--topic",
    "topics",
    metavar="NAME[:PARTITIONS]",
    multiple=True,
    callback=_new_topics,
    help="Create it; may be repeated.",
)
def broker(port: int, brokers: int, topics: dict[str, int]) -> None:
    """Run a Kafka cluster in this process, in memory, for any client, until Ctrl-C.

    It has no consumer groups and no transactions. Topics are created when they are first used.
    """
    if port + brokers - 1 not in PORTS:
        raise click.UsageError(f"{brokers} ports from {port} on are more than there are")
    from aioproducer.cli.broker import serve

    try:
        asyncio.run(serve(port=port, brokers=brokers, topics=topics))
    except KeyboardInterrupt:  # how it is meant to end
        click.echo()


@program.command(short_help="List the options, or check a .properties file.")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def config(file: Path | None) -> None:
    """List every option, or check a .properties FILE and show what it changes."""
    from aioproducer.cli.config import show_file, show_options

    if file is None:
        show_options()
    else:
        show_file(file)


@program.command(short_help="Find what was lost, duplicated or out of order.")
@click.option("--bootstrap-servers", metavar="HOST:PORT", required=True, help="The Kafka cluster.")
@click.option(
    "--topic",
    metavar="NAME",
    required=True,
    callback=_topic,
    help="Read it from the beginning to its present end.",
)
@click.option(
    "--run", metavar="ID", required=True, callback=_run_id, help="Of which run: the header aioproducer-run."
)
@click.option("--expect", type=click.IntRange(min=0), help="How many records the run sent.")
@click.option("--json", "as_json", is_flag=True, help="For programs to read.")
def audit(bootstrap_servers: str, topic: str, run: str, expect: int | None, as_json: bool) -> None:  # noqa: FBT001 - click passes names
    """Read a topic and tell what became of a run's records, by their headers aioproducer-run and aioproducer-seq.

    It fails if any was lost, duplicated or out of order within its partition.
    """
    from aioproducer.cli.audit import audit_and_report

    if not asyncio.run(audit_and_report(bootstrap_servers, topic, run, expect=expect, as_json=as_json)):
        raise click.exceptions.Exit(1)


@program.command(short_help="Send many records, and tell how fast they were acknowledged.")
@click.option("--bootstrap-servers", metavar="HOST:PORT", required=True, help="The Kafka cluster.")
@click.option("--topic", metavar="NAME", required=True, callback=_topic, help="Where to.")
@click.option("--records", type=click.IntRange(1, 10**9), default=1_000_000, show_default=True)
@click.option("--value-bytes", type=click.IntRange(0, 100_000_000), default=100, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    help="Records per second.  [default: as fast as memory allows]",
)
@click.option(
    "-o",
    "--option",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_settings,
    help="Of the producer, such as compression.type=zstd; may be repeated. `aioproducer config` lists them.",
)
@click.option(
    "--run",
    metavar="ID",
    callback=_run_id,
    help="In the header aioproducer-run of each record; one that the topic has not seen.  [default: a new one]",
)
@click.option("--json", "as_json", is_flag=True, help="For programs to read.")
def perf(
    bootstrap_servers: str,
    topic: str,
    records: int,
    value_bytes: int,
    rate: float | None,
    settings: dict[str, str],
    run: str | None,
    as_json: bool,  # noqa: FBT001 - click passes names
) -> None:
    """Send many records to a topic, and tell how fast, and how soon each was acknowledged.

    Each record has a run id and its number in its headers, so that `aioproducer audit` can tell afterwards if all of
    it is there. Ctrl-C ends it early: what was handed over is waited for, and told. It fails if not all records
    were acknowledged.
    """
    from aioproducer.cli.perf.report import run_and_report
    from aioproducer.cli.perf.run import Plan
    from aioproducer.config import ProducerConfig

    plan = Plan(
        config=ProducerConfig.from_mapping({**settings, "bootstrap.servers": bootstrap_servers}),
        topic=topic,
        run=run or f"perf-{secrets.token_hex(4)}",
        records=records,
        value_bytes=value_bytes,
        rate=rate,
    )
    if not asyncio.run(run_and_report(plan, as_json=as_json)):
        raise click.exceptions.Exit(1)
