"""The winners of a sweep: the sets of options per row and client, best first, in a committed file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.figures import Played
from benchmarks.row import FIGURES
from benchmarks.summary import spread_of
from benchmarks.sweep.grid import Options

BEST: Final = Path(__file__).with_name("best.json")

Tried = list[dict[str, Any]]
"""Sets of options with the median of the deciding figure, best first."""


@dataclass(slots=True, kw_only=True)
class Winners:
    """Results of all sweeps. A new sweep of a row and client replaces the old result."""

    made: str = ""
    """Date of the last sweep."""
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    rows: dict[str, dict[str, Tried]] = field(default_factory=dict)

    def options(self, row: str, client: str) -> Options:
        """Return the best options for *client*. Raises: LookupError if the row was never swept for *client*."""
        try:
            best: Options = self.rows[row][client][0]["options"]
        except KeyError:
            command = f"python -m benchmarks sweep --work {row} --clients {client}"
            raise LookupError(f"the options of {client} for {row} were never swept: {command}") from None
        return best

    def note(self, row: str, client: str, tried: Tried) -> None:
        """Store the results of one row and client, unless every set failed."""
        if tried:
            self.rows.setdefault(row, {})[client] = tried

    def save(self, path: Path) -> None:
        """Write JSON with one set of options per line, for readable diffs."""
        head = {"made": self.made, "machine": self.machine, "versions": self.versions, "rounds": self.rounds}
        facts = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
        rows = ",\n".join(
            f"  {json.dumps(row)}: {{\n" + ",\n".join(_lines(clients)) + "\n  }"
            for row, clients in self.rows.items()
        )
        path.write_text(f'{{\n{facts} "rows": {{\n{rows}\n }}\n}}\n', encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file written by `save`; return no winners if the file is missing."""
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()


def _lines(clients: dict[str, Tried]) -> Iterable[str]:
    for client, tried in clients.items():
        sets = ",\n".join(f"    {json.dumps(each)}" for each in tried)
        yield f"   {json.dumps(client)}: [\n{sets}\n   ]"


def ranked(played: Played, players: Sequence[tuple[str, Options]], figure: str) -> Tried:
    """Return the *players* of one client by the median of *figure*, best first, without players that failed in a round."""
    tried = [
        {"options": options, figure: float(f"{spread.median:.4g}")}
        for player, options in players
        if player not in played.failures and (spread := spread_of(played, player, figure)) is not None
    ]
    return sorted(tried, key=lambda each: each[figure], reverse=FIGURES[figure].more_is_better)
