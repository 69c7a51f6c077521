"""Any number of tasks, each with a transaction, and one decision: on the broker for tests, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from aioproducer.arrow.arrow_columns import Columns
from aioproducer.errors import TopicAuthorizationFailed, UnsupportedVersion
from aioproducer.spark import committing, task as task_module
from aioproducer.spark.committing import abort, commit, planned, run_name
from aioproducer.spark.decision_protocol import missing
from aioproducer.spark.decision_records import TOPIC, Decided
from aioproducer.spark.delivery import BatchId, BatchLost, DeliveryError, ExactlyOnce, Guarantee
from aioproducer.spark.kafka_port import KafkaPort
from aioproducer.spark.messages import Shared, Skipped, log_topic_unchecked
from aioproducer.spark.rate_limit import RateLimit
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.task import Task
from aioproducer.spark.worker import Worker
from aioproducer.spark.writer import BatchWriter, StreamWriter, dumps
from aioproducer.testing import ThreadedCluster

pytestmark = pytest.mark.kafka_cluster(topics={"orders": 2})
VERSIONS = [
    pytest.param(version, marks=pytest.mark.kafka_cluster(topics={"orders": 2}, transaction_version=version))
    for version in (1, 2)
]


class Here:
    """A driver and its tasks."""

    def __init__(self, cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.number: int | None = 0
        self.guarantee = Guarantee.LOG
        self.fails = False
        self.query_run = ""
        self.run = "run1"
        self.partition = 0
        self.attempt = 0
        self.host = Worker()
        context = SimpleNamespace(
            partitionId=lambda: self.partition,
            attemptNumber=lambda: self.attempt,
            getLocalProperty=self._property,
        )
        monkeypatch.setattr(task_module, "TaskContext", SimpleNamespace(get=lambda: context))
        for module in (task_module, committing):
            monkeypatch.setattr(module, "worker", lambda: self.host)
        monkeypatch.setattr(committing, "run_name", lambda: self.run)

    def _property(self, name: str) -> str | None:
        if self.number is None:
            return None
        told = {"sql.streaming.queryId": "8d9f", "streaming.sql.batchId": str(self.number)}
        return (told | {"spark.jobGroup.id": self.query_run}).get(name)

    def task(self, prefix: str = "p", job: str | None = None, **options: str) -> Task:
        """Return the tasks of a batch, planned."""
        items = {"bootstrap.servers": self.cluster.bootstrap_servers, "max.block.ms": "3000", **options}
        delivery = ExactlyOnce(self.guarantee, prefix, job, self.fails)
        columns = Columns(value="value", topic="orders")
        return planned(Task(ProducerSettings(tuple(sorted(items.items()))), columns, delivery))

    def restart(self, run: str) -> None:
        """Go on in another driver, with another run of the query."""
        self.host.close()
        self.host = Worker()
        self.run = self.query_run = run

    def write(self, task: Task, *values: int, partition: int = 0, attempt: int = 0) -> Shared:
        self.partition, self.attempt = partition, attempt
        report = task.run([pa.record_batch({"value": pa.array([b"%d" % each for each in values])})])
        assert isinstance(report, Shared)
        return report

    def seen(self) -> list[int]:
        return sorted(
            int(each.value or b"")
            for partition in range(2)
            for each in self.cluster.records("orders", partition, isolation_level="read_committed")
        )


@pytest.fixture
def here(kafka_cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    here = Here(kafka_cluster, monkeypatch)
    yield here
    here.host.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_batch_of_two_tasks_is_visible_after_the_decision(here: Here, version: int) -> None:
    for number in range(3):
        here.number = number
        task = here.task()
        reports = [here.write(task, 2 * number), here.write(task, 2 * number + 1, partition=1)]
        assert {each.share.version for each in reports} == {version}
        assert here.seen() == list(range(2 * number))
        commit(task, pickle.loads(pickle.dumps(reports)))
        assert here.seen() == list(range(2 * number + 2))
    assert here.task().planned is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_replay_with_other_partitions_is_skipped(here: Here, version: int) -> None:
    task = here.task()
    commit(task, [here.write(task, 1), here.write(task, 2, partition=1)])
    here.run = "run2"
    again = here.task()
    report = again.run([pa.record_batch({"value": pa.array([b"1", b"2"])})])
    assert report == Skipped(BatchId("query 8d9f", 0, ""))
    commit(again, [report, report])
    assert here.seen() == [1, 2]


@pytest.mark.parametrize("version", VERSIONS)
def test_next_driver_aborts_undecided_transactions(here: Here, version: int) -> None:
    task = here.task()
    first = [here.write(task, 1), here.write(task, 2, partition=1)]
    here.run = "run2"
    again = here.task()
    with pytest.raises(DeliveryError, match="is not decided, and none of its rows are visible"):
        commit(task, first)
    with pytest.raises(DeliveryError, match="another driver has taken over"):
        here.write(task, 3, partition=2)
    commit(again, [here.write(again, 1, 2)])
    assert here.seen() == [1, 2]


@pytest.mark.parametrize("version", VERSIONS)
def test_next_driver_completes_decided_batches(
    here: Here, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise InterruptedError

    task = here.task()
    reports = [here.write(task, 1), here.write(task, 2, partition=1)]
    with monkeypatch.context() as patch:
        patch.setattr(KafkaPort, "commit", die)
        with pytest.raises(InterruptedError):
            commit(task, reports)
    assert here.seen() == []
    here.run = "run2"
    again = here.task()
    assert here.seen() == [1, 2]
    assert again.planned is not None
    assert again.planned.decided == {"query 8d9f": Decided(0, Guarantee.LOG, "")}


def test_unused_attempt_does_not_block_readers(here: Here) -> None:
    task = here.task()
    here.write(task, 7, attempt=0)
    winner = here.write(task, 1, attempt=1)
    commit(task, [winner])
    assert here.seen() == [1]


def test_repeated_attempt_uses_another_transactional_id(here: Here) -> None:
    task = here.task()
    first, second = here.write(task, 1), here.write(task, 1)
    assert first.share.transactional_id == "p.t.run1.0.0"
    assert second.share.transactional_id == "p.t.run1.0.100"
    commit(task, [first])
    assert here.seen() == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_lost_batch_is_reported_again_after_a_restart(
    here: Here, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task is fenced between the decision and its commit, as by the coordinator after the transaction timeout."""
    task = here.task()
    reports = [here.write(task, 1), here.write(task, 2, partition=1)]
    ended = KafkaPort.commit

    async def too_late(self: KafkaPort, shares: tuple[object, ...]) -> object:
        await self.fence([reports[1].share.transactional_id])
        return await ended(self, shares)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(KafkaPort, "commit", too_late)
        with pytest.raises(BatchLost, match=r"part of it is lost.*p\.t\.run1\.1\.0"):
            commit(task, reports)
    assert here.seen() == [1]
    here.run = "run2"
    for _ in range(2):
        with pytest.raises(BatchLost, match="batch 0 of query 8d9f was decided"):
            here.task()


@pytest.mark.parametrize("version", VERSIONS)
def test_abort_unblocks_readers(here: Here, version: int) -> None:
    task = here.task()
    reports = [here.write(task, 1), here.write(task, 2, partition=1)]
    abort(task, [reports[0], None])
    with pytest.raises(DeliveryError):
        commit(task, reports)
    again = here.task()
    commit(again, [here.write(again, 1, 2)])
    assert here.seen() == [1, 2]


@pytest.mark.parametrize("version", VERSIONS)
def test_late_abort_has_no_effect(here: Here, version: int) -> None:
    task = here.task()
    reports = [here.write(task, 1)]
    commit(task, reports)
    abort(task, [*reports])
    assert here.seen() == [1]
    here.number = 1
    again = here.task()
    late = here.write(again, 2)
    abort(task, [*reports])
    commit(again, [late])
    assert here.seen() == [1, 2]


def test_batch_past_half_of_its_transaction_timeout_is_refused(here: Here) -> None:
    task = here.task(**{"transaction.timeout.ms": "60000"})
    report = here.write(task, 1)
    old = replace(report, share=report.share._replace(began_at_ms=report.share.began_at_ms - 31_000))
    with pytest.raises(
        DeliveryError, match=r"began 31 s ago, more than half of kafka\.transaction\.timeout\.ms"
    ):
        commit(task, [old])
    commit(task, [report])
    assert here.seen() == [1]


def test_slow_batch_is_logged_once(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        here.number = number
        task = here.task("slow", **{"transaction.timeout.ms": "60000"})
        report = here.write(task, number)
        age_ms = 16_000 if number else 0
        began_at_ms = report.share.began_at_ms - age_ms
        commit(task, [replace(report, share=report.share._replace(began_at_ms=began_at_ms))])
        assert sum("spark.batch.slow" in each for each in caplog.messages) == bool(number)
    assert 'spark.batch.slow batch=1 of="query 8d9f" seconds=16 fails_after=30' in caplog.text


@pytest.mark.parametrize("guarantee", [Guarantee.LOG, Guarantee.SINGLE])
def test_rate_too_low_for_the_transaction_is_refused(here: Here, guarantee: Guarantee) -> None:
    here.guarantee = guarantee
    limited = replace(here.task(**{"transaction.timeout.ms": "60000"}), limit=RateLimit(1, 4))
    seconds = 60 if guarantee is Guarantee.SINGLE else 30
    with pytest.raises(DeliveryError, match=f"^maxBytesPerSecond: .* take 80 s .* may last {seconds} s "):
        here.write(limited, *range(10, 20))
    assert here.seen() == []


def test_messages_of_different_plans_are_refused(here: Here) -> None:
    task = here.task()
    first = here.write(task, 1)
    again = here.task()
    with pytest.raises(DeliveryError, match="were not planned together"):
        commit(again, [here.write(again, 2, partition=1), first])


def test_writer_plans_once_when_it_is_pickled(here: Here) -> None:
    task = replace(here.task(), planned=None)
    for writer in (BatchWriter(task), StreamWriter(task)):
        first, second = (cloudpickle.loads(dumps(writer))._task for _ in range(2))
        assert first.planned is not None
        assert first == second
    assert BatchWriter(task)._task.planned is None


def test_run_name_is_that_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for directory in ("/tmp/blockmgr-1", "/tmp/blockmgr-1", "/tmp/blockmgr-2", "/tmp"):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", directory)
        run_name.cache_clear()
        names.append(run_name())
    run_name.cache_clear()
    assert names[0] == names[1]
    assert len(set(names)) == 3


GUARANTEES = [Guarantee.LOG, Guarantee.SINGLE]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_topic_whose_decisions_expire_is_refused(here: Here, guarantee: Guarantee) -> None:
    here.guarantee = guarantee
    here.cluster.create_topic(TOPIC)
    with pytest.raises(
        DeliveryError, match=r"retention\.ms=604800000.*--alter --add-config cleanup\.policy=compact"
    ):
        here.task()


def test_topic_that_may_not_be_described_is_one_warning(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    log_topic_unchecked.cache_clear()
    here.cluster.on("describe_configs", times=None).answer(TopicAuthorizationFailed)
    for number in (0, 1):
        here.number = number
        task = here.task()
        commit(task, [here.write(task, number)])
    assert here.seen() == [0, 1]
    assert sum("spark.decision_topic.unchecked" in each for each in caplog.messages) == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("before", ["a batch", "planning"])
def test_recreated_topic_is_refused_until_confirmed(here: Here, guarantee: Guarantee, before: str) -> None:
    here.guarantee = guarantee
    task = here.task()
    if before == "a batch" or guarantee is Guarantee.SINGLE:
        commit(task, [task.run([pa.record_batch({"value": pa.array([b"1"])})])])
    here.cluster.delete_topic(TOPIC)
    here.restart("run2")
    for _ in range(2):
        with pytest.raises(DeliveryError, match=r"deleted or recreated.*spark-recover p --confirm"):
            here.task()
    here.task("another")
    here.host.run_with_kafka(
        task.settings, "p", lambda kafka: missing(kafka, ExactlyOnce(Guarantee.LOG, "p", None), confirm=True)
    )
    assert here.task() is not None


def test_single_task_needs_no_describe_transactions(here: Here) -> None:
    """Brokers before 3.0 do not have the request."""
    here.guarantee = Guarantee.SINGLE
    here.cluster.on("describe_transactions", times=None).answer(UnsupportedVersion)
    for number in range(2):
        here.number = number
        task = here.task()
        commit(task, [task.run([pa.record_batch({"value": pa.array([b"%d" % number])})])])
    assert here.seen() == [0, 1]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_prefix_without_a_decision_is_planned_again(here: Here, guarantee: Guarantee) -> None:
    """Drivers that die before their first decision leave ids behind, and no lost log."""
    here.guarantee = guarantee
    for number in range(3):
        here.restart(f"run{number}")
        here.task().run([pa.record_batch({"value": pa.array([b"1"])})])
    task = here.task()
    commit(task, [task.run([pa.record_batch({"value": pa.array([b"1"])})])])
    assert here.seen() == [1]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_job_is_not_committed_on_a_topic_recreated_meanwhile(here: Here, guarantee: Guarantee) -> None:
    here.guarantee, here.number = guarantee, None
    rows = [pa.record_batch({"value": pa.array([b"1"])})]
    first = here.task(job="first")
    commit(first, [first.run(rows, replays=False)])
    second = here.task(job="second")
    report = second.run(rows, replays=False)
    here.cluster.delete_topic(TOPIC)
    here.cluster.create_topic(TOPIC, 1, compacted=True)
    here.restart("run2")  # Spark may commit in another process
    with pytest.raises(DeliveryError, match="deleted or recreated"):
        commit(second, [report])
    abort(second, [report])
    assert here.seen() == [1]
    with pytest.raises(DeliveryError, match="deleted or recreated"):
        here.task(job="first")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_removed_records_are_refused_until_confirmed(
    here: Here, guarantee: Guarantee, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.guarantee = guarantee

    async def removed(_: KafkaPort) -> int:
        return 7

    commit(task := here.task(), [task.run([pa.record_batch({"value": pa.array([b"1"])})])])
    monkeypatch.setattr(KafkaPort, "removed", removed)
    for prefix in ("p", "new"):
        delivery = ExactlyOnce(Guarantee.LOG, prefix, None)
        with pytest.raises(
            DeliveryError, match=rf"before offset 7 were removed.*spark-recover {prefix} --confirm"
        ):
            here.task(prefix)
        confirmed = partial(missing, delivery=delivery, confirm=True)
        here.host.run_with_kafka(task.settings, prefix, confirmed)
        assert here.task(prefix) is not None


def test_batch_that_another_prefix_has_committed_is_refused(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    here.query_run = "run1"
    for number in (0, 1):
        here.number = number
        task = here.task()
        commit(task, [here.write(task, number)], streams=True)
    here.restart("run2")
    task = here.task("q")
    report = here.write(task, 1)
    with pytest.raises(DeliveryError, match="is committed under transactionalIdPrefix 'p', and under 'q' it"):
        commit(task, [report], streams=True)
    abort(task, [report])
    assert here.seen() == [0, 1]
    here.number = 2
    for prefix, value in (
        ("q", 2),
        ("q", 3),
        ("p", 4),
    ):  # after a clean stop prefixes may change, and change back
        here.restart(f"run of {value}")
        here.number = value
        task = here.task(prefix)
        commit(task, [here.write(task, value)], streams=True)
    assert here.seen() == [0, 1, 2, 3, 4]
    assert not any("may_be_doubled" in each for each in caplog.messages)


def test_two_writes_of_foreach_batch_are_not_a_moved_query(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    here.query_run = "run1"
    first = here.task()
    commit(first, [here.write(first, 1)])
    here.restart("run2")  # the driver died between the writes
    second = here.task("q")
    commit(second, [here.write(second, 2)])
    for number, values in ((1, (3, 4)), (2, (5, 6))):
        here.number = number
        for prefix, value in zip("pq", values, strict=True):
            task = here.task(prefix)
            commit(task, [here.write(task, value)])
    assert here.seen() == [1, 2, 3, 4, 5, 6]
    (line,) = [each for each in caplog.messages if "may_be_doubled" in each]
    assert 'batch=0 of="query 8d9f" prefix=q reason="the batch is committed under' in line


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_query_that_ran_at_least_once_is_warned_about_once(
    here: Here, guarantee: Guarantee, caplog: pytest.LogCaptureFixture
) -> None:
    here.guarantee = guarantee
    here.query_run = "run1"
    for number in (7, 8):
        here.number = number
        task = here.task()
        commit(task, [task.run([pa.record_batch({"value": pa.array([b"%d" % number])})])], streams=True)
    (record,) = [each for each in caplog.records if "may_be_doubled" in each.message]
    assert record.levelname == "WARNING"
    assert 'batch=7 of="query 8d9f" prefix=p reason="the query has no decision yet' in record.message
    here.restart("run2")
    here.number = 12
    task = here.task()
    commit(task, [task.run([pa.record_batch({"value": pa.array([b"12"])})])], streams=True)
    record = [each for each in caplog.records if "may_be_doubled" in each.message][-1]
    assert (record.levelname, "the last decision is on batch 8" in record.message) == ("INFO", True)
    assert here.seen() == [7, 8, 12]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_committed_job_fails_on_request(here: Here, guarantee: Guarantee) -> None:
    here.guarantee = guarantee
    rows = [pa.record_batch({"value": pa.array([b"1"])})]
    here.number = None
    for _ in range(2):
        task = here.task(job="nightly")
        commit(task, [task.run(rows, replays=False)])
        here.restart("run2")
    here.fails = True
    task = here.task(job="nightly")
    with pytest.raises(
        DeliveryError, match="job nightly: the job is committed under transactionalIdPrefix 'p'"
    ):
        commit(task, [task.run(rows, replays=False)])
    assert here.seen() == [1]


def test_committed_job_never_fails_in_foreach_batch(here: Here) -> None:
    here.query_run = "run1"
    here.fails = True
    task = here.task(job="nightly")
    commit(task, [here.write(task, 1)])
    here.restart("run2")
    task = here.task(job="nightly")
    commit(task, [task.run([pa.record_batch({"value": pa.array([b"1"])})], replays=False)])
    assert here.seen() == [1]
