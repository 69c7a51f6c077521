"""The writers that Spark calls, without Spark; test_task.py and test_committing.py have their effects."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException, PySparkRuntimeError, PySparkTypeError, PySparkValueError

from aioproducer import version
from aioproducer.arrow.arrow_columns import Columns
from aioproducer.errors import ConfigError, ConnectionFailed, ProducerError
from aioproducer.spark import writer as module
from aioproducer.spark.delivery import BatchLost, DeliveryError
from aioproducer.spark.messages import TaskReport
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.task import Task, check_options
from aioproducer.spark.writer import (
    HIDE_TRACEBACK,
    BatchWriter,
    PlannedWriter,
    PlanningError,
    StreamWriter,
    dumps,
    pyspark_errors,
)
from tests.cases import for_each

WRITER = StreamWriter(Task(ProducerSettings(()), Columns(value="value", topic="orders")))


def test_tasks_of_a_micro_batch_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioproducer.spark")
    WRITER.commit([TaskReport("8d9f", 0, 0)], 0)
    WRITER.commit([], 1)
    assert [each.partition(" name=")[0] for each in caplog.messages] == [
        "spark.batch.committed query=8d9f batch=0 rows=0 bytes=0 tasks=1",
        "spark.batch.committed query=- batch=1 rows=0 bytes=0 tasks=0",
    ]


def test_option_names_query_of_batch_without_report(caplog: pytest.LogCaptureFixture) -> None:
    writer = StreamWriter(Task(ProducerSettings(()), Columns(value="value", topic="orders")), "orders")
    writer.abort([None], 3)
    assert "batch=3 rows=0 bytes=0 tasks=0 name=orders " in caplog.text


def test_stream_writer_refuses_commit_without_reports() -> None:
    """It would be lost: a continuous query notes it as done with."""
    with pytest.raises(PySparkValueError, match=r"trigger\(continuous=…\) is not supported"):
        WRITER.commit([None, None], 0)
    WRITER.abort([None, None], 0)


@pytest.mark.parametrize("in_sender", [False, True])
def test_task_without_memory_fails_in_one_sentence(in_sender: bool) -> None:
    class Greedy:
        def run(self, _rows: object, *, replays: bool) -> None:
            if in_sender:
                raise ProducerError("row 20: the sender task ended") from MemoryError()
            raise MemoryError

    writer = BatchWriter(Greedy())  # type: ignore[arg-type]
    with pytest.raises(
        PySparkRuntimeError, match=r"^TaskOutOfMemory: the task: .*; set spark\.sql"
    ) as raised:
        writer.write(iter(()))
    assert raised.value.__cause__ is None


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)


@for_each(
    ("error", "kind", "line"),
    [
        (ConfigError("unknown option 'a'"), PySparkValueError, "unknown option 'a'"),
        (DeliveryError("batch 1\nfailed"), PySparkRuntimeError, "DeliveryError: batch 1 failed"),
        (BatchLost("batch 1"), PySparkRuntimeError, "BatchLost: batch 1"),
        (ConnectionFailed("a:9092"), PySparkRuntimeError, "ConnectionFailed: a:9092"),
        (PySparkTypeError("value attribute"), PySparkTypeError, "value attribute"),
    ],
)
def test_error_becomes_one_line_of_a_pyspark_exception(
    error: Exception, kind: type[PySparkException], line: str
) -> None:
    with pytest.raises(kind) as raised, pyspark_errors():
        raise error from OSError("cause")
    assert str(raised.value) == line
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_note_is_part_of_the_line() -> None:
    error = ProducerError("row 3: too large")
    error.add_note("rows are counted from 0")
    line = r"^ProducerError: row 3: too large; rows are counted from 0$"
    with pytest.raises(PySparkRuntimeError, match=line), pyspark_errors():
        raise error


def test_error_of_planning_passes_pickle_unchanged() -> None:
    """PySpark passes a PickleError, and wraps all other exceptions."""
    with (
        pytest.raises(pickle.PickleError, match=r"^BatchLost: batch 1$") as raised,
        pyspark_errors(pickling=True),
    ):
        raise BatchLost("batch 1")
    assert isinstance(raised.value, PlanningError)
    assert isinstance(raised.value, PySparkRuntimeError)


@pytest.mark.parametrize("error", [KeyError("a"), ValueError("b")])
def test_unexpected_error_keeps_its_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", main_of("pyspark.daemon"))
    with pytest.raises(type(error)) as raised, pyspark_errors():
        raise error
    assert raised.value is error
    assert HIDE_TRACEBACK not in os.environ


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("pyspark.daemon", True),
        ("pyspark.sql.worker.write_into_data_source", True),
        ("job", False),
        (None, False),
    ],
)
def test_traceback_is_hidden_only_in_processes_of_spark(
    name: str | None, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", main_of(name))
    monkeypatch.setenv(HIDE_TRACEBACK, "")
    with pytest.raises(PySparkValueError), pyspark_errors():
        raise ConfigError("unknown option")
    assert bool(os.environ[HIDE_TRACEBACK]) is hidden


def main_of(name: str | None) -> ModuleType:
    main = ModuleType("__main__")
    main.__spec__ = None if name is None else ModuleSpec(name, None)
    return main


SERVERS = ("bootstrap.servers", "a:9092")
TASK = Task(ProducerSettings((SERVERS,)), Columns(value="value", topic="orders"))


@pytest.fixture(autouse=True)
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no broker to plan with."""
    monkeypatch.setattr(module, "planned", lambda task: task)


@pytest.mark.parametrize("kind", [BatchWriter, StreamWriter])
def test_writer_arrives_with_its_task(kind: type[PlannedWriter]) -> None:
    arrived = cloudpickle.loads(dumps(kind(TASK)))
    assert type(arrived) is kind
    assert vars(arrived) == {"_task": TASK}


def test_executor_with_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = dumps(BatchWriter(TASK))
    monkeypatch.setattr(version, "__version__", "0.0.1")
    with pytest.raises(PySparkRuntimeError, match=r"^executor on .*: aioproducer is 0\.0\.1, and "):
        cloudpickle.loads(content)


@pytest.mark.parametrize("missing", ["aioproducer", "pyarrow"])
def test_executor_without_a_package_is_refused(missing: str, tmp_path: Path) -> None:
    path = tmp_path / "writer"
    path.write_bytes(dumps(BatchWriter(TASK)))
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from pyspark import cloudpickle; cloudpickle.loads(open({str(path)!r}, 'rb').read())"
    )
    output = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    line = output.stderr.splitlines()[-1]
    assert "PySparkRuntimeError: executor on " in line
    assert missing in line
    assert line.endswith(f"(Python: {sys.executable}), or ship an environment with --archives")


@pytest.mark.parametrize(
    ("options", "package", "extra"),
    [
        ({"compression.type": "snappy"}, "cramjam", "snappy"),
        ({"compression.type": "zstd"}, "zstandard", "zstandard"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "botocore", "msk"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "gssapi", "kerberos"),
    ],
)
def test_executor_without_an_extra_is_refused(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], package: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, "aioproducer._core.records.snappy", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("aioproducer.config.security.find_spec", lambda _name: None)
    settings = ProducerSettings((SERVERS, *options.items()))
    with pytest.raises(ConfigError, match=rf"^executor on .*{extra}.*; the driver accepts the option: "):
        check_options(settings)


def test_executor_without_a_file_is_refused() -> None:
    options = (("security.protocol", "SSL"), ("ssl.truststore.location", "/missing/ca.pem"))
    with pytest.raises(
        ConfigError, match=r"^executor on .*/missing/ca\.pem.*; the driver accepts the option: "
    ):
        check_options(ProducerSettings((SERVERS, *options)))
