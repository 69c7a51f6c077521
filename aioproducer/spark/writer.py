"""The writer of a batch, and the base that it shares with the writer of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from aioproducer.errors import ProducerError
from aioproducer.spark.arrival import reduced
from aioproducer.spark.committing import abort, commit, planned
from aioproducer.spark.heap import settle_heap
from aioproducer.spark.memory_limit import is_out_of_memory, out_of_memory
from aioproducer.spark.messages import log_aborted, log_committed
from aioproducer.spark.spark_errors import sparks_errors
from aioproducer.spark.task import Task

if TYPE_CHECKING:
    import pyarrow as pa


class Planned:
    """A writer that plans when Spark first pickles it for the tasks: on the driver, and for each batch once."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._is_planned = False
        settle_heap()

    def __getstate__(self) -> dict[str, object]:
        """Return what travels. Spark pickles twice; where it commits a micro-batch it makes a writer, and pickles none."""
        with sparks_errors(pickling=True):
            if not self._is_planned:
                self._task = planned(self._task)
                self._is_planned = True
        return {"_task": self._task}

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, bytes]]:
        """Return what an executor unpickles, with a check of its aioproducer."""
        return reduced(type(self), self.__getstate__())

    def run(self, rows: Iterator[pa.RecordBatch], *, replays: bool) -> WriterCommitMessage:
        """Run the task, and settle the heap."""
        with sparks_errors():
            try:
                report = self._task.run(rows, replays=replays)
            except (MemoryError, ProducerError) as error:
                if not is_out_of_memory(error):
                    raise
                raise out_of_memory() from None
        settle_heap()
        return report


class BatchWriter(Planned, DataSourceArrowWriter):
    """Writes a DataFrame."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition (in a task)."""
        return self.run(iterator, replays=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take notice that all is written, or decide that it is to be seen (on the driver)."""
        with sparks_errors():
            commit(self._task, messages)
        log_committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take notice that a task failed for good (on the driver); what others wrote stays, unless in transactions."""
        abort(self._task, messages)
        log_aborted(messages)
