from __future__ import annotations

from benchmarks.clients import CLIENTS
from benchmarks.figures import Run
from benchmarks.parent.rounds import OVERHEAD_S, Step, plan, run_steps
from benchmarks.parent.topics import MissingRecordsError
from benchmarks.settings import Tuning
from benchmarks.table import ROWS

CLOSED = ROWS["closed"]


def order(steps: list[Step]) -> list[str]:
    return [f"{step.round_number}:{step.client}" for step in steps]


def test_every_round_starts_with_another_client() -> None:
    assert order(plan([CLOSED], CLIENTS, rounds=2, seconds=1)) == [
        *("0:aioproducer", "0:aiokafka", "0:confluent-aio"),
        *("1:aiokafka", "1:confluent-aio", "1:aioproducer"),
    ]


def test_plan_includes_only_the_requested_clients() -> None:
    assert order(plan([CLOSED], ["aiokafka", "jvm"], rounds=2, seconds=1)) == ["0:aiokafka", "1:aiokafka"]
    assert plan([CLOSED], ["jvm"], rounds=2, seconds=1) == []


def test_deterministic_long_row_is_run_once() -> None:
    assert len(plan([ROWS["scale-topics-all"]], CLIENTS, rounds=3, seconds=1)) == 1
    assert len(plan([ROWS["memory"]], CLIENTS, rounds=3, seconds=1)) == 2


def test_windows_at_default_settings_have_two_more_rounds() -> None:
    fire = ROWS["fire-headers"]
    rounds = {
        (tuning, rounds): len(plan([fire], ["aioproducer"], rounds, seconds=1, tuning=tuning))
        for tuning in (Tuning.DEFAULTS, Tuning.EQUAL)
        for rounds in (1, 3)
    }
    assert rounds == {
        (Tuning.DEFAULTS, 1): 1,
        (Tuning.DEFAULTS, 3): 5,
        (Tuning.EQUAL, 1): 1,
        (Tuning.EQUAL, 3): 3,
    }


def test_estimate_follows_the_seconds() -> None:
    short, long = (plan([CLOSED], CLIENTS, 1, seconds)[0].estimate_s for seconds in (1, 3))
    assert long - short == 2 * CLOSED.lasts


def test_failed_client_stops_no_other_client() -> None:
    told: list[str] = []

    def run(step: Step) -> Run:
        if step.client == "aiokafka" and step.round_number == 0:
            raise MissingRecordsError("9 of 10")
        return Run(sent=step.round_number)

    rows = run_steps(plan([CLOSED], CLIENTS, 2, 1), run, lambda _, failure: told.append(failure))
    played = rows["closed"]
    assert played.runs["aiokafka"] == [None, Run(sent=1)]
    assert played.runs["aioproducer"] == [Run(sent=0), Run(sent=1)]
    assert played.failures == {"aiokafka": ["round 1: 9 of 10"]}
    assert told == ["", "round 1: 9 of 10", "", "", "", ""]


def test_estimate_includes_a_warm_up_by_time() -> None:
    row = ROWS["transactions"]
    [step, *_] = plan([row], CLIENTS, 1, seconds=1)
    assert step.estimate_s == row.settings.warm_up_s + row.lasts + OVERHEAD_S
