"""What was measured, and the file that keeps it. A report can be made from the file alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.settings import Tuning

FORMAT: Final = 2

Series = list[tuple[float, float]]


@dataclass(slots=True, kw_only=True)
class Run:
    """One client's run of one row, in a process of its own."""

    sent: int = 0
    """How many records it says were acknowledged, from its start to its end; the topic must hold as many."""
    figures: dict[str, float] = field(default_factory=dict)
    """By the names in `benchmarks.row.FIGURES`."""
    series: Series = field(default_factory=list)
    """Points of a curve: memory over time, cost over partitions."""

    @classmethod
    def loads(cls, text: str) -> Self:
        """Read a run from JSON."""
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Make a run of what JSON has for it."""
        series = [(float(x), float(y)) for x, y in fields["series"]]
        return cls(sent=fields["sent"], figures=dict(fields["figures"]), series=series)


@dataclass(slots=True, kw_only=True)
class Played:
    """What came of one row."""

    runs: dict[str, list[Run | None]] = field(default_factory=dict)
    """By client, one for each round; None where it failed."""
    failures: dict[str, list[str]] = field(default_factory=dict)
    """Why, by client."""


@dataclass(slots=True, kw_only=True)
class Results:
    """All of a session."""

    made: str
    """The day, as 2026-01-31."""
    machine: dict[str, str]
    versions: dict[str, str]
    options: dict[str, Any]
    """What was asked for on the command line."""
    tables: dict[Tuning, dict[str, Played]] = field(default_factory=dict)
    """What came of each row of each table, by the names in `benchmarks.table.ROWS`."""
    best: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """The options that clients had in the table at their best, by row and client."""

    @property
    def judged(self) -> bool:
        """Whether rows were run as they are declared, so that their targets mean something."""
        return not any(self.options.get(name) for name in ("value_bytes", "compression", "uvloop"))

    @property
    def failures(self) -> list[str]:
        """Every failure, in one line each."""
        return [
            f"{tuning}: {name}, {client}: {why}"
            for tuning, rows in self.tables.items()
            for name, played in rows.items()
            for client, reasons in played.failures.items()
            for why in reasons
        ]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote. Raises: ValueError if it is something else."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            written = fields.pop("format")
        except (AttributeError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path.name} is not a file of results") from error
        if written != FORMAT:
            raise ValueError(f"{path.name} has format {written}, not {FORMAT}: measure again")
        fields["tables"] = {
            Tuning(tuning): {name: _played(played) for name, played in rows.items()}
            for tuning, rows in fields["tables"].items()
        }
        return cls(**fields)


def _played(fields: Mapping[str, Any]) -> Played:
    runs = {
        client: [None if run is None else Run.of(run) for run in runs]
        for client, runs in fields["runs"].items()
    }
    return Played(runs=runs, failures=fields["failures"])
