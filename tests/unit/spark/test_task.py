"""One task, without Spark: rows in, acknowledged records and a report out."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage

from aioproducer.arrow import SendTableError
from aioproducer.arrow.arrow_columns import Columns
from aioproducer.errors import ConfigError
from aioproducer.spark import committing, task as module
from aioproducer.spark.committing import abort, commit, planned
from aioproducer.spark.decision_records import TOPIC
from aioproducer.spark.delivery import BatchId, DeliveryError, ExactlyOnce, Guarantee
from aioproducer.spark.messages import LISTED, Prepared, Skipped, TaskReport
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.task import Task
from aioproducer.spark.worker import Worker
from aioproducer.testing import ThreadedCluster

pytestmark = pytest.mark.kafka_cluster(topics={"orders": 1})
PARTITIONS = 1_000


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    context = SimpleNamespace(
        partitionId=lambda: 7,
        getLocalProperty={"sql.streaming.queryId": "8d9f"}.get,
    )
    monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
    host = Worker()
    monkeypatch.setattr(module, "worker", lambda: host)
    yield
    host.close()


def task(cluster: ThreadedCluster, **options: str) -> Task:
    names = {name.replace("_", "."): value for name, value in options.items()}
    items = tuple(sorted({"bootstrap.servers": cluster.bootstrap_servers, **names}.items()))
    return Task(ProducerSettings(items), Columns(value="value", topic="orders"))


def rows_of(report: WriterCommitMessage) -> int:
    assert isinstance(report, TaskReport)
    return report.rows


def batches(*sizes: int) -> Iterator[pa.RecordBatch]:
    number = 0
    for size in sizes:
        values = [b"%06d" % each for each in range(number, number + size)]
        yield pa.record_batch({"value": pa.array(values, pa.binary())})
        number += size


def test_task_reports_after_all_rows_are_acknowledged(kafka_cluster: ThreadedCluster) -> None:
    report = task(kafka_cluster).run(batches(10_000, 1, 0, 25_000, 10, 10, 10, 10, 10))
    assert isinstance(report, TaskReport)
    assert (report.query_id, report.rows, report.bytes) == ("8d9f", 35_051, 35_051 * 6)
    assert (report.partitions, report.offsets) == (1, {"orders": array("q", [0, 0, 35_050])})
    assert report.traffic.sent_bytes > report.bytes
    values = [int(each.value or b"") for each in kafka_cluster.records("orders", 0)]
    assert values == list(range(35_051))


def test_task_without_rows_returns_a_report(kafka_cluster: ThreadedCluster) -> None:
    assert task(kafka_cluster).run(batches()) == TaskReport("8d9f", rows=0, bytes=0)


@pytest.mark.kafka_cluster(topics={"wide": PARTITIONS})
def test_report_lists_offsets_up_to_a_bound(kafka_cluster: ThreadedCluster) -> None:
    """Spark's driver has room for so many bytes of results (spark.driver.maxResultSize), of all tasks together."""
    wide = replace(task(kafka_cluster), columns=Columns(value="value", topic="wide", partition="partition"))

    def report_for(partitions: int) -> TaskReport:
        rows = {
            "value": pa.array([b"v"] * PARTITIONS),
            "partition": pa.array([row % partitions for row in range(PARTITIONS)], pa.int32()),
        }
        report = wide.run([pa.record_batch(rows)])
        assert isinstance(report, TaskReport)
        assert report.partitions == partitions
        return report

    assert len(pickle.dumps(report_for(PARTITIONS))) < 500
    assert report_for(PARTITIONS).offsets == report_for(LISTED + 1).offsets == {}
    assert len(report_for(LISTED).offsets["wide"]) == 3 * LISTED
    assert len(pickle.dumps(report_for(LISTED))) < 500 + 24 * LISTED


def test_traffic_of_earlier_tasks_does_not_count(kafka_cluster: ThreadedCluster) -> None:
    """A process keeps its producer from task to task."""
    first, second = (task(kafka_cluster, compression_type="gzip").run(batches(rows)) for rows in (9_000, 9))
    assert isinstance(first, TaskReport)
    assert isinstance(second, TaskReport)
    assert first.traffic.plain_bytes > 9_000 * 6 > second.traffic.plain_bytes > 0
    assert first.traffic.sent_bytes < first.traffic.plain_bytes / 2
    assert first.traffic.retries == second.traffic.retries == 0


def test_failed_row_fails_the_task_and_ends_reading(kafka_cluster: ThreadedCluster) -> None:
    read = 0

    def with_a_large_one() -> Iterator[pa.RecordBatch]:
        nonlocal read
        yield from batches(20)
        yield pa.record_batch({"value": pa.array([b"x", b"x" * 2_000])})
        for batch in batches(*[20] * 100_000):
            read += 1
            yield batch

    with pytest.raises(SendTableError, match=r"row 21 \(topic 'orders'\): RecordTooLarge") as failure:
        task(kafka_cluster, max_request_size="1000").run(with_a_large_one())
    assert failure.value.row == 21
    assert failure.value.__notes__ == ["rows are counted from 0 in partition 7 of the DataFrame"]
    assert read < 100_000
    assert len(kafka_cluster.records("orders", 0)) >= 20


@pytest.mark.kafka_cluster(topics={"orders": 1, "dead": 1})
def test_oversized_row_becomes_a_dead_letter(kafka_cluster: ThreadedCluster) -> None:
    rows = pa.record_batch({"value": pa.array([b"x", b"x" * 2_000, b"y"])})
    report = replace(task(kafka_cluster, max_request_size="1500"), dead_letters="dead").run([rows])
    assert isinstance(report, TaskReport)
    assert (report.rows, report.bytes) == (2, 2)
    assert report.bad is not None
    assert (report.bad.rows, report.bad.topic) == (1, "dead")
    assert [each.value for each in kafka_cluster.records("orders", 0)] == [b"x", b"y"]
    assert [each.value for each in kafka_cluster.records("dead", 0)] == [b"x" * 1_024]


def test_continuous_query_is_refused(kafka_cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(getLocalProperty={"__is_continuous_processing": "true"}.get)
    monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
    with pytest.raises(ConfigError, match=r"trigger\(continuous=…\) is not supported"):
        task(kafka_cluster).run(batches(10))
    assert kafka_cluster.records("orders", 0) == []


def test_task_raises_the_errors_of_reading(kafka_cluster: ThreadedCluster) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(10)
        raise EOFError("the JVM has gone")

    with pytest.raises(EOFError, match="the JVM has gone"):
        task(kafka_cluster).run(broken())
    assert rows_of(task(kafka_cluster).run(batches(10))) == 10


@pytest.mark.kafka_cluster(topics={"orders": 1}, security_protocol="SASL_SSL", users={"alice": "hunter2"})
def test_task_logs_in_over_tls(kafka_cluster: ThreadedCluster) -> None:
    options = {name: str(value) for name, value in kafka_cluster.client_options.items()}
    sent = pickle.loads(pickle.dumps(task(kafka_cluster, **options)))
    assert rows_of(sent.run(batches(10))) == 10
    assert "hunter2" not in repr(sent)


def token_of_the_job() -> str:
    return "t0ken"


@pytest.mark.kafka_cluster(
    topics={"orders": 1}, security_protocol="SASL_PLAINTEXT", tokens={"t0ken": "alice"}
)
def test_task_calls_the_token_provider(kafka_cluster: ThreadedCluster) -> None:
    sent = task(
        kafka_cluster,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=f"{__name__}:token_of_the_job",
    )
    assert pickle.loads(pickle.dumps(sent)).run(batches(10)).rows == 10


QUERY = {"sql.streaming.queryId": "8d9f", "streaming.sql.batchId": "0", "spark.jobGroup.id": "run-1"}


class Here:
    """Environment of tasks and commits, which simulates a new process for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.properties = dict(QUERY)
        self.partition = 0
        self._workers: list[Worker] = []
        self._patch = monkeypatch
        context = SimpleNamespace(partitionId=lambda: self.partition, getLocalProperty=self.properties.get)
        monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
        self.new_process()

    def new_process(self) -> None:
        host = Worker()
        self._workers.append(host)
        for each in module, committing:
            self._patch.setattr(each, "worker", lambda: host)

    def close(self) -> None:
        for each in self._workers:
            each.close()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    here = Here(monkeypatch)
    yield here
    here.close()


def single(cluster: ThreadedCluster, prefix: str = "p", job: str | None = None) -> Task:
    settings = ProducerSettings((("bootstrap.servers", cluster.bootstrap_servers), ("max.block.ms", "2000")))
    return Task(settings, Columns(value="value", topic="orders"), ExactlyOnce(Guarantee.SINGLE, prefix, job))


def rows(*values: int) -> list[pa.RecordBatch]:
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    return [empty, pa.record_batch({"value": pa.array([b"%d" % each for each in values], pa.binary())})]


def seen(cluster: ThreadedCluster) -> list[int]:
    committed = cluster.records("orders", 0, isolation_level="read_committed")
    return [int(each.value or b"") for each in committed]


def test_rows_are_visible_after_the_commit(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task = single(kafka_cluster)
    report = task.run(rows(1, 2, 3))
    assert isinstance(report, Prepared)
    assert (report.query_id, report.rows, report.bytes) == ("8d9f", 3, 3)
    assert report.batch == BatchId("query 8d9f", 0, "run-1")
    assert seen(kafka_cluster) == []
    here.new_process()
    commit(task, [report])
    assert seen(kafka_cluster) == [1, 2, 3]


def test_replay_of_committed_batch_is_skipped_and_read(
    kafka_cluster: ThreadedCluster, here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    task = single(kafka_cluster)
    commit(task, [task.run(rows(1))])
    here.properties["spark.jobGroup.id"] = "run-2"
    here.new_process()
    source = iter(rows(1))
    report = task.run(source)
    assert report == Skipped(BatchId("query 8d9f", 0, "run-2"))
    assert next(source, None) is None
    commit(task, [report])
    assert seen(kafka_cluster) == [1]
    assert 'spark.batch.skipped batch=0 of="query 8d9f"' in caplog.messages


def test_next_batch_is_written(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task = single(kafka_cluster)
    for number in range(3):
        here.properties["streaming.sql.batchId"] = str(number)
        commit(task, [task.run(rows(number))])
    assert seen(kafka_cluster) == [0, 1, 2]
    assert len(kafka_cluster.records(TOPIC, 0)) == 3


def test_uncommitted_attempt_is_replaced_by_the_next(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task = single(kafka_cluster)
    first = task.run(rows(1))
    here.new_process()
    second = task.run(rows(1))
    with pytest.raises(DeliveryError, match="has an unknown outcome"):
        commit(task, [first])
    assert seen(kafka_cluster) == []
    commit(task, [second])
    assert seen(kafka_cluster) == [1]


def test_rows_that_fail_are_aborted(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task = single(kafka_cluster)
    large = pa.record_batch({"value": pa.array([b"1", b"x" * 2_000_000], pa.binary())})
    with pytest.raises(SendTableError, match="RecordTooLarge") as failure:
        task.run([large])
    assert failure.value.__notes__ == ["rows are counted from 0 in partition 0 of the DataFrame"]
    commit(task, [task.run(rows(1))])
    assert seen(kafka_cluster) == [1]


@pytest.mark.kafka_cluster(topics={"orders": 1, "dead": 1})
def test_dead_letters_are_in_the_same_transaction(kafka_cluster: ThreadedCluster, here: Here) -> None:
    rows = pa.record_batch({"value": pa.array([b"1"]), "partition": pa.array([9], pa.int32())})
    columns = Columns(value="value", partition="partition", topic="orders")
    task = replace(single(kafka_cluster), columns=columns, dead_letters="dead")

    def letters() -> list[bytes | None]:
        return [each.value for each in kafka_cluster.records("dead", 0, isolation_level="read_committed")]

    report = task.run(iter([rows]))
    assert isinstance(report, Prepared)
    assert report.bad is not None
    assert letters() == []
    commit(task, [report])
    assert letters() == [b"1"]
    assert isinstance(task.run(iter([rows])), Skipped)


def test_abort_unblocks_readers(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task, other = single(kafka_cluster), single(kafka_cluster, "other")
    report = task.run(rows(1))
    commit(other, [other.run(rows(2))])
    assert seen(kafka_cluster) == [], "behind the one that is open"
    here.new_process()
    abort(task, [report, None])
    assert seen(kafka_cluster) == [2]


def test_abort_after_the_commit_is_logged_and_ignored(
    kafka_cluster: ThreadedCluster, here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    task = single(kafka_cluster)
    report = task.run(rows(1))
    commit(task, [report])
    abort(task, [report])
    assert seen(kafka_cluster) == [1]
    assert any(line.startswith("spark.transaction.not_aborted error=") for line in caplog.messages)


def test_batch_without_rows_begins_no_transaction(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task = single(kafka_cluster)
    report = task.run(rows())
    assert report == TaskReport("8d9f", 0, 0, number="0")
    commit(task, [report])
    assert kafka_cluster.records("orders", 0) == []


def test_second_task_is_refused(kafka_cluster: ThreadedCluster, here: Here) -> None:
    here.partition = 1
    with pytest.raises(ConfigError, match=r"use coalesce\(1\)"):
        single(kafka_cluster).run(rows(1))


def test_job_is_written_once(kafka_cluster: ThreadedCluster, here: Here) -> None:
    here.properties.clear()
    task = planned(single(kafka_cluster, job="nightly-7"))
    for _ in range(2):
        commit(task, [task.run(rows(1), replays=False)])
    other = single(kafka_cluster, job="nightly-8")
    commit(other, [other.run(rows(2), replays=False)])
    assert seen(kafka_cluster) == [1, 2]
    with pytest.raises(ConfigError, match="needs the option jobId"):
        single(kafka_cluster).run(rows(1), replays=False)


def test_two_writes_of_a_batch_under_one_prefix_are_refused(
    kafka_cluster: ThreadedCluster, here: Here
) -> None:
    """As two in one foreachBatch: the second would look like a replay of the first, and be skipped."""
    task = single(kafka_cluster)
    commit(task, [task.run(rows(1), replays=False)])
    with pytest.raises(DeliveryError, match="written a second time in one run"):
        task.run(rows(2), replays=False)


def test_two_transactions_in_one_batch_are_an_error(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task = single(kafka_cluster)
    report = task.run(rows(1))
    with pytest.raises(DeliveryError, match="has 2 transactions"):
        commit(task, [report, report])
