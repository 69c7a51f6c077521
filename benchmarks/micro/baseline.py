"""Committed baseline of the costs of code units, as ratios, and the comparison with new measurements."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from benchmarks.micro.clock import Timed

PATH: Final = Path(__file__).with_name("baseline.json")
TOLERANCE: Final = 1.15


@dataclass(frozen=True, slots=True)
class Baseline:
    """Ratios at the last update."""

    python: str
    """Major and minor version of Python. The ratios differ between versions."""
    ratios: dict[str, float]

    @classmethod
    def load(cls, path: Path = PATH) -> Self:
        """Read a file written by `save`; return an empty baseline if the file is missing."""
        if not path.exists():
            return cls("", {})
        fields = json.loads(path.read_text(encoding="utf-8"))
        return cls(fields["python"], fields["ratios"])

    @classmethod
    def of(cls, timed: Mapping[str, Timed]) -> Self:
        """Return a baseline of new measurements."""
        return cls(python_version(), {name: round(each.ratio, 5) for name, each in timed.items()})

    def save(self, path: Path = PATH) -> None:
        """Write the baseline as JSON."""
        fields = {"python": self.python, "ratios": self.ratios}
        path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Compared:
    """New cost of a unit and its baseline."""

    name: str
    timed: Timed
    baseline: float | None

    @property
    def change(self) -> float | None:
        """Ratio of the new cost to the baseline; None without a baseline."""
        return None if self.baseline is None else self.timed.ratio / self.baseline

    @property
    def slower(self) -> bool:
        """True if the change exceeds the tolerance."""
        return self.change is not None and self.change > TOLERANCE


def compare(timed: Mapping[str, Timed], baseline: Baseline) -> list[Compared]:
    """Return every unit with its baseline."""
    return [Compared(name, each, baseline.ratios.get(name)) for name, each in timed.items()]


def python_version() -> str:
    """Return major and minor version of the interpreter."""
    return ".".join(platform.python_version_tuple()[:2])
