from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from benchmarks.clients import CLIENTS
from benchmarks.figures import Run
from benchmarks.parent import session
from benchmarks.parent.session import Asked, Session, empty_results, steps_of
from benchmarks.parent.topics import Topics, check_count
from benchmarks.scale.shapes import SIZES
from benchmarks.settings import Work
from benchmarks.table import ROWS


def asked(**changes: Any) -> Asked:
    given: dict[str, Any] = {
        "rows": tuple(ROWS),
        "clients": CLIENTS,
        "rounds": 3,
        "seconds": 2.0,
        "defaults_rounds": 1,
        "scale_sizes": SIZES,
    }
    return Asked(**(given | changes))


def test_a_row_is_run_as_it_is_declared() -> None:
    row = ROWS["bulk-keys"]
    settings = asked().settings_of(row, own_defaults=False)
    assert (settings.seconds, settings.keys, settings.own_defaults) == (2.0, True, False)
    assert asked().settings_of(ROWS["lag"], own_defaults=False).seconds == 2.0 * ROWS["lag"].lasts
    assert asked().settings_of(row, own_defaults=True).own_defaults


def test_what_is_asked_for_changes_every_row() -> None:
    settings = asked(value_bytes=500, compression="lz4", uvloop=True).settings_of(
        ROWS["bulk"], own_defaults=False
    )
    assert (settings.value_bytes, settings.compression, settings.json_like) == (500, "lz4", True)
    assert settings.uvloop
    assert asked().settings_of(ROWS["closed-uvloop"], own_defaults=False).uvloop


def test_at_their_own_defaults_only_what_those_matter_to_is_run_again() -> None:
    steps, again = steps_of(asked())
    assert {step.row.work for step in steps} == set(Work)
    assert {step.row.work for step in again} == set(Work) - {Work.COLD, Work.SCALE, Work.MEMORY, Work.LAG}
    assert {step.round_number for step in again} == {0}
    assert steps_of(asked(defaults_rounds=0))[1] == []


def test_results_name_what_took_part_and_not_whose_cluster_it_was() -> None:
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
def test_a_time_is_believed_only_if_every_record_arrived(
    monkeypatch: pytest.MonkeyPatch, sent: int, believed: bool, row: str, at: str
) -> None:
    calls: list[list[str]] = []

    def answer_of(module: str, arguments: list[str]) -> str:
        calls.append(arguments)
        return f'{{"sent": {sent}, "figures": {{"records_s": 1.0}}, "series": []}}'

    monkeypatch.setattr(session, "answer_of", answer_of)
    what = asked(rows=(row,), clients=("aioproducer",), rounds=1, defaults_rounds=0)
    topics = FakeTopics()
    steps, _ = steps_of(what)
    tls = session.TlsListener("there:2", "ca.pem")
    played = Session(what, cast("Topics", topics), tls).play(steps, lambda *_: None, own_defaults=False)[row]
    [[client, servers, topic, _]] = calls
    assert (client, servers) == ("aioproducer", at)
    assert topics.deleted == [topic]
    expected = Run(sent=3, figures={"records_s": 1.0}) if believed else None
    assert played.runs == {"aioproducer": [expected]}
    assert bool(played.failures) == (not believed)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (("closed",), {"warm-up-bulk", "warm-up-lone"}),
        (("closed", "transactions"), {"warm-up-bulk", "warm-up-lone", "warm-up-transactions"}),
        (("scale-topics-all",), set()),
    ],
)
def test_the_broker_is_warmed_up_with_what_will_be_asked_of_it(
    monkeypatch: pytest.MonkeyPatch, rows: tuple[str, ...], expected: set[str]
) -> None:
    monkeypatch.setattr(session, "answer_of", lambda *_: '{"sent": 3, "figures": {}, "series": []}')
    topics = FakeTopics()
    what = asked(rows=rows)
    Session(what, cast("Topics", topics), session.NO_TLS).warm_up(steps_of(what)[0])
    assert set(topics.deleted) == expected
