"""`aioproducer config`: a list of the options, and a check of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from aioproducer._core.logfmt import escaped
from aioproducer._core.security.secret import Secret
from aioproducer.cli.logs import without_warnings
from aioproducer.cli.output import echo_json, escaping, plain_table, show_table
from aioproducer.cli.parameters import read_file
from aioproducer.config import ProducerConfig
from aioproducer.config.mapping import read_mapping
from aioproducer.config.options import DEFAULTS, KINDS, OPTIONS
from aioproducer.config.properties import name_file
from aioproducer.errors import ConfigError

INDENT = (0, 0, 0, 4)


def show_options(*, as_json: bool = False) -> None:
    """Print the default, the meaning and the allowed values of every option."""
    if as_json:
        echo_json([_described(each) for each in OPTIONS])
        return
    console = escaping(Console())
    for each in OPTIONS:
        console.print(Text.assemble((each.name, "bold"), " = ", _shown(each.name, each.default)))
        console.print(Padding(Text(_meaning(each)), INDENT))
        console.print(Padding(Text(KINDS[each.name].expected, style="dim"), INDENT))


def show_file(
    path: Path,
    *,
    prefix: str | Sequence[str] = (),
    config_providers: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Check a `.properties` file; print its changes and its names without effect.

    Raises: ConfigError: all mistakes.
    """
    given = read_file(path)
    with without_warnings("aioproducer.config"):
        try:
            config = ProducerConfig.from_mapping(given, prefix=prefix, config_providers=config_providers)
        except ConfigError as error:
            name_file(error, path)
            raise
        reading = read_mapping(given, KINDS, prefix=prefix, config_providers=config_providers)
    used = {name: getattr(config, name) for name in DEFAULTS}
    changed = {name: value for name, value in used.items() if value != DEFAULTS[name]}
    if "client_id" not in reading.applied:  # the name is generated
        changed.pop("client_id", None)
    adjusted_from = {name: meant for name, meant in _meant(reading.applied).items() if used[name] != meant}
    without_effect = sorted(reading.without_effect)
    of_others = sorted((*reading.of_others, *reading.ignored))
    if as_json:
        echo_json(
            {
                "changes": {name: _plain(value) for name, value in changed.items()},
                "adjusted_from": {name: _plain(value) for name, value in adjusted_from.items()},
                "idempotent": config.idempotent,
                "without_effect": without_effect,
                "of_other_clients": of_others,
            }
        )
        return
    table = plain_table("option", "value", "default")
    for name, value in changed.items():
        table.add_row(Text(name, style="bold"), _shown(name, value), _shown(name, DEFAULTS[name]))
    because = ", so that it fits the other options."
    notes = [
        Text.assemble(name, " is ", _shown(name, used[name]), ", not ", _shown(name, meant), because)
        for name, meant in adjusted_from.items()
    ]
    if not config.idempotent:
        notes.append(Text("It is not idempotent: sending a record again may duplicate it."))
    if without_effect:
        notes.append(Text(f"Known to Kafka, without effect here: {', '.join(without_effect)}"))
    if of_others:
        notes.append(Text(f"Of other clients, without effect here: {', '.join(of_others)}"))
    console = escaping(Console())
    console.print(Text(f"{escaped(str(path))} is fine. It changes:"), soft_wrap=True)
    show_table(console, table)
    for note in notes:
        console.print(note, soft_wrap=True)


def _meant(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the durations in *given*, or their defaults, without the adjustments of the configuration."""
    meant = {
        name: KINDS[name].parse(value.strip()) if isinstance(value, str) else value
        for name, value in given.items()
    }
    return {name: meant.get(name, DEFAULTS[name]) for name in DEFAULTS if name.endswith("_ms")}


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
    """Return *value* as a JSON value."""
    match value:
        case bool() | str() | None | int() | float():
            return value
        case tuple():
            return list(map(_plain, value))
        case Secret():
            return str(value)
        case _:
            return getattr(value, "__name__", type(value).__name__)


def _shown(name: str, value: object) -> Text:
    """Return a value with its unit, for people."""
    match value:
        case _ if value is MISSING:
            return Text("required", style="italic")
        case str():
            return Text(escaped(value))
        case bool() | None | Secret():
            return Text(str(value))
        case int() | float():
            return Text(f"{value:,} {KINDS[name].unit}".rstrip())
        case tuple():
            return Text(", ".join(map(str, value)) or "none")
        case _:
            return Text(getattr(value, "__name__", type(value).__name__))
