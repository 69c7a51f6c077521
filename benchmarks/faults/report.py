"""The scores as a Markdown table with aligned columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.faults.score import Score
from benchmarks.faults.terms import PARTITIONS

HEADINGS: Final = (
    "fault",
    "client",
    "records",
    "acked, not in log",
    "duplicates",
    "out of order",
    "failed",
    "in log, unflagged",
    "unresolved",
    "recovery",
    "alive after",
)


def row(client: str, figures: Score) -> tuple[str, ...]:
    """Return the cells of *client*, without the cell of the scenario."""
    alive = figures.partitions_alive
    return (
        client,
        f"{figures.records:,}",
        *(
            f"{figure:,}"
            for figure in (
                figures.acknowledged_not_in_log,
                figures.duplicates,
                figures.out_of_order,
                figures.failed,
                figures.failed_but_in_log,
                figures.unresolved,
            )
        ),
        "never" if figures.recovery_s is None else f"{figures.recovery_s:.2f} s",
        {0: "no", PARTITIONS: "yes"}.get(alive, f"{alive} of {PARTITIONS}"),
    )


def table(titled: Iterable[tuple[str, Sequence[tuple[str, ...]]]]) -> str:
    """Return a table of all rows. The first row of a scenario has the scenario's title."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for title, cells in titled:
        rows += [(title if not index else "", *each) for index, each in enumerate(cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(each, widths, strict=True))
        )
        + " |"
        for each in rows
    ]
    rule = "|".join("-" * (width + 1) + ("-" if place < 2 else ":") for place, width in enumerate(widths))
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])
