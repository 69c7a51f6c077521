"""The command `aioproducer send` and its options."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from aioproducer.cli.parameters import (
    WrongOption,
    bootstrap_option,
    check_run,
    check_topic_name,
    producer_option,
    rate_option,
)

FIELD_OPTIONS = ("value", "key", "headers", "partition")


@click.command(short_help="Send lines, JSON or binary records from files or standard input.")
@click.argument("topic", callback=check_topic_name)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@bootstrap_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json", "length-prefixed"]),
    default="lines",
    show_default=True,
    help="A value per line; a JSON object per line; or 4 bytes big endian, and as many of value.",
)
@click.option("--key-separator", metavar="TEXT", help=r"lines: the key is before it; \t is a tab.")
@click.option("--value-field", metavar="NAME", help="json: such as order.payload.  [default: the whole line]")
@click.option("--key-field", metavar="NAME", help="json: the key.")
@click.option("--headers-field", metavar="NAME", help="json: an object with the headers.")
@click.option("--partition-field", metavar="NAME", help="json: the partition's number.")
@rate_option
@click.option("--compression", metavar="TYPE", help="The same as --option compression.type=TYPE.")
@producer_option
@click.option(
    "--checkpoint",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Remembers there what is acknowledged; called again, goes on behind it.",
)
@click.option(
    "--run", metavar="ID", callback=check_run, help="Adds headers by which `aioproducer audit` finds it."
)
def send(  # noqa: PLR0917 - click passes names
    topic: str,
    files: tuple[str, ...],
    bootstrap_servers: str,
    form: str,
    key_separator: str | None,
    rate: float | None,
    compression: str | None,
    settings: dict[str, str],
    checkpoint: Path | None,
    run: str | None,
    **fields: str | None,
) -> None:
    """Send what is in FILES, or comes in by standard input, to TOPIC, one record after the other.

    Ctrl-C ends it early: what was handed over is waited for, and told. It stops at the first record that fails or
    cannot be understood, and fails if not all were acknowledged.
    """
    from aioproducer.cli.send.checkpoint import Checkpoint
    from aioproducer.cli.send.decoding import Fields
    from aioproducer.cli.send.plan import Format, Plan
    from aioproducer.cli.send.report import send_and_report
    from aioproducer.config import ProducerConfig

    names = {name: fields[f"{name}_field"] for name in FIELD_OPTIONS}
    if form != "json" and any(name is not None for name in names.values()):
        raise click.UsageError("fields are there with --format json only")
    if key_separator is not None:
        if form != "lines" or not key_separator:
            raise click.UsageError("--key-separator is for --format lines, and not empty")
        key_separator = key_separator.replace("\\t", "\t")
    paths = files or ("-",)
    if "-" in paths and sys.stdin is None:
        raise WrongOption("standard input is closed; name a file")
    if paths.count("-") > 1:
        raise WrongOption("standard input can be read once")
    if compression is not None:
        if "compression.type" in settings:
            raise WrongOption("--compression says what compression.type is already")
        settings = {**settings, "compression.type": compression}
    config = ProducerConfig.from_mapping({**settings, "bootstrap.servers": bootstrap_servers})
    if checkpoint is not None and config.acks == 0:
        raise WrongOption(
            "with acks=0 nothing is acknowledged: there is nothing for a checkpoint to remember"
        )
    written = None if key_separator is None else key_separator.encode(errors="surrogateescape")
    work = {"topic": topic, "format": form, "run": run}
    remember = None if checkpoint is None else Checkpoint(checkpoint, work)
    plan = Plan(
        config=config,
        topic=topic,
        paths=paths,
        format=Format(name=form, key_separator=written, fields=Fields(**names)),
        rate=rate,
        run=run,
        checkpoint=remember,
    )
    if not asyncio.run(send_and_report(plan)):
        raise click.exceptions.Exit(1)
