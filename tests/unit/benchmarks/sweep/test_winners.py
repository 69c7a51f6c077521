from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.figures import Played
from benchmarks.sweep.winners import Winners, ranked
from tests.unit.benchmarks.samples import run

PLAYERS = [("aiokafka 0", {}), ("aiokafka 1", {"linger_ms": 1}), ("aiokafka 2", {"linger_ms": 2})]
TRIED = [{"options": {"linger_ms": 1}, "records_s": 5.0}, {"options": {}, "records_s": 4.0}]


def test_winners_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    winners = Winners(made="2026-01-31", machine={"cores": "2 cores"}, rounds=3)
    winners.note("closed", "aiokafka", TRIED)
    winners.note("closed", "aioproducer", TRIED[1:])
    winners.note("fire", "aiokafka", TRIED)
    winners.save(path)
    assert Winners.load(path) == winners
    assert Winners.load(path).options("closed", "aiokafka") == {"linger_ms": 1}


def test_winners_are_empty_without_a_file(tmp_path: Path) -> None:
    winners = Winners.load(tmp_path / "best.json")
    with pytest.raises(LookupError, match="the options of aiokafka for closed were never swept"):
        winners.options("closed", "aiokafka")


def test_empty_trial_keeps_the_earlier_winner() -> None:
    winners = Winners()
    winners.note("closed", "aiokafka", TRIED)
    winners.note("closed", "aiokafka", [])
    assert winners.options("closed", "aiokafka") == {"linger_ms": 1}


@pytest.mark.parametrize(("figure", "best"), [("records_s", 2), ("p50_ms", 0)])
def test_ranking_uses_the_median(figure: str, best: int) -> None:
    played = Played(
        runs={
            "aiokafka 0": [run(**{figure: each}) for each in (1.0, 2.0, 90.0)],
            "aiokafka 1": [run(**{figure: each}) for each in (3.0, 3.0, 3.0)],
            "aiokafka 2": [run(**{figure: each}) for each in (1.0, 4.0, 5.0)],
        }
    )
    tried = ranked(played, PLAYERS, figure)
    assert tried[0]["options"] == PLAYERS[best][1]
    assert len(tried) == 3


def test_ranking_excludes_options_that_failed_in_a_round() -> None:
    played = Played(
        runs={"aiokafka 0": [run(records_s=1.0)], "aiokafka 1": [run(records_s=9.0), None]},
        failures={"aiokafka 1": ["round 2: it broke"]},
    )
    assert ranked(played, PLAYERS, "records_s") == [{"options": {}, "records_s": 1.0}]
