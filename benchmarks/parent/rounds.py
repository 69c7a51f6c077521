"""What is run in which order: each round every client once, so that all of them see the machine at its best and worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException

from benchmarks.figures import Played, Run
from benchmarks.row import Row
from benchmarks.settings import Tuning, Work

OVERHEAD_S: Final = 1.3
"""What a run takes besides its work: a process, a topic, the count."""
FIXED_S: Final = {Work.COLD: 6.0, Work.MEMORY: 10.0, Work.SCALE: 40.0}
"""Kinds of work that take as long as they take."""


@dataclass(frozen=True, slots=True)
class Step:
    """One run."""

    row: Row
    client: str
    round_number: int
    estimate_s: float
    tuning: Tuning = Tuning.EQUAL
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of a client at its best, or that might be."""
    point: int | None = None
    """Which of the sets of options of a sweep these are."""

    @property
    def player(self) -> str:
        """Who has its turn: a client, or a client with one of its sets of options."""
        return self.client if self.point is None else f"{self.client} {self.point}"


def no_options(row: Row, client: str) -> Mapping[str, Any]:
    """Return that a client has none but those that the table gives everybody."""
    return {}


def plan(
    rows: Iterable[Row],
    clients: Sequence[str],
    rounds: int,
    seconds: float,
    tuning: Tuning = Tuning.EQUAL,
    options: Callable[[Row, str], Mapping[str, Any]] = no_options,
) -> list[Step]:
    """Return every run of a table in order. Clients take turns in going first."""
    steps = []
    for row in rows:
        taking_part = [client for client in row.clients if client in clients]
        estimate_s = estimate(row, seconds)
        for number in range(rounds_of(row, rounds)):
            steps += [
                Step(row, client, number, estimate_s, tuning, options(row, client)) for client in taking_part
            ]
            taking_part = [*taking_part[1:], *taking_part[:1]]
    return steps


def estimate(row: Row, seconds: float) -> float:
    """Return how many seconds a run will take."""
    return FIXED_S.get(row.work, row.settings.warm_up_s + seconds * row.lasts) + OVERHEAD_S


def rounds_of(row: Row, rounds: int) -> int:
    """Return how many rounds a row gets: one, if it takes long and comes out the same each time."""
    return 1 if row.work in {Work.SCALE, Work.MEMORY} else rounds


def play(
    steps: Sequence[Step], run: Callable[[Step], Run], follow: Callable[[Step, str], None]
) -> dict[str, Played]:
    """Take *steps*, and return what came of them by row; *follow* hears of each that it is over, and why it failed.

    A client that fails is no reason to stop; its failure is kept.
    """
    rows: dict[str, Played] = {}
    for step in steps:
        played = rows.setdefault(step.row.name, Played())
        failure = ""
        measured: Run | None = None
        try:
            measured = run(step)
        except (RuntimeError, OSError, ValueError, KafkaException) as error:
            failure = f"round {step.round_number + 1}: {error}"
            played.failures.setdefault(step.player, []).append(failure)
        played.runs.setdefault(step.player, []).append(measured)
        follow(step, failure)
    return rows
