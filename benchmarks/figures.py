"""Results of a session, and their file. The file is the only input of a report."""

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
    """One run of a row by one client, in a separate process."""

    sent: int = 0
    """Number of records acknowledged during the whole run. The topic must contain exactly this number."""
    figures: dict[str, float] = field(default_factory=dict)
    """Figures by their names in `benchmarks.row.FIGURES`."""
    series: Series = field(default_factory=list)
    """Points of a curve: memory over time, cost over partitions."""

    @classmethod
    def loads(cls, text: str) -> Self:
        """Read a run from JSON."""
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return a run from its JSON fields."""
        series = [(float(x), float(y)) for x, y in fields["series"]]
        return cls(sent=fields["sent"], figures=dict(fields["figures"]), series=series)


@dataclass(slots=True, kw_only=True)
class Played:
    """Results of one row."""

    runs: dict[str, list[Run | None]] = field(default_factory=dict)
    """Runs by client, one per round; None for a failed run."""
    failures: dict[str, list[str]] = field(default_factory=dict)
    """Failure messages by client."""


@dataclass(slots=True, kw_only=True)
class Results:
    """Results of a session."""

    made: str
    """Date of the session, such as 2026-01-31."""
    machine: dict[str, str]
    versions: dict[str, str]
    options: dict[str, Any]
    """Options of the command line."""
    tables: dict[Tuning, dict[str, Played]] = field(default_factory=dict)
    """Results of each row of each table, by the row names in `benchmarks.table.ROWS`."""
    best: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Client options in the table *best*, by row and client."""

    @property
    def judged(self) -> bool:
        """True if all rows ran with their declared settings, so that their targets apply."""
        return not any(self.options.get(name) for name in ("value_bytes", "compression", "uvloop"))

    @property
    def failures(self) -> list[str]:
        """One line per failure."""
        return [
            f"{tuning}: {name}, {client}: {why}"
            for tuning, rows in self.tables.items()
            for name, played in rows.items()
            for client, reasons in played.failures.items()
            for why in reasons
        ]

    def save(self, path: Path) -> None:
        """Write the results as JSON."""
        path.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file written by `save`. Raises: ValueError for any other file."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            written = fields.pop("format")
        except (AttributeError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path.name} is not a file of results") from error
        if written != FORMAT:
            raise ValueError(f"{path.name} has format {written} instead of {FORMAT}; repeat the measurement")
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
