"""The command `aioproducer send` and its options."""

from __future__ import annotations

import asyncio
import re
import sys
from functools import partial
from pathlib import Path

import click

from aioproducer.cli.command_classes import Command
from aioproducer.cli.output import exit_unless
from aioproducer.cli.parameters import (
    ClusterOptions,
    WrongOption,
    check_topic_name,
    compression_option,
    configuration,
    json_option,
    producer_options,
    rate_option,
    run_option,
)


def constant_headers(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, bytes], ...]:
    """Return headers from values such as `source=shop`."""
    headers = []
    for each in values:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{each!r}: expected NAME=VALUE, such as source=shop", ctx, param)
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise click.BadParameter(f"{name!r} is not UTF-8", ctx, param) from error
        headers.append((name, value.encode(errors="surrogateescape")))
    return tuple(headers)


def take_delimiter(ctx: click.Context, param: click.Parameter, value: str) -> bytes:
    r"""Return the bytes of a delimiter in which \n, \r, \t, \0 and \\ are escapes, and \xHH is a byte."""
    escapes = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}

    def unescape(found: re.Match[bytes]) -> bytes:
        code = found[1].decode()
        return bytes.fromhex(code[1:]) if code[0] == "x" else escapes[code]

    delimiter = re.sub(rb"\\(x[0-9a-fA-F]{2}|[nrt0\\])", unescape, value.encode(errors="surrogateescape"))
    if not delimiter:
        raise click.BadParameter("must not be empty", ctx, param)
    return delimiter


FIELD_OPTIONS = ("value", "key", "headers", "partition", "timestamp")


@click.command(
    cls=Command,
    short_help="Send lines, JSON or binary records from files or standard input.",
    groups={
        "Input": (
            "--format",
            "--delimiter",
            "--force",
            "--key-separator",
            "--value-field",
            "--key-field",
            "--headers-field",
            "--partition-field",
            "--timestamp-field",
        ),
        "Records": ("--record-key", "--header", "--run"),
        "Delivery": ("--rate", "--compression", "--on-error", "--checkpoint", "--transactional-id"),
    },
    examples=[
        "aioproducer send orders monday.txt tuesday.txt.gz -b localhost:9092",
        "tail -n 100 orders.log | aioproducer send orders -b localhost:9092",
        "aioproducer send orders o.jsonl --format json --key-field id -b localhost:9092",
        "aioproducer send orders big.txt --checkpoint big.checkpoint -b localhost:9092",
    ],
)
@click.argument("topic", callback=check_topic_name)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@producer_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json", "length-prefixed"]),
    default="lines",
    help="One value per line; JSON, per line or in an array; or values, each after its length (4 bytes, big endian).",
)
@click.option("--key-separator", metavar="TEXT", help=r"lines: separates key and value; \t is a tab.")
@click.option(
    "--delimiter",
    metavar="TEXT",
    default=r"\n",
    callback=take_delimiter,
    help=r"lines, json: the end of each record, such as \0 or \x1e.",
)
@click.option(
    "--force", is_flag=True, help="lines, json: send input in another format instead of refusing it."
)
@click.option(
    "--record-key",
    metavar="TEXT",
    help="The key of every record.",  # --key names the key of a certificate
)
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=constant_headers,
    help="A header of every record; may be repeated.",
)
@click.option(
    "--value-field",
    metavar="NAME",
    help="json: field of the value, such as order.payload.  [default: the whole line]",
)
@click.option("--key-field", metavar="NAME", help="json: field of the key.")
@click.option("--headers-field", metavar="NAME", help="json: field of an object with the headers.")
@click.option("--partition-field", metavar="NAME", help="json: field of the partition number.")
@click.option(
    "--timestamp-field",
    metavar="NAME",
    help="json: field of the time, in milliseconds since 1970 or as ISO 8601 with a zone.",
)
@rate_option
@compression_option
@click.option(
    "--checkpoint",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Records the acknowledged part of the input; the same command continues after it.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Sends all records in one transaction. The same as --option transactional.id=ID.",
)
@click.option(
    "--on-error",
    metavar="stop|skip|FILE",
    default="stop",
    help="Handling of records that cannot be sent: end, skip them, or write them to FILE and continue.",
)
@partial(run_option, text="Adds headers that let `aioproducer audit` find the records.")
@json_option
def send(
    topic: str,
    files: tuple[str, ...],
    cluster: ClusterOptions,
    form: str,
    key_separator: str | None,
    record_key: str | None,
    headers: tuple[tuple[str, bytes], ...],
    rate: float | None,
    compression: str | None,
    checkpoint: Path | None,
    transactional_id: str | None,
    on_error: str,
    run: str | None,
    as_json: bool,
    delimiter: bytes,
    force: bool,
    **fields: str | None,
) -> None:
    """Send the records of FILES, or of standard input, to TOPIC in order.

    After Ctrl-C, the command waits for sent records and reports the outcomes. The command stops at the first record
    that fails or cannot be decoded. With --on-error, the command continues after records that no producer could send.
    If a record is not acknowledged, the command fails, and with --transactional-id no record is visible.
    """
    from aioproducer.cli.send.arguments import Format, SendArguments
    from aioproducer.cli.send.decoding import Fields
    from aioproducer.cli.send.send_report import send_and_report
    from aioproducer.cli.send.written_files import Checkpoint, DeadLetters

    names = {name: fields[f"{name}_field"] for name in FIELD_OPTIONS}
    paths = files or ("-",)
    if "-" in paths and sys.stdin is None:
        raise WrongOption("standard input is closed; name a file")
    if paths.count("-") > 1:
        raise WrongOption("standard input can be read only once; pass - once")
    cluster = cluster.with_setting("compression.type", compression, by="--compression")
    cluster = cluster.with_setting("transactional.id", transactional_id, by="--transactional-id")
    config = configuration(cluster)
    if checkpoint is not None and config.acks == 0:
        raise WrongOption(
            "--checkpoint needs acknowledgements, and acks=0 has none: leave out --checkpoint, or set another acks"
        )
    for flag, is_set in {"--checkpoint": checkpoint is not None, "--on-error": on_error != "stop"}.items():
        if is_set and config.transactional_id is not None:
            raise WrongOption(
                f"{flag} has no effect in a transaction, which commits the whole input or nothing: leave out {flag}, or"
                " the transactional id"
            )
    _check_format(form, key_separator, names, record_key)
    if form == "length-prefixed" and (force or delimiter != b"\n"):
        raise click.UsageError("--delimiter and --force need --format lines or json")
    work = {"topic": topic, "format": form, "run": run}
    if delimiter != b"\n":
        work["format"] = f"{form} delimited by {delimiter.hex()}"
    arguments = SendArguments(
        config=config,
        topic=topic,
        paths=paths,
        format=Format(
            name=form,
            key_separator=_encoded(key_separator and key_separator.replace("\\t", "\t")),
            fields=Fields(**names),
            key=_encoded(record_key),
            headers=headers,
            delimiter=delimiter,
            force=force,
        ),
        rate=rate,
        run=run,
        checkpoint=None if checkpoint is None else Checkpoint(checkpoint, work),
        dead_letters=None
        if on_error == "stop"
        else DeadLetters(None if on_error == "skip" else Path(on_error)),
    )
    exit_unless(asyncio.run(send_and_report(arguments, as_json=as_json)))


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")


def _check_format(
    form: str, key_separator: str | None, fields: dict[str, str | None], record_key: str | None
) -> None:
    if form != "json" and any(name is not None for name in fields.values()):
        raise click.UsageError("the options --…-field need --format json")
    if record_key is not None and (key_separator is not None or fields["key"] is not None):
        raise click.UsageError(
            "--record-key sets the key of every record: leave out --key-separator and --key-field"
        )
    if key_separator is not None and form != "lines":
        raise click.UsageError("--key-separator needs --format lines")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
