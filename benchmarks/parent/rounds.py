"""Order of runs: every client runs once per round, so that changes of the machine's load affect all clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException

from benchmarks.figures import Played, Run
from benchmarks.row import Row
from benchmarks.settings import Tuning, Work

OVERHEAD_S: Final = 1.3
"""Overhead of a run in seconds: process start, topic creation, check of the record count."""
FIXED_S: Final = {Work.COLD: 6.0, Work.MEMORY: 10.0, Work.SCALE: 40.0}
"""Duration of workloads that ignore `--seconds`, in seconds."""
MORE_ROUNDS: Final = 2
"""Additional rounds of windows at default settings: the rate of confluent-kafka's `produce` varies most."""


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a row by a client."""

    row: Row
    client: str
    round_number: int
    estimate_s: float
    tuning: Tuning = Tuning.EQUAL
    options: Mapping[str, Any] = field(default_factory=dict)
    """Client options of the table *best*, or of a set that a sweep tries."""
    point: int | None = None
    """Index of the set of options in a sweep; None outside a sweep."""

    @property
    def player(self) -> str:
        """Name of the client, with the index of its set of options in a sweep."""
        return self.client if self.point is None else f"{self.client} {self.point}"


def no_options(row: Row, client: str) -> Mapping[str, Any]:
    """Return no options besides those of the table."""
    return {}


def plan(
    rows: Iterable[Row],
    clients: Sequence[str],
    rounds: int,
    seconds: float,
    tuning: Tuning = Tuning.EQUAL,
    options: Callable[[Row, str], Mapping[str, Any]] = no_options,
) -> list[Step]:
    """Return every run of a table in order. The first client of a round changes."""
    steps = []
    for row in rows:
        taking_part = [client for client in row.clients if client in clients]
        estimate_s = estimate(row, seconds)
        for number in range(rounds_of(row, rounds, tuning)):
            steps += [
                Step(row, client, number, estimate_s, tuning, options(row, client)) for client in taking_part
            ]
            taking_part = [*taking_part[1:], *taking_part[:1]]
    return steps


def estimate(row: Row, seconds: float) -> float:
    """Return the estimated duration of a run, in seconds."""
    return FIXED_S.get(row.work, row.settings.warm_up_s + seconds * row.lasts) + OVERHEAD_S


def rounds_of(row: Row, rounds: int, tuning: Tuning) -> int:
    """Return the number of rounds of a row: one if a run is long and its results vary little."""
    if row.work in {Work.SCALE, Work.MEMORY}:
        return 1
    is_headline = row.work is Work.FIRE and tuning is Tuning.DEFAULTS
    return rounds + MORE_ROUNDS if is_headline and rounds > 1 else rounds


def run_steps(
    steps: Sequence[Step], run: Callable[[Step], Run], follow: Callable[[Step, str], None]
) -> dict[str, Played]:
    """Run *steps* and return their results by row. Calls *follow* after each step, with the reason of a failure or "".

    After the failure of a client, the other steps continue. The results contain the failure.
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
