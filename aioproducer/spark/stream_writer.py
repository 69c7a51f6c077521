"""The writer of the micro-batches of a stream: Spark 4.1 and newer have the base class, Spark 4.0 does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from aioproducer.spark.committing import abort, commit
from aioproducer.spark.messages import log_aborted, log_committed
from aioproducer.spark.spark_errors import sparks_errors
from aioproducer.spark.task import Task, no_micro_batch
from aioproducer.spark.writer import Planned

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(Planned, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream; on the driver there is a new one for each."""

    def __init__(self, task: Task, name: str = "") -> None:
        """*name* is the option `queryName`."""
        super().__init__(task)
        self._name = name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of a micro-batch (in a task)."""
        return self.run(iterator, replays=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Take notice that a micro-batch is written, or decide that it is to be seen (on the driver).

        Without micro-batches Spark commits, every second, what its tasks may not even have been given: no task has reported.
        """
        with sparks_errors():
            if None in messages:
                raise no_micro_batch()
            commit(self._task, messages, streams=True)
        log_committed(messages, batchId, self._name)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - likewise
        """Take notice that a micro-batch failed or was stopped (on the driver); what is written stays, as above."""
        abort(self._task, messages)
        log_aborted(messages, batchId, self._name)
