"""Tasks that write in a transaction, and what the driver makes of it, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from aioproducer.arrow import SendTableError
from aioproducer.arrow.arrow_schema import Columns
from aioproducer.errors import ConfigError
from aioproducer.spark import committing, task as task_module, transactional_task
from aioproducer.spark.committing import abort, commit, planned
from aioproducer.spark.decision_records import TOPIC
from aioproducer.spark.delivery import BatchId, DeliveryError, ExactlyOnce, Guarantee
from aioproducer.spark.messages import Prepared, Skipped, TaskReport
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.task import Task
from aioproducer.spark.worker import Worker
from aioproducer.testing import ThreadedCluster

pytestmark = pytest.mark.kafka_cluster(topics={"orders": 1})
QUERY = {"sql.streaming.queryId": "8d9f", "streaming.sql.batchId": "0", "spark.jobGroup.id": "run-1"}


class Here:
    """Where tasks and commits run: each in a process of its own, as far as that goes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.properties = dict(QUERY)
        self.partition = 0
        self._workers: list[Worker] = []
        self._patch = monkeypatch
        context = SimpleNamespace(partitionId=lambda: self.partition, getLocalProperty=self.properties.get)
        for module in (task_module, transactional_task):
            monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
        self.new_process()

    def new_process(self) -> None:
        host = Worker()
        self._workers.append(host)
        for module in (task_module, committing):
            self._patch.setattr(module, "worker", lambda: host)

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


def test_nothing_is_seen_before_the_commit_and_all_after(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task = single(kafka_cluster)
    report = task.run(rows(1, 2, 3))
    assert isinstance(report, Prepared)
    assert (report.query_id, report.rows, report.bytes) == ("8d9f", 3, 3)
    assert report.batch == BatchId("query 8d9f", 0, "run-1")
    assert seen(kafka_cluster) == []
    here.new_process()
    commit(task, [report])
    assert seen(kafka_cluster) == [1, 2, 3]


def test_a_replay_of_what_is_committed_is_skipped_and_read_to_its_end(
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


def test_the_next_batch_is_written(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task = single(kafka_cluster)
    for number in range(3):
        here.properties["streaming.sql.batchId"] = str(number)
        commit(task, [task.run(rows(number))])
    assert seen(kafka_cluster) == [0, 1, 2]
    assert len(kafka_cluster.records(TOPIC, 0)) == 3


def test_an_attempt_that_was_not_committed_gives_way_to_the_next(
    kafka_cluster: ThreadedCluster, here: Here
) -> None:
    task = single(kafka_cluster)
    first = task.run(rows(1))
    here.new_process()
    second = task.run(rows(1))
    with pytest.raises(DeliveryError, match="was not seen to be committed"):
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


def test_an_abort_lets_readers_go_on(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task, other = single(kafka_cluster), single(kafka_cluster, "other")
    report = task.run(rows(1))
    commit(other, [other.run(rows(2))])
    assert seen(kafka_cluster) == [], "behind the one that is open"
    here.new_process()
    abort(task, [report, None])
    assert seen(kafka_cluster) == [2]


def test_an_abort_after_the_commit_says_so_and_does_nothing(
    kafka_cluster: ThreadedCluster, here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    task = single(kafka_cluster)
    report = task.run(rows(1))
    commit(task, [report])
    abort(task, [report])
    assert seen(kafka_cluster) == [1]
    assert any(line.startswith("spark.transaction.not_aborted error=") for line in caplog.messages)


def test_no_rows_are_no_transaction(kafka_cluster: ThreadedCluster, here: Here) -> None:
    task = single(kafka_cluster)
    report = task.run(rows())
    assert report == TaskReport("8d9f", 0, 0, number="0")
    commit(task, [report])
    assert kafka_cluster.records("orders", 0) == []


def test_a_second_task_is_refused(kafka_cluster: ThreadedCluster, here: Here) -> None:
    here.partition = 1
    with pytest.raises(ConfigError, match=r"write coalesce\(1\)"):
        single(kafka_cluster).run(rows(1))


def test_a_job_is_written_once_whenever_it_runs(kafka_cluster: ThreadedCluster, here: Here) -> None:
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
