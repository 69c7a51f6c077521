"""How tables look."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table


def plain_table(*headings: str, **options: Any) -> Table:
    """Return an empty table with a line below its headings, and none around it: `grep` is to find what is in it."""
    return Table(*headings, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, **options)
