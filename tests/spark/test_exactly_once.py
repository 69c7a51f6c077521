"""Exactly once after kills at each step, read back with a read_committed consumer.

`make spark` plays a few of the steps; with EXACTLY_ONCE=all (`make test-spark-exactly-once`) it is all of them, on brokers
with `transaction.version` 2 and before.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from aioproducer import TransactionAdmin
from aioproducer.spark.audit import audit, from_kafka
from examples.spark.stream import events_from, make_events, records_of
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import await_records
from tests.spark.audited import audited_when_committed
from tests.spark.exactly_once_stream import RUN, stream
from tests.spark.features import needs_stream_sink
from tests.spark.log import SparkLog
from tests.spark.probe import Act, Probe
from tests.spark.probed_source import ProbedSource
from tests.spark.program import ROOT, Program, ProgramFailed, driver

PROGRAM: Final = ROOT / "tests/spark/exactly_once_stream.py"
FILES: Final = 3
EVENTS_PER_FILE: Final = 2_000
EVENTS: Final = FILES * EVENTS_PER_FILE
ALL: Final = os.environ.get("EXACTLY_ONCE") == "all"
in_the_long_form: Final = pytest.mark.skipif(not ALL, reason="takes minutes; EXACTLY_ONCE=all has it")
VERSIONS: Final = (2, 1) if ALL else (2,)
ROWS: Final = int(os.environ.get("EXACTLY_ONCE_ROWS", "120000"))
"""Rows of the test with random kills; `make test-spark-rows` sets ten million."""

TIMEOUT_S: Final = 120 + ROWS / 5_000
"""Time to write or read ROWS on a busy machine."""

SINGLE: Final = "exactly-once-single"

LOG: Final = "exactly-once"
numbers: Final = itertools.count()
TASKS: Final = {SINGLE: (1, 1), LOG: (2, 3)}
"""How many tasks a batch has, and how many where it is replayed."""

OF_TASKS: Final = ("task-before-init", "task-amid-rows", "task-before-flush", "task-flushed")
OF_DECISIONS: Final = ("commit-called", "decision-next", "decision-written", "decision-sent", "decision-made")
OF_FIRST_USE: Final = ("first-use-written", "first-use-made")
OF_ENDS: Final = ("commit-sent", "between-commits", "before-done", "commit-done")
STEPS: Final = {
    SINGLE: (*OF_FIRST_USE, *OF_TASKS, *OF_DECISIONS, "commit-done"),
    LOG: ("before-init", *OF_FIRST_USE, "planned", *OF_TASKS, *OF_DECISIONS, *OF_ENDS),
}


def steps(*short: tuple[str, str], of: Sequence[str] | None = None) -> pytest.MarkDecorator:
    """Return the guarantees with all their steps or the steps *of*, or the pairs *short* in a short run."""
    every = [(guarantee, step) for guarantee, names in STEPS.items() for step in of or names]
    return pytest.mark.parametrize(("guarantee", "step"), every if ALL else short)


@pytest.fixture(scope="module")
def older_kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(properties={"auto.create.topics.enable": "false"}, transaction_version=1) as kafka:
        yield kafka


@pytest.fixture(params=VERSIONS, ids=lambda version: f"transaction.version {version}")
def broker(request: pytest.FixtureRequest) -> ApacheKafka:
    kafka: ApacheKafka = request.getfixturevalue("kafka" if request.param == 2 else "older_kafka")
    return kafka


class Job:
    """A stream of three files into a topic, with a probe in it."""

    def __init__(self, spark: SparkSession, kafka: ApacheKafka, topic: str, directory: Path) -> None:
        self.spark = spark
        self.kafka = kafka
        self.topic = topic
        self.directory = directory
        self.timeout_ms = 60_000
        self.probe = Probe(directory / "probe")
        kafka.create_topic(topic, 3)
        make_events(directory / "events", files=FILES, events_per_file=EVENTS_PER_FILE)

    def run(self, *, source: str = "aioproducer", guarantee: str = SINGLE, tasks: int = 1) -> None:
        """Run the query to its end, in this session's Spark."""
        given = (self.kafka.bootstrap_servers, self.topic, self.directory, guarantee, tasks, self.timeout_ms)
        assert stream(self.spark, source, *given).start().awaitTermination(round(TIMEOUT_S))

    def given(self, guarantee: str = SINGLE, tasks: int = 1) -> tuple[object, ...]:
        """Return the arguments of the program."""
        return self.kafka.bootstrap_servers, self.topic, self.directory, guarantee, tasks, self.timeout_ms

    def committed(self, count: int) -> int:
        """Return the number of committed records, once it is *count*."""
        servers = self.kafka.bootstrap_servers
        return len(
            await_records(
                servers, self.topic, lambda found: len(found) >= count, isolation_level="read_committed"
            )
        )

    def check(self, expect: int = EVENTS) -> None:
        """Check that each event is committed once."""
        servers = self.kafka.bootstrap_servers
        report = audited_when_committed(servers, self.topic, RUN, expect, timeout_s=TIMEOUT_S)
        assert not report.lost, str(report)
        assert not report.duplicated, str(report)

    def wait_for_aborts(self) -> None:
        """Return when the time of all transactions of tasks has run out."""
        asyncio.run(self._wait_for_aborts())

    async def _wait_for_aborts(self) -> None:
        deadline = time.monotonic() + 60
        async with TransactionAdmin(self.kafka.bootstrap_servers) as admin:
            while any(
                each.transactional_id.startswith(f"{self.topic}.t.")
                for each in await admin.list(states=["Ongoing", "PrepareAbort"])
            ):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)


@pytest.fixture
def job(
    spark: SparkSession,
    broker: ApacheKafka,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Job:
    name = f"exactly-once-{next(numbers)}"
    job = Job(spark, broker, name, tmp_path)
    spark.dataSource.register(ProbedSource)
    return job


@needs_stream_sink
@steps((LOG, "between-commits"))
def test_batch_is_exact_when_the_driver_is_killed(
    job: Job, guarantee: str, step: str, tmp_path: Path
) -> None:
    """The driver dies with its JVM in the first batch; another driver continues with other tasks."""
    before, after = TASKS[guarantee]
    job.probe.set(step, Act.HOLD)
    with driver(PROGRAM, *job.given(guarantee, before), directory=tmp_path / "killed") as killed:
        job.probe.wait_until_reached(step)
        killed.kill()
    job.run(guarantee=guarantee, tasks=after)
    job.check()


@needs_stream_sink
@in_the_long_form
@pytest.mark.timeout(900 + 3 * TIMEOUT_S)
@pytest.mark.parametrize("guarantee", [SINGLE, LOG])
def test_drivers_and_workers_are_killed_again_and_again(job: Job, guarantee: str, tmp_path: Path) -> None:
    """Kill at random moments; two clients and the audit on Spark see each event once."""
    files, kills = 100, 6  # every driver finds files that earlier drivers have left
    make_events(job.directory / "events", files=files, events_per_file=ROWS // files)
    expect = ROWS // files * files
    job.timeout_ms = 300_000  # a batch of 100,000 rows on a busy machine
    lost_tasks = 0
    for number in range(kills):
        given = job.given(guarantee, TASKS[guarantee][number % 2])
        with driver(PROGRAM, *given, directory=tmp_path / f"killed-{number}") as running:
            running.log.wait_for("spark.batch.", timeout_s=300)  # committed, or skipped: it is at work
            time.sleep(random.uniform(0, 1))
            lost_tasks += kill_a_task(running)
            time.sleep(random.uniform(0, 3))
            running.kill()
    assert lost_tasks >= kills / 2
    job.run(guarantee=guarantee, tasks=TASKS[guarantee][1])
    job.check(expect)
    report = audit(from_kafka(job.spark, job.kafka.bootstrap_servers, job.topic, RUN), run=RUN, expect=expect)
    assert (report.records, report.lost, report.duplicated) == (expect, 0, 0), str(report)


def kill_a_task(running: Program) -> bool:
    """Kill processes of tasks until Spark reports a lost task; return False when all is quiet for ten seconds."""
    deadline = time.monotonic() + 10
    while "Lost task" not in running.log.text():
        if time.monotonic() > deadline:
            return False
        for each in running.descendants():
            with suppress(psutil.Error):
                parent = each.parent()
                if "pyspark.worker" in each.cmdline() and parent and parent.cmdline() == each.cmdline():
                    each.kill()  # the parent, Spark's daemon, forks another one
        time.sleep(0.05)
    return True


@needs_stream_sink
@pytest.mark.parametrize("act", [Act.KILL, Act.FAIL] if ALL else [Act.KILL])
@steps((SINGLE, "decision-written"), (LOG, "task-flushed"), (LOG, "decision-written"), (LOG, "before-done"))
def test_batch_is_exact_when_a_process_is_killed_or_fails(
    job: Job, guarantee: str, step: str, act: Act
) -> None:
    """A task is retried; after planning, or a commit, the query fails and is restarted."""
    before, after = TASKS[guarantee]
    job.probe.set(step, act)
    with suppress(PySparkException):
        job.run(source="probed", guarantee=guarantee, tasks=before)
    assert job.probe.reached(step)
    job.run(guarantee=guarantee, tasks=after)
    job.check()


@needs_stream_sink
@in_the_long_form
@steps(of=("first-use-written", "task-flushed", *OF_DECISIONS))
def test_replaced_driver_decides_nothing(job: Job, guarantee: str, step: str, tmp_path: Path) -> None:
    """The driver freezes; another continues from the same checkpoint; then the first one thaws."""
    before, after = TASKS[guarantee]
    job.probe.set(step, Act.HOLD)
    with driver(PROGRAM, *job.given(guarantee, before), directory=tmp_path / "frozen") as frozen:
        job.probe.wait_until_reached(step)
        job.run(guarantee=guarantee, tasks=after)
        job.check()
        job.probe.release(step)
        with suppress(ProgramFailed):
            frozen.wait()
        job.check()


@needs_stream_sink
@in_the_long_form
@pytest.mark.timeout(300)  # a driver to be killed, and two queries behind it
@steps(of=OF_TASKS)
def test_thawed_task_writes_nothing_after_its_replacement(
    job: Job, guarantee: str, step: str, tmp_path: Path
) -> None:
    """The task survives its driver, and thaws when another driver has committed the batch and all later ones."""
    before, after = TASKS[guarantee]
    job.probe.set(step, Act.FREEZE)
    with ExitStack() as ended:
        with driver(PROGRAM, *job.given(guarantee, before), directory=tmp_path / "killed") as killed:
            job.probe.wait_until_reached(step)
            frozen = job.probe.frozen(step)
            ended.callback(kill, frozen)
            killed.kill()
        job.run(guarantee=guarantee, tasks=after)
        job.check()
        assert frozen.status() == psutil.STATUS_STOPPED
        frozen.resume()
        job.probe.wait_until_thawed(step)
        assert not psutil.wait_procs([frozen], timeout=60)[1]
        job.check()
    make_events(job.directory / "events", files=FILES + 1, events_per_file=EVENTS_PER_FILE)
    job.run(guarantee=guarantee, tasks=before)
    job.check(EVENTS + EVENTS_PER_FILE)


def kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


@needs_stream_sink
@in_the_long_form
@pytest.mark.parametrize("step", ["task-flushed", "decision-made"])
def test_batch_is_exact_when_a_broker_restarts(job: Job, step: str, tmp_path: Path) -> None:
    job.probe.set(step, Act.HOLD)
    with driver(PROGRAM, *job.given(LOG, 2), directory=tmp_path / "driver") as running:
        job.probe.wait_until_reached(step)
        job.kafka.kill()
        job.kafka.restart()
        job.probe.release(step)
        with suppress(ProgramFailed):  # in time, or not: the query may be started again
            running.wait()
    job.run(guarantee=LOG, tasks=3)
    job.check()


@needs_stream_sink
@in_the_long_form
@pytest.mark.parametrize("step", ["task-flushed", "decision-made"])
def test_expired_transaction_is_rewritten_or_reported_as_lost(job: Job, step: str, tmp_path: Path) -> None:
    """Before the decision the batch is written again; after it the batch is lost, and each start of the query reports that."""
    job.timeout_ms = 30_000
    job.probe.set(step, Act.HOLD)
    with driver(PROGRAM, *job.given(LOG, 2), directory=tmp_path / "late") as late:
        job.probe.wait_until_reached(step)
        job.wait_for_aborts()
        late.kill()
    if step == "task-flushed":
        job.run(guarantee=LOG, tasks=3)
        job.check()
        return
    for _ in range(2):
        with pytest.raises(PySparkException, match="was decided, and part of it is lost"):
            job.run(guarantee=LOG, tasks=3)
    job.check(0)
    told = recover(job)
    assert "batch 0" in told.stdout
    assert recover(job, "--confirm").returncode == 0
    job.run(guarantee=LOG, tasks=3)
    behind = EVENTS - EVENTS_PER_FILE
    assert job.committed(behind) == behind, "the batches behind the one that is lost"


def recover(job: Job, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aioproducer", "spark-recover", job.topic]
    command += ["--bootstrap-servers", job.kafka.bootstrap_servers, *options]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT)


@needs_stream_sink
@pytest.mark.parametrize("guarantee", [SINGLE, LOG] if ALL else [LOG])
def test_new_checkpoint_under_the_old_prefix_is_a_new_query(job: Job, guarantee: str) -> None:
    """Decisions of the old query do not apply to the batches of the new one."""
    for number in (1, 2):
        job.run(guarantee=guarantee, tasks=TASKS[guarantee][0])
        (job.directory / "checkpoint").rename(job.directory / f"old-{number}")
        assert job.committed(number * EVENTS) == number * EVENTS


@needs_stream_sink
def test_batch_of_two_tasks_is_refused_with_a_single_transaction(job: Job) -> None:
    with pytest.raises(PySparkException, match=r"use coalesce\(1\)"):
        job.run(tasks=2)
    job.check(0)


def save(job: Job, rows: DataFrame, guarantee: str, **options: str) -> None:
    (
        rows.write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", job.kafka.bootstrap_servers)
        .option("topic", job.topic)
        .option("deliveryGuarantee", guarantee)
        .option("transactionalIdPrefix", job.topic)
        .options(**options)
        .save()
    )


@pytest.mark.parametrize("guarantee", [SINGLE, LOG])
def test_job_is_written_once_and_its_rerun_is_skipped(job: Job, guarantee: str, spark_log: SparkLog) -> None:
    def records(tasks: int) -> DataFrame:
        events = job.spark.range(0, 1_000, numPartitions=tasks)
        return records_of(events.selectExpr("id as number", "'u' as user", "'/' as page"), RUN)

    before, after = TASKS[guarantee]
    save(job, records(before), guarantee, jobId="nightly-7")
    save(job, records(after), guarantee, jobId="nightly-7")
    spark_log.wait_for('spark.batch.skipped batch=0 of="job nightly-7"')
    job.check(1_000)
    with pytest.raises(PySparkException, match="needs the option jobId here"):
        save(job, records(before), guarantee)


@pytest.mark.parametrize("guarantee", [SINGLE, LOG])
def test_foreach_batch_skips_a_batch_that_was_written(job: Job, guarantee: str, spark_log: SparkLog) -> None:
    """A batch that fails behind its write is replayed, and skipped."""
    failures = iter([True])

    def write(rows: DataFrame, number: int) -> None:
        save(job, rows.coalesce(1) if guarantee == SINGLE else rows.repartition(2), guarantee)
        if number == 1 and next(failures, False):
            raise ArithmeticError("the rest of the function")

    def query() -> StreamingQuery:
        rows = records_of(events_from(job.spark, job.directory / "events"), RUN)
        return (
            rows.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(job.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    with pytest.raises(PySparkException, match="the rest of the function"):
        query().awaitTermination(90)
    assert query().awaitTermination(90)
    spark_log.wait_for('spark.batch.skipped batch=1 of="query ')
    job.check()
