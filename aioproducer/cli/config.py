"""`aioproducer config`: a list of the options, and a check of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass
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

INDENT = (0, 0, 0, 4)


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of checking a file."""

    config: ProducerConfig
    changed: dict[str, Any]
    """Options that differ from their defaults."""
    adjusted_from: dict[str, Any]
    """Values in the file that were adjusted to fit other options."""
    without_effect: list[str]
    of_others: list[str]
    """Options of other clients, which a producer does not use."""


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
    with without_warnings("aioproducer.config"):
        checked = _checked(read_file(path), prefix, config_providers)
    if as_json:
        echo_json(_to_dict(checked))
    else:
        _print(path, checked)


def _checked(
    given: Mapping[str, str], prefix: str | Sequence[str], config_providers: Sequence[str]
) -> Checked:
    config = ProducerConfig.from_mapping(given, prefix=prefix, config_providers=config_providers)
    reading = read_mapping(given, KINDS, prefix=prefix, config_providers=config_providers)
    applied = {name: getattr(config, name) for name in DEFAULTS}
    named = "client_id" in reading.applied  # otherwise it has the default name
    return Checked(
        config,
        {
            name: value
            for name, value in applied.items()
            if value != DEFAULTS[name] and (name != "client_id" or named)
        },
        {name: meant for name, meant in _meant(reading.applied).items() if applied[name] != meant},
        sorted(reading.without_effect),
        sorted((*reading.of_others, *reading.ignored)),
    )


def _to_dict(checked: Checked) -> dict[str, Any]:
    return {
        "changes": {name: _plain(value) for name, value in checked.changed.items()},
        "adjusted_from": {name: _plain(value) for name, value in checked.adjusted_from.items()},
        "idempotent": checked.config.idempotent,
        "without_effect": checked.without_effect,
        "of_other_clients": checked.of_others,
    }


def _print(path: Path, checked: Checked) -> None:
    console = escaping(Console())
    table = plain_table("option", "value", "default")
    for name, value in checked.changed.items():
        table.add_row(Text(name, style="bold"), _shown(name, value), _shown(name, DEFAULTS[name]))
    console.print(Text(f"{escaped(str(path))} is fine. It changes:"), soft_wrap=True)
    show_table(console, table)
    for name, meant in checked.adjusted_from.items():
        used = _shown(name, getattr(checked.config, name))
        because = ", so that it fits the other options."
        console.print(
            Text.assemble(name, " is ", used, ", not ", _shown(name, meant), because), soft_wrap=True
        )
    if not checked.config.idempotent:
        console.print(Text("It is not idempotent: sending a record again may duplicate it."), soft_wrap=True)
    if checked.without_effect:
        console.print(
            Text(f"Known to Kafka, without effect here: {', '.join(checked.without_effect)}"), soft_wrap=True
        )
    if checked.of_others:
        console.print(
            Text(f"Of other clients, without effect here: {', '.join(checked.of_others)}"), soft_wrap=True
        )


def _meant(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the durations in *given*, or their defaults, before the configuration adjusts them."""
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
        case bool() | None:
            return Text(str(value))
        case int() | float():
            return Text(f"{value:,} {KINDS[name].unit}".rstrip())
        case tuple():
            return Text(", ".join(map(str, value)) or "none")
        case Secret():
            return Text(str(value))
        case _:
            return Text(getattr(value, "__name__", type(value).__name__))
