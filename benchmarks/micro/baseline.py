"""The committed costs of units of work, as ratios, and what has become slower since."""

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
    """What was measured when it was last written."""

    python: str
    """Major and minor version: with another one, ratios are others."""
    ratios: dict[str, float]

    @classmethod
    def load(cls, path: Path = PATH) -> Self:
        """Read what `save` wrote; empty if nothing was ever written."""
        if not path.exists():
            return cls("", {})
        fields = json.loads(path.read_text(encoding="utf-8"))
        return cls(fields["python"], fields["ratios"])

    @classmethod
    def of(cls, timed: Mapping[str, Timed]) -> Self:
        """Make a baseline of what was measured just now."""
        return cls(python_version(), {name: round(each.ratio, 5) for name, each in timed.items()})

    def save(self, path: Path = PATH) -> None:
        """Write it."""
        fields = {"python": self.python, "ratios": self.ratios}
        path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Compared:
    """A unit's cost, now and then."""

    name: str
    timed: Timed
    baseline: float | None

    @property
    def change(self) -> float | None:
        """How many times as dear as before; None if there is no before."""
        return None if self.baseline is None else self.timed.ratio / self.baseline

    @property
    def slower(self) -> bool:
        """Whether that is more than what chance does."""
        return self.change is not None and self.change > TOLERANCE


def compare(timed: Mapping[str, Timed], baseline: Baseline) -> list[Compared]:
    """Return every unit next to its baseline."""
    return [Compared(name, each, baseline.ratios.get(name)) for name, each in timed.items()]


def python_version() -> str:
    """Return this interpreter's version, as far as it matters to costs."""
    return ".".join(platform.python_version_tuple()[:2])
