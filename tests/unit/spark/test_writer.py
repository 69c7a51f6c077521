"""The writers that Spark calls, without Spark; what they do is the matter of tasks and of committing.py."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkRuntimeError, PySparkValueError

from aioproducer.arrow.arrow_schema import Columns
from aioproducer.errors import ProducerError
from aioproducer.spark.messages import TaskReport
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.stream_writer import StreamWriter
from aioproducer.spark.task import Task
from aioproducer.spark.writer import BatchWriter

WRITER = StreamWriter(Task(ProducerSettings(()), Columns(value="value", topic="orders")))


def test_of_a_micro_batch_each_task_has_reported(caplog: pytest.LogCaptureFixture) -> None:
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


def test_what_no_task_has_reported_is_not_committed() -> None:
    """It would be lost: a continuous query notes it as done with."""
    with pytest.raises(PySparkValueError, match=r"trigger\(continuous=…\) has no micro-batches"):
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
