"""Options that several commands share, and what is checked of any."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any] | click.Command)
"""What click's decorators take and return."""
MOST_DIGITS = 5
"""Of a number of partitions: more of them do not fit into one process."""


class WrongOption(click.ClickException):
    """What we find wrong with a command line; click's own errors end with the same code."""

    exit_code = 2


def new_topics(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Take `orders:6` apart."""
    topics: dict[str, int] = {}
    for value in values:
        name, colon, partitions = value.partition(":")
        if colon and not (partitions.isascii() and partitions.isdigit() and len(partitions) <= MOST_DIGITS):
            raise click.BadParameter(f"{value!r} should be like orders:6", ctx, param)
        if check_topic_name(ctx, param, name) in topics:
            raise click.BadParameter(f"{name} is there twice", ctx, param)
        topics[name] = int(partitions or 1)
        if not topics[name]:
            raise click.BadParameter(f"{value!r} has no partitions: it should be like orders:6", ctx, param)
    return topics


def take_settings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
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


def check_topic_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse what no topic can be called, which brokers would only say they do not know."""
    from aioproducer.intake.checks import check_topic

    try:
        return check_topic(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def check_run(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse a run without a name."""
    if value == "":
        raise click.BadParameter("a run's id must not be empty", ctx, param)
    return value


def check_rate(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse what click takes for a number."""
    if value is not None and not isfinite(value):
        raise click.BadParameter(f"{value} is no number of records", ctx, param)
    return value


def bootstrap_option(command: C) -> C:
    """`--bootstrap-servers`."""
    return click.option("--bootstrap-servers", metavar="HOST:PORT", required=True, help="The Kafka cluster.")(
        command
    )


def rate_option(command: C) -> C:
    """`--rate`."""
    text = "Records per second.  [default: as fast as memory allows]"
    return click.option("--rate", type=click.FloatRange(0, min_open=True), callback=check_rate, help=text)(
        command
    )


def producer_option(command: C) -> C:
    """`--option`."""
    text = "Of the producer, such as compression.type=zstd; may be repeated. `aioproducer config` lists them."
    names = ("-o", "--option", "settings")
    return click.option(*names, metavar="NAME=VALUE", multiple=True, callback=take_settings, help=text)(
        command
    )


def json_option(command: C) -> C:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="For programs to read.")(command)
