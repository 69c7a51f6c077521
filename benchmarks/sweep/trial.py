"""Trial of every set of options: each round runs every client with every set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.figures import Played, Results
from benchmarks.parent.rounds import Step, estimate
from benchmarks.parent.session import Asked
from benchmarks.row import Row
from benchmarks.settings import Tuning, Work
from benchmarks.sweep.grid import TUNED_AS, points
from benchmarks.sweep.winners import Winners, ranked
from benchmarks.table import ROWS


def steps_of(asked: Asked) -> list[Step]:
    """Return every run in order. A round has all sets of options of all clients; the first set differs per round."""
    return [step for name in asked.rows for step in _steps_of(ROWS[name], asked)]


def _steps_of(row: Row, asked: Asked) -> list[Step]:
    clients = [client for client in row.clients if client in asked.clients and client not in TUNED_AS]
    estimate_s = estimate(row, asked.seconds)
    steps = []
    for number in range(asked.rounds):
        players = [
            Step(row, client, number, estimate_s, Tuning.BEST, options, point)
            for client in clients
            for point, options in enumerate(points(client, row.work))
        ]
        players.sort(key=lambda step: step.point or 0)  # alternate between clients
        first = len(players) * number // asked.rounds
        steps += [*players[first:], *players[:first]]
    return steps


def decides(row: Row) -> str:
    """Return the figure that decides: throughput, or the median latency for a single task."""
    return "p50_ms" if row.work is Work.LONE else "records_s"


def note(winners: Winners, session: Results, steps: Sequence[Step], rows: Mapping[str, Played]) -> None:
    """Add the results of a sweep to *winners*, with date, machine and versions of *session*."""
    winners.made, winners.machine = session.made, session.machine
    winners.versions |= session.versions
    winners.rounds = session.options["rounds"]
    for row, client in dict.fromkeys((step.row.name, step.client) for step in steps):
        players = {
            step.player: dict(step.options) for step in steps if (step.row.name, step.client) == (row, client)
        }
        tried = ranked(rows[row], list(players.items()), decides(ROWS[row]))
        winners.note(row, client, tried)
