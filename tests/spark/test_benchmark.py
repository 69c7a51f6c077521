"""A short run of the benchmark on Spark that counts its rows. Its streams need Spark 4.1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, datasource

if not hasattr(datasource, "DataSourceStreamArrowWriter"):
    pytest.skip("stream writers for Arrow came with Spark 4.1", allow_module_level=True)

from benchmarks.parent.rounds import Step
from benchmarks.parent.topics import Topics
from benchmarks.row import Row
from benchmarks.spark import jobs, scale
from benchmarks.spark.engine import Engine
from benchmarks.spark.session import Asked, Session
from benchmarks.spark.table import (
    AT_LEAST_ONCE,
    BATCHES,
    LOG,
    ONE_TASK,
    OURS,
    SINGLE,
    SINKS,
    STREAM,
    TASKS_EACH,
)
from tests.kafka.apache.broker import ApacheKafka

ROWS = 20_000


@pytest.fixture
def session(
    spark: SparkSession, kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Session:
    monkeypatch.setattr(jobs, "WARM_UP_BATCHES", 1)
    monkeypatch.setattr(jobs, "MICRO_BATCH_ROWS", 1_000)
    return Session(Asked(rows=ROWS, rounds=1), Engine(spark), Topics(kafka.bootstrap_servers), tmp_path)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize(
    "row",
    [row for row in BATCHES if row.name in {"batch-values", "batch-one-partition", "tuned-batch-headers"}],
    ids=lambda row: row.name,
)
def test_batch_reports_its_rate_and_cpu(session: Session, row: Row, sink: str) -> None:
    measured = session.run(Step(row, sink, 0, 1.0))
    assert measured.sent == ROWS
    assert measured.figures["records_s"] > 0
    assert measured.figures["python_us"] < measured.figures["cpu_us"]
    assert measured.figures["python_us"] > 0 or sink == "kafka"


def test_rows_differ_in_the_options_of_both_sinks() -> None:
    options = {
        row.name: jobs.Target(OURS, "broker:9092", "orders", settings=row.settings).options for row in BATCHES
    }
    plain = {"kafka.bootstrap.servers": "broker:9092", "topic": "orders"}
    assert options["batch"] == options["batch-1k"] == plain
    assert options["batch-zstd"] == plain | {"kafka.compression.type": "zstd"}
    assert options["tuned-batch"] == plain | {"kafka.linger.ms": "20", "kafka.batch.size": "262144"}


@pytest.mark.parametrize("sink", STREAM.clients)
def test_micro_batches_of_one_row_report_their_duration(session: Session, sink: str) -> None:
    few = replace(STREAM, settings=replace(STREAM.settings, records=2))
    measured = session.run(Step(few, sink, 0, 1.0))
    assert measured.sent == 3
    assert 0 < measured.figures["sink_ms"] < measured.figures["p50_ms"]


@pytest.mark.parametrize(
    ("row", "guarantee"),
    [(ONE_TASK, AT_LEAST_ONCE), (ONE_TASK, SINGLE), (TASKS_EACH, AT_LEAST_ONCE), (TASKS_EACH, LOG)],
    ids=lambda value: value.name if isinstance(value, Row) else value,
)
def test_micro_batches_of_many_rows_report_exactly_once_costs(
    session: Session, row: Row, guarantee: str
) -> None:
    few = replace(row, settings=replace(row.settings, records=2))
    measured = session.run(Step(few, guarantee, 0, 1.0))
    assert measured.sent == 3_000
    assert 0 < measured.figures["sink_ms"] < measured.figures["p50_ms"]


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, LOG])
def test_job_of_many_tasks_reports_its_processes_and_markers(
    spark: SparkSession, kafka: ApacheKafka, guarantee: str
) -> None:
    """Python's processes keep their producers; in a transaction each task has one of its own, and leaves markers.

    Their connections are kept, too, but for two tasks at once in one process.
    """
    engine, servers = Engine(spark), kafka.bootstrap_servers
    first, second = (
        scale.job(engine, servers, tasks=8, partitions=2, rows=100, guarantee=guarantee) for _ in range(2)
    )
    assert first.processes >= 2
    assert first.rss_bytes > 0
    if guarantee == LOG:
        assert first.markers == second.markers == 16
    else:
        assert first.markers == second.markers == 0
    assert second.opened < 8
