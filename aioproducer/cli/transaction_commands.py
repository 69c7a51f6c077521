"""`aioproducer transactions`: its commands and their options; what they do is imported when they are called."""

from __future__ import annotations

import asyncio
import sys

import click

from aioproducer.cli.command_classes import Command, Group
from aioproducer.cli.logs import logging_options
from aioproducer.cli.output import echo
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
    """List, describe, end and fence transactions, whoever has opened them."""


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
    as_json: bool,  # noqa: FBT001 - click passes names
) -> None:
    """List the transactional ids of a cluster, each with its producer id and state."""
    from aioproducer.cli.transaction_report import show_list

    config = configuration(cluster)
    try:
        asyncio.run(show_list(config, pattern, states, longer_than_ms, as_json=as_json))
    except ValueError as error:  # a state that is none
        raise WrongOption(str(error)) from error


@transactions.command(
    short_help="Show what is known of transactional ids.",
    examples=["aioproducer transactions describe nightly -b localhost:9092"],
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@producer_options
@json_option
def describe(
    ids: tuple[str, ...],
    cluster: ClusterOptions,
    as_json: bool,  # noqa: FBT001 - click passes names
) -> None:
    """Show what the coordinators of these ids know: state, producer, time and partitions.

    It fails if one is not known: never used, or forgotten.
    """
    from aioproducer.cli.transaction_report import show_descriptions

    config = configuration(cluster)
    if not asyncio.run(show_descriptions(config, ids, as_json=as_json)):
        raise click.exceptions.Exit(1)


@transactions.command(
    short_help="Commit or abort transactions that were prepared elsewhere.",
    examples=["aioproducer transactions end --commit - -b localhost:9092 < prepared.txt"],
)
@click.argument("prepared", metavar="PREPARED...", nargs=-1, required=True)
@click.option("--commit/--abort", "commit", default=None, help="How to end them.")
@producer_options
@json_option
def end(
    prepared: tuple[str, ...],
    commit: bool | None,  # noqa: FBT001 - click passes names
    cluster: ClusterOptions,
    as_json: bool,  # noqa: FBT001 - click passes names
) -> None:
    """Commit or abort transactions, each given as the text of its PreparedTransaction; - reads lines of standard input.

    Repeating it is fine, until an id is used again. It fails if not all are ended, and says what is certain.
    """
    from aioproducer._core.transactions.transaction_types import PreparedTransaction
    from aioproducer.cli.transaction_report import end_and_report

    if commit is None:
        raise click.UsageError("say --commit or --abort")
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
    if not asyncio.run(end_and_report(config, parsed, commit=commit, as_json=as_json)):
        raise click.exceptions.Exit(1)


@transactions.command(
    short_help="Take transactional ids from whoever has them.",
    examples=["aioproducer transactions fence nightly -b localhost:9092"],
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@producer_options
@json_option
def fence(
    ids: tuple[str, ...],
    cluster: ClusterOptions,
    as_json: bool,  # noqa: FBT001 - click passes names
) -> None:
    """Take these ids from whoever has them: what they have open is aborted, prepared or not.

    Readers of committed records who wait behind it go on then.
    """
    from aioproducer.cli.transaction_report import fence_and_report

    config = configuration(cluster)
    asyncio.run(fence_and_report(config, ids, as_json=as_json))


@click.command(
    "spark-recover",
    cls=Command,
    short_help="Show what Spark has decided and could not commit.",
    examples=["aioproducer spark-recover events-from-clicks -b localhost:9092"],
)
@click.argument("prefix")
@click.option("--confirm", is_flag=True, help="Note it as done with, so that the query goes on behind it.")
@producer_options
def spark_recover(
    prefix: str,
    confirm: bool,  # noqa: FBT001 - click passes names
    cluster: ClusterOptions,
) -> None:
    """Show what Spark has decided under PREFIX, the transactionalIdPrefix of a query, and could not commit.

    What can be committed is, by that. It fails if something is lost; with --confirm the query, which must not be
    running, may be started again, and goes on behind it.
    """
    from aioproducer.config.mapping import with_references

    given = with_references(configured(cluster), config_providers())
    try:
        from aioproducer.spark.committing import recover
    except ImportError as missing:
        raise click.ClickException(str(missing)) from missing

    told, ok = recover(given, prefix, confirm=confirm)
    echo(told)
    if not ok:
        raise click.exceptions.Exit(1)


def _lines() -> list[str]:
    if sys.stdin is None:
        raise WrongOption("standard input is closed; give the text itself")
    return sys.stdin.read().splitlines()
