"""The commands and their options; implementations are imported when a command runs."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from pathlib import Path

import click

from aioproducer.cli.command_classes import Program
from aioproducer.cli.logs import logging_options
from aioproducer.cli.output import ACCELERATION, echo, exit_unless
from aioproducer.cli.parameters import (
    ClusterOptions,
    check_topic_name,
    compression_option,
    config_prefixes,
    config_providers,
    configuration,
    file_options,
    json_option,
    new_topics,
    producer_options,
    rate_option,
    refuse_transactional,
    run_option,
    topic_argument,
)
from aioproducer.cli.security_flags import allowed_options, given
from aioproducer.cli.send.command import send
from aioproducer.cli.transaction_commands import spark_recover, transactions
from aioproducer.version import __version__

PORTS = range(65_536)
DEMO_COMPRESSION = "zstd"


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    examples=[
        "aioproducer demo",
        "aioproducer broker --topic orders:3",
        "echo hello | aioproducer send orders -b localhost:9092",
    ],
)
@click.version_option(__version__, message=f"%(prog)s %(version)s ({ACCELERATION})")
@logging_options
def program() -> None:
    """An asyncio-native producer for Apache Kafka."""


@program.command(
    short_help="Send a demo click stream and check each record.",
    examples=["aioproducer demo", "aioproducer demo --records 10000 -b localhost:9092"],
)
@partial(producer_options, servers="A Kafka cluster, not one in this process.")
@click.option("--records", type=click.IntRange(100, 5_000_000), default=200_000, help="Number of records.")
@click.option("--partitions", type=click.IntRange(1, 1_000), default=6, help="Partitions of the new topic.")
@partial(compression_option, default=DEMO_COMPRESSION)
def demo(
    cluster: ClusterOptions,
    records: int,
    partitions: int,
    compression: str | None,
) -> None:
    """Send a shop's click stream, measure it, read it back, and check every record.

    On a Kafka cluster the demo creates a new topic and keeps the topic.
    """
    from aioproducer.cli.demo_command import DemoArguments, run_and_report

    config = None
    if any(cluster) or given():
        cluster = cluster.with_setting("compression.type", compression, by="--compression")
        defaults = {"compression.type": DEMO_COMPRESSION}
        config = configuration(cluster, defaults)
        refuse_transactional(config)
    codec = compression or DEMO_COMPRESSION
    arguments = DemoArguments(config, records=records, partitions=partitions, compression=codec)
    exit_unless(asyncio.run(run_and_report(arguments)))


@program.command(
    short_help="Run a Kafka cluster in memory, for development.",
    examples=["aioproducer broker", "aioproducer broker --brokers 3 --topic orders:6 --topic clicks"],
)
@click.option(
    "--port",
    type=click.IntRange(PORTS[0], PORTS[-1]),
    default=9092,
    help="Port of the first broker; 0: any free ports.",
)
@click.option(
    "--brokers", type=click.IntRange(1, 100), default=1, help="Number of brokers, on consecutive ports."
)
@click.option(
    "--topic",
    "topics",
    metavar="NAME[:PARTITIONS]",
    multiple=True,
    callback=new_topics,
    help="A topic to create; may be repeated.",
)
@logging_options
def broker(port: int, brokers: int, topics: dict[str, int]) -> None:
    """Run a Kafka cluster in this process, in memory, for any client, until Ctrl-C.

    The cluster has transactions, and no consumer groups. Topics are created at their first use.
    """
    if port + brokers - 1 not in PORTS:
        raise click.UsageError(f"{brokers} ports from {port} up are more than there are; the last is 65535")
    import_module("aioproducer.testing.cluster")  # before the event loop runs, because the import is slow
    asyncio.run(serve(port=port, brokers=brokers, topics=topics))


async def serve(*, port: int, brokers: int, topics: Mapping[str, int]) -> None:
    """Run a cluster until a signal to terminate; *port* 0 selects a free port for every broker.

    Raises: ClickException: a port is in use, or a topic cannot be created.
    """
    from aioproducer.cli.reports import on_signals
    from aioproducer.testing import Cluster, Refused

    async with AsyncExitStack() as stack:
        try:
            cluster = await stack.enter_async_context(Cluster(brokers, topics, port=port or None))
        except OSError as error:
            ports = f"port {port}" if brokers == 1 else f"ports {port} to {port + brokers - 1}"
            reason = os.strerror(error.errno or 0)
            raise click.ClickException(
                f"cannot listen on {ports}: {reason}; choose another --port"
            ) from error
        except Refused as refused:
            raise click.ClickException(refused.message) from refused
        stopped = asyncio.Event()
        with on_signals(stopped.set):
            echo("A Kafka cluster in memory. Ctrl-C ends it and deletes all records.")
            echo(f"bootstrap servers: {cluster.bootstrap_servers}")
            await stopped.wait()


@program.command(
    short_help="List the options, or check a .properties file.",
    examples=["aioproducer config", "aioproducer config producer.properties --json"],
)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@file_options
@allowed_options
@logging_options
def config(file: Path | None, as_json: bool) -> None:
    """List every option, or check a .properties FILE and show its changes and its names without effect.

    The command fails for a wrong file, and lists all wrong names and values.
    """
    from aioproducer.cli.config import show_file, show_options

    if file is None:
        show_options(as_json=as_json)
    else:
        show_file(file, prefix=config_prefixes(), config_providers=config_providers(), as_json=as_json)


@program.command(
    short_help="Show the brokers of a cluster, and its topics.",
    examples=["aioproducer topics -b localhost:9092", "aioproducer topics orders --json -b localhost:9092"],
)
@click.argument("names", metavar="[TOPIC]...", nargs=-1)
@producer_options
@json_option
def topics(names: tuple[str, ...], cluster: ClusterOptions, as_json: bool) -> None:
    """Show the brokers of a cluster and the partitions of topics, by default of all topics except internal ones.

    The command fails if a topic does not exist or a partition has no leader.
    """
    from aioproducer.cli.topics import show_topics

    for name in names:
        check_topic_name(click.get_current_context(), topics.params[0], name)
    config = configuration(cluster)
    exit_unless(asyncio.run(show_topics(config, names, as_json=as_json)))


@program.command(
    short_help="Show the last records of a topic.",
    examples=[
        "aioproducer tail orders -b localhost:9092",
        "aioproducer tail orders -n 3 --json -b localhost:9092",
    ],
)
@click.argument("topic", callback=check_topic_name)
@producer_options
@click.option("-n", "--last", type=click.IntRange(1), default=10, help="Number of records of each partition.")
@json_option
def tail(topic: str, cluster: ClusterOptions, last: int, as_json: bool) -> None:
    """Show the last records of each partition of TOPIC: partition, offset, time (UTC), key, value and headers.

    The command ends after the last record. With --json each line is an object.
    """
    from aioproducer.cli.stored_records import tail_and_show

    config = configuration(cluster)
    asyncio.run(tail_and_show(config, topic, last=last, as_json=as_json))


@program.command(
    short_help="Print a completion script for a shell.",
    examples=['eval "$(aioproducer completion bash)"'],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that lets a shell complete commands and options: eval "$(aioproducer completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    click.echo(kind(program, {}, "aioproducer", "_AIOPRODUCER_COMPLETE").source())


@program.command(
    short_help="Find what was lost, duplicated or out of order.",
    examples=["aioproducer audit orders --run nightly-7 --expect 3 -b localhost:9092"],
)
@topic_argument
@producer_options
@partial(run_option, text="The run's id, in the header aioproducer-run.", required=True)
@click.option("--expect", type=click.IntRange(min=0), help="Number of records that the run sent.")
@click.option("--order", is_flag=True, help="Fail if records of a lane are out of order in a partition.")
@json_option
def audit(
    cluster: ClusterOptions, topic: str, run: str, expect: int | None, order: bool, as_json: bool
) -> None:
    """Find lost and duplicated records of a run in TOPIC, by the headers aioproducer-run and aioproducer-seq.

    The command fails if any record was lost or duplicated. Several producers or tasks of a run have no common order:
    with --order the records of one lane (header aioproducer-lane) must be in order within each partition.
    """
    from aioproducer.cli.audit_command import audit_and_report

    config = configuration(cluster)
    exit_unless(
        asyncio.run(audit_and_report(config, topic, run, expect=expect, as_json=as_json, order=order))
    )


@program.command(
    short_help="Send many records, and report throughput and latencies.",
    examples=[
        "aioproducer perf orders -b localhost:9092",
        "aioproducer perf orders --records 2000 --rate 1000 -b localhost:9092",
        "aioproducer perf orders --compression zstd -o linger.ms=20 -b localhost:9092",
    ],
)
@topic_argument
@producer_options
@click.option("--records", type=click.IntRange(1, 10**9), default=1_000_000, help="Number of records.")
@click.option("--value-bytes", type=click.IntRange(0, 100_000_000), default=100, help="Size of each value.")
@rate_option
@compression_option
@partial(
    run_option,
    text="In the header aioproducer-run of each record; one that the topic has not seen.  [default: a new one]",
)
@json_option
def perf(
    cluster: ClusterOptions,
    topic: str,
    records: int,
    value_bytes: int,
    rate: float | None,
    compression: str | None,
    run: str | None,
    as_json: bool,
) -> None:
    """Send many records to TOPIC, and report throughput and latencies.

    Each record has a run id and its number in its headers, so that `aioproducer audit` can check the topic. Ctrl-C
    ends the run early and waits for the records that were sent. The command fails if not all records were
    acknowledged.
    """
    from aioproducer.cli.perf_command import PerfArguments, run_and_report

    cluster = cluster.with_setting("compression.type", compression, by="--compression")
    config = configuration(cluster)
    refuse_transactional(config)
    arguments = PerfArguments(
        config=config,
        topic=topic,
        run=run or f"perf-{secrets.token_hex(4)}",
        records=records,
        value_bytes=value_bytes,
        rate=rate,
    )
    exit_unless(asyncio.run(run_and_report(arguments, as_json=as_json)))


program.add_command(send)
program.add_command(transactions)
program.add_command(spark_recover)
