"""What is run in which order: each round every client once, so that all of them see the machine at its best and worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException

from benchmarks.figures import Played, Run
from benchmarks.settings import Work
from benchmarks.table import Row

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


def plan(rows: Iterable[Row], clients: Sequence[str], rounds: int, seconds: float) -> list[Step]:
    """Return every run in order. Clients take turns in going first."""
    steps = []
    for row in rows:
        taking_part = [client for client in row.clients if client in clients]
        estimate_s = FIXED_S.get(row.work, row.settings.warm_up_s + seconds * row.lasts) + OVERHEAD_S
        for number in range(rounds_of(row, rounds)):
            steps += [Step(row, client, number, estimate_s) for client in taking_part]
            taking_part = [*taking_part[1:], *taking_part[:1]]
    return steps


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
            played.failures.setdefault(step.client, []).append(failure)
        played.runs.setdefault(step.client, []).append(measured)
        follow(step, failure)
    return rows
