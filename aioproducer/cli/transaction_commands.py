"""`aioproducer transactions` and `spark-recover`: commands and options; implementations are imported on use."""

from __future__ import annotations

import asyncio
import sys

import click

from aioproducer.cli.command_classes import Command, Group
from aioproducer.cli.logs import logging_options
from aioproducer.cli.output import echo, exit_unless
from aioproducer.cli.parameters import (
    ClusterOptions,
    WrongOption,
    config_providers,
    configuration,
    configured,
    json_option,
    producer_options,
)


@click.group(cls=Group, short_help="List, describe, end and fence transactions.")
@logging_options
def transactions() -> None:
    """List, describe, end and fence transactions of any producer."""


@transactions.command(
    "list",
    short_help="List transactional ids, of all brokers.",
    examples=["aioproducer transactions list --state Ongoing --longer-than-ms 60000 -b localhost:9092"],
)
@producer_options
@click.option("--pattern", metavar="REGEX", help="The whole id has to match it.")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Such as Ongoing; may be repeated.")
@click.option("--longer-than-ms", type=click.IntRange(min=0), help="Open for longer than this.")
@json_option
def list_ids(
    cluster: ClusterOptions,
    pattern: str | None,
    states: tuple[str, ...],
    longer_than_ms: int | None,
    as_json: bool,
) -> None:
    """List the transactional ids of a cluster, each with its producer id and state."""
    from aioproducer.cli.transaction_report import show_list

    config = configuration(cluster)
    try:
        asyncio.run(show_list(config, pattern, states, longer_than_ms, as_json=as_json))
    except ValueError as error:  # an unknown state
        raise WrongOption(str(error)) from error


@transactions.command(
    short_help="Show the state of transactional ids.",
    examples=["aioproducer transactions describe nightly -b localhost:9092"],
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@producer_options
@json_option
def describe(ids: tuple[str, ...], cluster: ClusterOptions, as_json: bool) -> None:
    """Show state, producer, time and partitions of these ids.

    The command fails for an unknown id, which was never used or has expired.
    """
    from aioproducer.cli.transaction_report import show_descriptions

    config = configuration(cluster)
    exit_unless(asyncio.run(show_descriptions(config, ids, as_json=as_json)))


@transactions.command(
    short_help="Commit or abort prepared transactions.",
    examples=["aioproducer transactions end --commit - -b localhost:9092 < prepared.txt"],
)
@click.argument("prepared", metavar="PREPARED...", nargs=-1, required=True)
@click.option("--commit/--abort", "commit", default=None, help="Outcome of the transactions.")
@producer_options
@json_option
def end(prepared: tuple[str, ...], commit: bool | None, cluster: ClusterOptions, as_json: bool) -> None:
    """Commit or abort transactions, each given as the text of its PreparedTransaction; - reads lines of standard input.

    The command may be repeated until an id is used again. The command fails if a transaction was not ended, and shows
    the certain outcomes.
    """
    from aioproducer._core.transactions.transaction_types import PreparedTransaction
    from aioproducer.cli.transaction_report import end_and_report

    if commit is None:
        raise click.UsageError("add --commit or --abort")
    texts = [
        line
        for text in prepared
        for line in (_lines() if text == "-" else [text])
        if line and not line.isspace()
    ]
    try:
        parsed = [PreparedTransaction.parse(text) for text in texts]
    except ValueError as error:
        raise WrongOption(str(error)) from error
    config = configuration(cluster)
    exit_unless(asyncio.run(end_and_report(config, parsed, commit=commit, as_json=as_json)))


@transactions.command(
    short_help="Fence the producers of transactional ids.",
    examples=["aioproducer transactions fence nightly -b localhost:9092"],
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@producer_options
@json_option
def fence(ids: tuple[str, ...], cluster: ClusterOptions, as_json: bool) -> None:
    """Fence the producers of these ids; open transactions are aborted, prepared or not.

    Consumers of committed records can then read past these transactions.
    """
    from aioproducer.cli.transaction_report import fence_and_report

    config = configuration(cluster)
    asyncio.run(fence_and_report(config, ids, as_json=as_json))


@click.command(
    "spark-recover",
    cls=Command,
    short_help="Show uncommitted decisions of a Spark query.",
    examples=["aioproducer spark-recover events-from-clicks -b localhost:9092"],
)
@click.argument("prefix")
@click.option("--confirm", is_flag=True, help="Confirm the loss, so that the query can continue after it.")
@producer_options
def spark_recover(prefix: str, confirm: bool, cluster: ClusterOptions) -> None:
    """Show uncommitted decisions of a Spark query, whose transactionalIdPrefix is PREFIX, and commit them if possible.

    The command fails if records are lost. With --confirm the query, which must be stopped, can be started again and
    continues after the lost records.
    """
    from aioproducer.config.mapping import with_references

    given = with_references(configured(cluster), config_providers())
    try:
        from aioproducer.spark.committing import recover
    except ImportError as missing:
        raise click.ClickException(str(missing)) from missing

    text, ok = recover(given, prefix, confirm=confirm)
    echo(text)
    exit_unless(ok)


def _lines() -> list[str]:
    if sys.stdin is None:
        raise WrongOption("standard input is closed; give the text itself")
    return sys.stdin.read().splitlines()
