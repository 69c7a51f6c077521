"""`aioproducer config`: what can be configured, and what a file configures."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from aioproducer.config import ProducerConfig
from aioproducer.config.names import WITHOUT_EFFECT, applied_options
from aioproducer.config.options import DEFAULTS, KINDS, Options
from aioproducer.config.properties import read_properties
from aioproducer.errors import ConfigError

INDENT = (0, 0, 0, 4)


def show_options(*, as_json: bool = False) -> None:
    """Print every option: its default, what it means, and what it may be."""
    if as_json:
        click.echo(json.dumps([_described(each) for each in fields(Options)], indent=2))
        return
    console = Console()
    for each in fields(Options):
        console.print(Text.assemble((each.name, "bold"), " = ", _shown(each.name, each.default)))
        console.print(Padding(Text(_meaning(each)), INDENT))
        console.print(Padding(Text(KINDS[each.name].expected, style="dim"), INDENT))


def show_file(path: Path, *, as_json: bool = False) -> None:
    """Check a `.properties` file, and print what it changes and which of its names do nothing.

    Raises: ConfigError: what is wrong with it, all at once where one thing does not depend on another.
    """
    given = read_properties(path)
    logging.getLogger("aioproducer.config").setLevel(logging.ERROR)  # what it warns of is printed below
    if complaints := [*_complaints(given)]:
        raise ConfigError("\n".join(complaints))
    config = ProducerConfig.from_mapping(given)
    changed = {
        name: (getattr(config, name), default)
        for name, default in DEFAULTS.items()
        if getattr(config, name) != default and (name != "client_id" or "client.id" in given)
    }
    idle = sorted(name for name in given if name.replace("_", ".") in WITHOUT_EFFECT)
    adjusted = {name: meant for name, meant in _meant(given).items() if getattr(config, name) != meant}
    if as_json:
        changes = {name: _plain(value) for name, (value, _) in changed.items()}
        instead_of = {name: _plain(meant) for name, meant in adjusted.items()}
        told = {
            "changes": changes,
            "instead_of": instead_of,
            "idempotent": config.idempotent,
            "without_effect": idle,
        }
        click.echo(json.dumps(told, indent=2))
        return
    table = Table("option", "value", "default", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, (value, default) in changed.items():
        table.add_row(Text(name, style="bold"), _shown(name, value), _shown(name, default))
    console = Console()
    console.print(Text(f"{path} is fine. It changes:"))
    console.print(table)
    for name, meant in adjusted.items():
        used = _shown(name, getattr(config, name))
        console.print(
            Text.assemble(
                name, " is ", used, ", not ", _shown(name, meant), ", so that it fits the other options."
            )
        )
    if not config.idempotent:
        console.print(Text("It is not idempotent: sending a record again may duplicate it."))
    if idle:
        console.print(Text(f"Known to Kafka, without effect here: {', '.join(idle)}"))


def _meant(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the durations that *given* asks for, or has by default: one that does not fit others is adjusted."""
    texts = applied_options(given, KINDS)
    meant = {name: KINDS[name].parse(text.strip()) for name, text in texts.items()}
    return {name: meant.get(name, DEFAULTS[name]) for name in DEFAULTS if name.endswith("_ms")}


def _complaints(given: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with each option by itself."""
    for name, value in given.items():
        try:
            for ours, text in applied_options({name: value}, KINDS).items():
                kind = KINDS[ours]
                try:
                    kind.check(kind.parse(text.strip()))
                except ValueError as reason:
                    yield f"{name} = {value!r}: {reason}"
        except ConfigError as error:
            yield str(error)


def _described(option: Field[Any]) -> dict[str, Any]:
    return {
        "name": option.name,
        "required": option.default is MISSING,
        "default": None if option.default is MISSING else _plain(option.default),
        "unit": KINDS[option.name].unit or None,
        "meaning": _meaning(option),
        "expected": KINDS[option.name].expected,
    }


def _meaning(option: Field[Any]) -> str:
    meaning: str = option.metadata["meaning"]
    return meaning.replace("`", "")


def _plain(value: object) -> object:
    """Return *value* as JSON can have it."""
    match value:
        case bool() | str() | None | int() | float():
            return value
        case tuple():
            return list(map(_plain, value))
        case _:
            return getattr(value, "__name__", type(value).__name__)


def _shown(name: str, value: object) -> Text:
    """Write a value, with its unit, as a reader would."""
    match value:
        case _ if value is MISSING:
            return Text("required", style="italic")
        case str():
            return Text(value if value.isprintable() else ascii(value))  # nothing that a terminal would obey
        case bool() | None:
            return Text(str(value))
        case int() | float():
            return Text(f"{value:,} {KINDS[name].unit}".rstrip())
        case tuple():
            return Text(", ".join(map(str, value)) or "none")
        case _:
            return Text(getattr(value, "__name__", type(value).__name__))
