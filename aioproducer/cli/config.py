"""`aioproducer config`: what can be configured, and what a file configures."""

from __future__ import annotations

import logging
from dataclasses import MISSING, fields
from pathlib import Path

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from aioproducer.config import ProducerConfig
from aioproducer.config.names import WITHOUT_EFFECT
from aioproducer.config.options import DEFAULTS, KINDS, Options
from aioproducer.config.properties import read_properties

INDENT = (0, 0, 0, 4)


def show_options() -> None:
    """Print every option: its default, what it means, and what it may be."""
    console = Console()
    for each in fields(Options):
        default = _shown(each.name, each.default)
        meaning = each.metadata["meaning"].replace("`", "")
        console.print(Text.assemble((each.name, "bold"), " = ", default))
        console.print(Padding(Text(meaning), INDENT))
        console.print(Padding(Text(KINDS[each.name].expected, style="dim"), INDENT))


def show_file(path: Path) -> None:
    """Check a `.properties` file, and print what it changes and which of its names do nothing.

    Raises: ConfigError.
    """
    given = read_properties(path)
    logging.getLogger("aioproducer.config").setLevel(logging.ERROR)  # what it warns of is printed below
    config = ProducerConfig.from_mapping(given)
    table = Table("option", "value", "default", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, default in DEFAULTS.items():
        value = getattr(config, name)
        if value != default and (name != "client_id" or "client.id" in given):
            table.add_row(Text(name, style="bold"), _shown(name, value), _shown(name, default))
    console = Console()
    console.print(Text(f"{path} is fine. It changes:"))
    console.print(table)
    if idle := [name for name in given if name in WITHOUT_EFFECT]:
        console.print(Text(f"Known to Kafka, without effect here: {', '.join(sorted(idle))}"))


def _shown(name: str, value: object) -> Text:
    """Write a value, with its unit, as a reader would."""
    match value:
        case _ if value is MISSING:
            return Text("required", style="italic")
        case bool() | str() | None:
            return Text(str(value))
        case int() | float():
            return Text(f"{value:,} {KINDS[name].unit}".rstrip())
        case tuple():
            return Text(", ".join(map(str, value)) or "none")
        case _:
            return Text(getattr(value, "__name__", type(value).__name__))
