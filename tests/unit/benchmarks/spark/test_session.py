from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from benchmarks.figures import Run
from benchmarks.parent.rounds import Step
from benchmarks.parent.topics import MissingRecordsError, Topics, check_count
from benchmarks.settings import PARTITIONS
from benchmarks.spark import jobs, session
from benchmarks.spark.engine import Engine
from benchmarks.spark.session import Asked, Session
from benchmarks.spark.table import BATCH, STREAM


class FakeTopics:
    """Topics that hold three records each."""

    servers = "a:9092"

    @contextmanager
    def fresh(self, name: str, partitions: int) -> Iterator[str]:
        assert partitions == PARTITIONS
        yield name

    def check(self, topic: str, partitions: int, sent: int) -> None:
        check_count(sent, 3)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[jobs.Target]:
    """Where jobs would have written to; each run is faster by a row per second than the one before."""
    targets: list[jobs.Target] = []

    def job(target: jobs.Target) -> Run:
        targets.append(target)
        return Run(sent=3, figures={"records_s": len(targets)})

    monkeypatch.setattr(jobs, "cached_rows", lambda *_: None)
    monkeypatch.setattr(jobs, "batch", lambda _engine, _rows, target: job(target))
    monkeypatch.setattr(jobs, "micro_batches", lambda _spark, _count, target, _directory: job(target))
    monkeypatch.setattr(Engine, "running", lambda _: nullcontext(cast("Any", Engine.__new__(Engine))))
    monkeypatch.setattr(Engine, "spark", None, raising=False)
    monkeypatch.setattr(session, "Topics", lambda _: FakeTopics())
    return targets


def test_sinks_take_turns_each_with_a_topic_of_its_own(measured: list[jobs.Target]) -> None:
    session.play(Asked(rows=3, rounds=1), "a:9092", lambda *_: None)
    assert [target.sink for target in measured] == ["aioproducer", "kafka", "kafka", "aioproducer"] * 2
    assert len({target.topic for target in measured}) == len(measured)


def test_the_first_round_is_not_counted(measured: list[jobs.Target]) -> None:
    rows = session.play(Asked(rows=3, rounds=2), "a:9092", lambda *_: None)
    rates = [run and run.figures["records_s"] for run in rows["batch"].runs["aioproducer"]]
    assert rates == [4, 5]


@pytest.mark.parametrize(
    "error", [Py4JError("it\n  broke"), PySparkException("it\n  broke")], ids=["java", "python"]
)
def test_a_job_that_fails_says_so_in_a_line(
    measured: list[jobs.Target], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> Run:
        raise error

    monkeypatch.setattr(jobs, "batch", fail)
    rows = session.play(Asked(rows=3, rounds=1), "a:9092", lambda *_: None)
    assert rows["batch"].failures["kafka"] == ["round 1: it broke", "round 2: it broke"]
    assert rows["batch"].runs["kafka"] == [None]
    assert rows["micro-batch"].failures == {}


@pytest.mark.parametrize("row", [BATCH, STREAM], ids=lambda row: row.name)
def test_no_time_is_believed_before_the_rows_were_counted(
    measured: list[jobs.Target], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, row: Any
) -> None:
    def lossy(*_: object) -> Run:
        return Run(sent=4)

    monkeypatch.setattr(jobs, "batch", lossy)
    monkeypatch.setattr(jobs, "micro_batches", lossy)
    engine = Engine.__new__(Engine)
    those = Session(Asked(rows=3, rounds=1), engine, cast("Topics", FakeTopics()), tmp_path)
    with pytest.raises(MissingRecordsError):
        those.run(Step(row, "kafka", 0, 1.0))
