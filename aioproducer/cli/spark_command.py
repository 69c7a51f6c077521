"""`aioproducer spark-recover`: its options; what it does is imported when it is called."""

from __future__ import annotations

from pathlib import Path

import click

from aioproducer.cli.help import Command
from aioproducer.cli.output import echo
from aioproducer.cli.parameters import config_providers, configured, producer_options


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
    bootstrap_servers: str | None,
    config_file: Path | None,
    settings: dict[str, str],
) -> None:
    """Show what Spark has decided under PREFIX, the transactionalIdPrefix of a query, and could not commit.

    What can be committed is, by that. It fails if something is lost; with --confirm the query, which must not be
    running, may be started again, and goes on behind it.
    """
    from aioproducer.config.mapping import with_references

    given = with_references(configured(bootstrap_servers, config_file, settings), config_providers())
    try:
        from aioproducer.spark.recover import recover
    except ImportError as missing:
        raise click.ClickException(str(missing)) from missing

    told, ok = recover(given, prefix, confirm=confirm)
    echo(told)
    if not ok:
        raise click.exceptions.Exit(1)
