"""Exactly once on a cluster: attempts of a task that run beside each other, on executors that die, or freeze and thaw."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.kafka.apache.broker import ApacheKafka
from tests.spark.audited import audited_when_committed
from tests.spark.cluster import SETTINGS, standalone_cluster
from tests.spark.gate import Gate
from tests.spark.program import ROOT, driver

EVENTS = 80_000
RUN = "exactly-once"
GATED_BATCH = ROOT / "tests/spark/gated_batch.py"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster's master."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone") / "cluster") as url:
        yield url


def check(kafka: ApacheKafka, topic: str) -> None:
    """Check that read_committed consumers see each event once, without a wait."""
    report = audited_when_committed(kafka.bootstrap_servers, topic, RUN, EVENTS)
    assert (report.lost, report.duplicated, report.unexpected) == (0, 0, 0), str(report)


@pytest.mark.timeout(300)
def test_speculative_attempt_is_visible_once(
    kafka: ApacheKafka, topic: str, master: str, tmp_path: Path, gate: Gate
) -> None:
    """Both attempts have written when both continue."""
    before = EVENTS // 2 - 5_000
    given = (kafka.bootstrap_servers, topic, EVENTS, RUN, gate.path, before, "--guarantee", "exactly-once")
    settings = SETTINGS | {"spark.speculation": "true", "spark.speculation.quantile": "0.5"}
    with driver(GATED_BATCH, *given, directory=tmp_path / "driver", master=master, more=settings) as job:
        gate.wait_until_reached(attempt=0)
        gate.wait_until_reached(attempt=1)
        gate.open()
        job.wait()
    check(kafka, topic)


@pytest.mark.timeout(300)
def test_rerun_stage_is_visible_once_beside_its_old_tasks(
    kafka: ApacheKafka, topic: str, master: str, tmp_path: Path, gate: Gate
) -> None:
    """A killed executor loses its shuffle files, so the task of the other executor is restarted as well."""
    other = Gate(tmp_path / "other")
    given = (kafka.bootstrap_servers, topic, EVENTS, RUN, gate.path, 5_000, "--guarantee", "exactly-once")
    settings = SETTINGS | {"spark.shuffle.io.maxRetries": "1", "spark.shuffle.io.retryWait": "1s"}
    more = ("--shuffled", other.path)
    with driver(
        GATED_BATCH, *given, *more, directory=tmp_path / "driver", master=master, more=settings
    ) as job:
        gate.wait_until_reached()
        other.wait_until_reached()
        executor_of(gate.process()).kill()
        job.log.wait_for("FetchFailed", timeout_s=90)
        gate.open()
        other.open()
        job.wait()
    check(kafka, topic)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("guarantee", ["exactly-once", "exactly-once-single"])
def test_thawed_executor_changes_nothing_after_the_commit(
    kafka: ApacheKafka, topic: str, master: str, tmp_path: Path, gate: Gate, guarantee: str
) -> None:
    done = Gate(tmp_path / "done")
    given = (kafka.bootstrap_servers, topic, EVENTS, RUN, gate.path, EVENTS // 2 - 5_000)
    settings = SETTINGS | {
        "spark.network.timeout": "15s",
        "spark.executor.heartbeatInterval": "2s",
        "spark.network.timeoutInterval": "5s",
    }
    with (
        ExitStack() as thawed,
        driver(
            GATED_BATCH,
            *given,
            "--guarantee",
            guarantee,
            "--linger",
            done.path,
            directory=tmp_path / "driver",
            master=master,
            more=settings,
        ) as job,
    ):
        gate.wait_until_reached(attempt=0)
        executor = executor_of(gate.process())
        frozen = [executor, *executor.children(recursive=True)]
        for each in frozen:
            each.suspend()
            thawed.callback(thaw, each)
        gate.wait_until_reached(attempt=1)
        gate.open()
        done.wait_until_reached()
        check(kafka, topic)
        thawed.close()
        psutil.wait_procs(frozen, timeout=30)
        check(kafka, topic)
        done.open()
        job.wait()
    check(kafka, topic)


def executor_of(process: psutil.Process) -> psutil.Process:
    """Return the JVM that has started *process*."""
    return next(
        each for each in process.parents() if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())
    )


def thaw(process: psutil.Process) -> None:
    """Let it go on, if it is there still."""
    if process.is_running():
        process.send_signal(signal.SIGCONT)
