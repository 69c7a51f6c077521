from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from benchmarks.clients import CLIENTS
from benchmarks.figures import Run
from benchmarks.parent import session
from benchmarks.parent.rounds import Step
from benchmarks.parent.session import Asked, Session, best_of, empty_results, steps_of
from benchmarks.parent.topics import Topics, check_count
from benchmarks.scale.shapes import SIZES
from benchmarks.settings import Tuning
from benchmarks.sweep.winners import BEST, Winners
from benchmarks.table import ROWS

WINNERS = Winners.load(BEST)


def asked(**changes: Any) -> Asked:
    given: dict[str, Any] = {
        "rows": tuple(ROWS),
        "clients": CLIENTS,
        "rounds": 3,
        "seconds": 2.0,
        "scale_sizes": SIZES,
    }
    return Asked(**(given | changes))


def step(row: str, tuning: Tuning = Tuning.EQUAL, **options: Any) -> Step:
    return Step(ROWS[row], "aioproducer", 0, 1.0, tuning, options)


def test_row_is_run_as_declared() -> None:
    settings = asked().settings_of(step("bulk-keys"))
    assert (settings.seconds, settings.keys, settings.tuning) == (2.0, True, Tuning.EQUAL)
    assert asked().settings_of(step("lag")).seconds == 2.0 * ROWS["lag"].lasts
    best = asked().settings_of(step("bulk-keys", Tuning.BEST, linger_ms=1))
    assert (best.tuning, best.options) == (Tuning.BEST, {"linger_ms": 1})


def test_command_line_options_apply_to_every_row() -> None:
    settings = asked(value_bytes=500, compression="lz4", uvloop=True).settings_of(step("bulk"))
    assert (settings.value_bytes, settings.compression, settings.json_like) == (500, "lz4", True)
    assert settings.uvloop
    assert asked().settings_of(step("closed-uvloop")).uvloop


def test_each_table_has_its_rows() -> None:
    tables = steps_of(asked(), WINNERS)
    assert list(tables) == list(Tuning)
    for tuning, steps in tables.items():
        assert {step.tuning for step in steps} == {tuning}
        assert {step.row.name for step in steps} == {
            name for name, row in ROWS.items() if tuning in row.tunings
        }
    assert list(steps_of(asked(tables=(Tuning.BEST,)), WINNERS)) == [Tuning.BEST]
    assert list(steps_of(asked(rows=("lag",)), Winners())) == [Tuning.EQUAL]


def test_best_steps_use_the_winners_of_their_row() -> None:
    winners = Winners(rows={"closed": {"aiokafka": [{"options": {"linger_ms": 7}}]}})
    produce = {"linger.ms": 7}
    winners.note("fire", "confluent-produce", [{"options": produce}])
    both = asked(rows=("fire",), clients=("confluent-produce", "confluent-callback"), rounds=1)
    assert [dict(step.options) for step in steps_of(both, winners)[Tuning.BEST]] == [produce, produce]
    what = asked(rows=("closed", "closed-uvloop"), clients=("aiokafka",), rounds=1)
    tables = steps_of(what, winners)
    assert [dict(step.options) for step in tables[Tuning.BEST]] == [{"linger_ms": 7}] * 2
    assert not any(step.options for step in tables[Tuning.DEFAULTS] + tables[Tuning.EQUAL])
    assert best_of(tables[Tuning.BEST])["closed-uvloop"] == {"aiokafka": {"linger_ms": 7}}
    with pytest.raises(LookupError, match="sweep --work fire --clients aiokafka"):
        steps_of(replace(what, rows=("fire",)), winners)


def test_results_name_versions_and_hide_the_cluster() -> None:
    results = empty_results(asked(rows=("bulk",), bootstrap_servers="secret.example:9092"))
    assert "aioproducer" in results.versions
    assert "confluent-kafka" in results.versions
    assert "JVM client" in results.versions
    assert "aiokafka" not in results.versions
    assert "Apache Kafka" not in results.versions
    assert "secret" not in str(results)
    assert "Apache Kafka" in empty_results(asked(rows=("bulk",))).versions


class FakeTopics:
    """A cluster on which every topic holds three records."""

    servers = "here:1"

    def __init__(self) -> None:
        self.deleted: list[str] = []

    @contextmanager
    def fresh(self, name: str, partitions: int) -> Iterator[str]:
        try:
            yield name
        finally:
            self.deleted.append(name)

    def check(self, topic: str, partitions: int, sent: int, *, committed: bool = False) -> None:
        assert committed is ("transactions" in topic)
        check_count(sent, 3)


@pytest.mark.parametrize(("sent", "believed"), [(3, True), (4, False)])
@pytest.mark.parametrize(("row", "at"), [("lone", "here:1"), ("closed-tls", "there:2")])
def test_run_counts_only_if_every_record_arrived(
    monkeypatch: pytest.MonkeyPatch, sent: int, believed: bool, row: str, at: str
) -> None:
    calls: list[list[str]] = []

    def answer_of(module: str, arguments: list[str]) -> str:
        calls.append(arguments)
        return f'{{"sent": {sent}, "figures": {{"records_s": 1.0}}, "series": []}}'

    monkeypatch.setattr(session, "answer_of", answer_of)
    what = asked(rows=(row,), clients=("aioproducer",), rounds=1, tables=(Tuning.EQUAL,))
    topics = FakeTopics()
    [steps] = steps_of(what, WINNERS).values()
    tls = session.TlsListener("there:2", "ca.pem")
    played = Session(what, cast("Topics", topics), tls).run_steps(steps, lambda *_: None)[row]
    [[client, servers, topic, _]] = calls
    assert (client, servers) == ("aioproducer", at)
    assert topics.deleted == [topic]
    expected = Run(sent=3, figures={"records_s": 1.0}) if believed else None
    assert played.runs == {"aioproducer": [expected]}
    assert bool(played.failures) == (not believed)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (("closed",), {"warm-up-bulk", "warm-up-lone", "warm-up-closed"}),
        (
            ("closed", "transactions"),
            {"warm-up-bulk", "warm-up-lone", "warm-up-closed", "warm-up-transactions"},
        ),
        (("scale-topics-all",), set()),
        (("steady", "slow-broker", "zones", "memory-full"), set()),
    ],
)
def test_broker_is_warmed_up_with_the_requested_rows(
    monkeypatch: pytest.MonkeyPatch, rows: tuple[str, ...], expected: set[str]
) -> None:
    monkeypatch.setattr(session, "answer_of", lambda *_: '{"sent": 3, "figures": {}, "series": []}')
    topics = FakeTopics()
    what = asked(rows=rows)
    steps = [step for planned in steps_of(what, WINNERS).values() for step in planned]
    Session(what, cast("Topics", topics), session.NO_TLS).warm_up(steps)
    assert set(topics.deleted) == expected
