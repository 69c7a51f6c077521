"""The two writers that Spark calls: the same task for a batch and for each micro-batch of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from aioproducer.spark.messages import TaskReport, log_aborted, log_committed
from aioproducer.spark.task import Task

if TYPE_CHECKING:
    import pyarrow as pa


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write one partition (in a task)."""
        return self._task.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take notice that all is written (on the driver)."""
        log_committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take notice that a task failed for good (on the driver); what others wrote stays."""
        log_aborted(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream; on the driver there is a new one for each."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write one partition of a micro-batch (in a task)."""
        return self._task.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Take notice that a micro-batch is written (on the driver)."""
        log_committed(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - likewise
        """Take notice that a micro-batch failed or was stopped (on the driver); what is written of it stays."""
        log_aborted(messages, batchId)
