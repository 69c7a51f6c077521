"""A standalone Spark cluster: a driver and two executors in separate processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer.audit import RUN_HEADER
from examples.spark.stream import make_events
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import await_records, read_with_librdkafka
from tests.spark.audited import audited
from tests.spark.cluster import SETTINGS, standalone_cluster
from tests.spark.conftest import NewTopic
from tests.spark.gate import Gate
from tests.spark.large_rows_job import LARGEST_BYTES, ROW_BYTES, ROWS
from tests.spark.program import ROOT, driver

EVENTS = 80_000
JOB = ROOT / "tests/spark/cluster_job.py"
GATED_BATCH = ROOT / "tests/spark/gated_batch.py"
LACKING = ROOT / "tests/spark/lacking_job.py"
LARGE_ROWS = ROOT / "tests/spark/large_rows_job.py"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster's master."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone") / "cluster") as url:
        yield url


@pytest.mark.timeout(300)  # seven JVMs on possibly two cores
def test_batch_stream_and_audit_run_on_both_executors(
    kafka: ApacheKafka, topic: str, master: str, tmp_path: Path
) -> None:
    events = tmp_path / "events"
    make_events(events, files=2, events_per_file=EVENTS // 2)
    given = (kafka.bootstrap_servers, topic, events, tmp_path / "checkpoint", EVENTS)
    with driver(JOB, *given, directory=tmp_path / "driver", master=master, more=SETTINGS) as job:
        job.wait(240)
        told = job.log.wait_for('{"run": "stream"')

    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    reports = [audited(records, run, expect=EVENTS) for run in ("batch", "stream")]
    for report in reports:
        assert (report.lost, report.duplicated, report.unexpected) == (0, 0, 0), str(report)
    assert reports[1].to_dict() == json.loads(told), (
        "the audit on the cluster counts as the one in this process"
    )
    headers = [dict(each.headers) for each in records]
    senders = {(each[RUN_HEADER], each["executor"]) for each in headers}
    assert senders == {(run, executor) for run in (b"batch", b"stream") for executor in (b"0", b"1")}


@pytest.mark.timeout(300)
def test_speculative_attempt_loses_nothing(
    kafka: ApacheKafka, topic: str, master: str, tmp_path: Path, gate: Gate
) -> None:
    given = (kafka.bootstrap_servers, topic, EVENTS, "speculated", gate.path, EVENTS // 2 - 5_000)
    settings = SETTINGS | {"spark.speculation": "true", "spark.speculation.quantile": "0.5"}
    with driver(GATED_BATCH, *given, directory=tmp_path / "driver", master=master, more=settings) as job:
        gate.wait_until_reached(attempt=0)
        gate.wait_until_reached(attempt=1)
        await_records(
            kafka.bootstrap_servers,
            topic,
            lambda records: audited(records, "speculated", EVENTS).duplicated > 0,
        )
        gate.open()
        job.wait()
    report = audited(read_with_librdkafka(kafka.bootstrap_servers, topic), "speculated", expect=EVENTS)
    assert (report.lost, report.unexpected) == (0, 0), str(report)
    assert 0 < report.duplicated <= EVENTS // 2, "of the first task's events, and no others"


@pytest.mark.parametrize(
    ("package", "sentence"),
    [
        ("aioproducer", "PySparkRuntimeError: executor on "),
        ("cramjam", "PySparkValueError: executor on "),
    ],
)
def test_executors_without_a_package_are_named(
    kafka: ApacheKafka, topic: str, master: str, tmp_path: Path, package: str, sentence: str
) -> None:
    (tmp_path / "hidden").mkdir()
    hide = f"import sys; sys.modules[{package!r}] = None\n"
    (tmp_path / "hidden" / "sitecustomize.py").write_text(hide, encoding="utf-8")
    settings = SETTINGS | {
        "spark.executorEnv.PYTHONPATH": str(tmp_path / "hidden"),
        "spark.task.maxFailures": "1",
    }
    given = (kafka.bootstrap_servers, topic)
    with driver(LACKING, *given, directory=tmp_path / "driver", master=master, more=settings) as job:
        job.wait()
        line = job.log.wait_for("REFUSED ")
    assert sentence in line
    assert package in line
    assert "all executors" in line


def test_large_rows_fit_into_the_memory_limit_of_python(
    kafka: ApacheKafka, new_topic: NewTopic, master: str, tmp_path: Path
) -> None:
    topics = [new_topic(max_message_bytes=str(LARGEST_BYTES + 1024 * 1024)) for _ in range(2)]
    settings = SETTINGS | {
        "spark.executor.pyspark.memory": "500m",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
        "spark.task.maxFailures": "1",
    }
    with driver(
        LARGE_ROWS,
        kafka.bootstrap_servers,
        *topics,
        directory=tmp_path / "driver",
        master=master,
        more=settings,
    ) as job:
        job.wait()
    for topic in topics:
        records = read_with_librdkafka(kafka.bootstrap_servers, topic)
        sizes = {int(each.key or b""): len(each.value or b"") for each in records}
        assert len(records) == ROWS
        assert sizes == dict.fromkeys(range(ROWS), ROW_BYTES) | {7: LARGEST_BYTES}
