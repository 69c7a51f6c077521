from __future__ import annotations

from benchmarks.clients import CLIENTS
from benchmarks.figures import Played, Results
from benchmarks.parent.session import Asked
from benchmarks.scale.shapes import SIZES
from benchmarks.settings import Tuning
from benchmarks.sweep.grid import points
from benchmarks.sweep.trial import note, steps_of
from benchmarks.sweep.winners import Winners
from benchmarks.table import ROWS
from tests.unit.benchmarks.samples import run


def asked(*rows: str, clients: tuple[str, ...] = CLIENTS, rounds: int = 2) -> Asked:
    return Asked(rows=rows, clients=clients, rounds=rounds, seconds=1.0, scale_sizes=SIZES)


def test_each_round_has_all_sets_of_all_clients_in_turns() -> None:
    row = ROWS["closed"]
    steps = steps_of(asked("closed"))
    sets = len(points("aiokafka", row.work))
    everybody = {f"{client} {point}" for client in row.clients for point in range(sets)}
    of_rounds = [[step for step in steps if step.round_number == number] for number in range(2)]
    for players in of_rounds:
        assert {step.player for step in players} == everybody
        assert len(players) == len(everybody)
    assert [step.client for step in of_rounds[0][:3]] == list(row.clients)
    assert of_rounds[0][0].player != of_rounds[1][0].player
    assert {step.tuning for step in steps} == {Tuning.BEST}


def test_trial_includes_only_requested_clients_with_the_work() -> None:
    steps = steps_of(asked("closed", clients=("aiokafka", "jvm"), rounds=1))
    assert [step.client for step in steps] == ["aiokafka"] * len(steps)
    assert [step.options for step in steps] == points("aiokafka", ROWS["closed"].work)
    assert steps_of(asked("closed", clients=("jvm",))) == []


def test_winner_is_noted_with_date_and_versions() -> None:
    steps = steps_of(asked("lone", clients=("aiokafka",), rounds=1))
    rows = {"lone": Played(runs={step.player: [run(p50_ms=9.0 - (step.point or 0))] for step in steps})}
    winners = Winners(versions={"kafka-python": "3"})
    session = Results(
        made="2026-01-31", machine={"cores": "2 cores"}, versions={"aiokafka": "1"}, options={"rounds": 1}
    )
    note(winners, session, steps, rows)
    assert winners.options("lone", "aiokafka") == points("aiokafka", ROWS["lone"].work)[-1]
    assert (winners.made, winners.rounds) == ("2026-01-31", 1)
    assert winners.versions == {"kafka-python": "3", "aiokafka": "1"}
