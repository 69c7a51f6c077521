"""The writers of batches and streams, which Spark pickles, runs and commits; the writers raise PySpark's errors."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle
from pyspark.errors import PySparkException, PySparkRuntimeError, PySparkValueError
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from aioproducer.errors import ConfigError, ProducerError
from aioproducer.spark.committing import abort, commit, planned
from aioproducer.spark.memory_limit import freeze_heap, is_out_of_memory, out_of_memory
from aioproducer.spark.messages import log_aborted, log_committed
from aioproducer.spark.task import Task, no_micro_batch
from aioproducer.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:  # Spark 4.0 lacks the class; `AioProducerSource.streamWriter` refuses streams in Spark 4.0
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)


dumps: Final[Callable[[object], bytes]] = cloudpickle.dumps
"""Spark's own pickle function."""
HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""Spark's own variable: a Python process with this variable reports an exception without a traceback."""


class PlanningError(PySparkRuntimeError, PicklingError):
    """An error while Spark pickles a writer. PySpark wraps and prints every exception except PickleError."""


@contextmanager
def pyspark_errors(*, pickling: bool = False) -> Iterator[None]:
    """Convert errors of this package to PySpark's errors; a text is one line that begins with the class (except ConfigError).

    Other exceptions are bugs of this package and keep their traceback.
    """
    try:
        yield
    except (ProducerError, PySparkException) as error:
        hide_traceback()
        if pickling:
            raise PlanningError(_line(error)) from None
        if isinstance(error, PySparkException):
            raise error from None
        raise (PySparkValueError if isinstance(error, ConfigError) else PySparkRuntimeError)(
            _line(error)
        ) from None


def _line(error: ProducerError | PySparkException) -> str:
    text = "; ".join((str(error), *getattr(error, "__notes__", ())))
    if not isinstance(error, ConfigError | PySparkException):
        text = f"{type(error).__name__}: {text}"
    return " ".join(text.split("\n"))


def hide_traceback() -> None:
    """Hide the traceback of the next error if this process belongs to Spark, because the process ends with the error."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith("pyspark."):
        os.environ[HIDE_TRACEBACK] = "1"


class PlannedWriter:
    """Base of writers. A writer plans once per batch, when Spark first pickles the writer for the tasks on the driver."""

    streams: bool = False
    """True for the micro-batches of a stream."""
    _name: str = ""  # a pickled writer has no name

    def __init__(self, task: Task, name: str = "") -> None:
        """*name* is the option `queryName`."""
        self._task = task
        self._name = name
        self._is_planned = False
        freeze_heap()

    def __getstate__(self) -> dict[str, object]:
        """Return the state for the tasks. Spark pickles a writer twice; a writer that only commits is never pickled."""
        with pyspark_errors(pickling=True):
            if not self._is_planned:
                self._task = planned(self._task)
                self._is_planned = True
        return {"_task": self._task}

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, bytes]]:
        """Return the pickled form, which checks the version of the executor's aioproducer."""
        return reduced(type(self), self.__getstate__())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition (in a task), and freeze the heap."""
        with pyspark_errors():
            try:
                report = self._task.run(iterator, replays=self.streams)
            except (MemoryError, ProducerError) as error:
                if not is_out_of_memory(error):
                    raise
                raise out_of_memory() from None
        freeze_heap()
        return report

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 - Spark's name
        """Commit the batch if its delivery is exactly once, and log the commit (on the driver).

        With trigger(continuous=…) Spark commits every second without reports of its tasks; `commit` then raises an error.
        """
        with pyspark_errors():
            if self.streams and None in messages:
                raise no_micro_batch()
            commit(self._task, messages, streams=self.streams)
        log_committed(messages, batchId, self._name)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 - Spark's name
        """Abort and log a failed or stopped batch (on the driver). Rows outside transactions stay in Kafka."""
        abort(self._task, messages)
        log_aborted(messages, batchId, self._name)


class BatchWriter(PlannedWriter, DataSourceArrowWriter):
    """Writes a DataFrame."""


class StreamWriter(PlannedWriter, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream; the driver has a new writer for each micro-batch."""

    streams = True


def reduced(kind: type, state: dict[str, object]) -> tuple[Callable[..., object], tuple[str, bytes]]:
    """Return the result of `__reduce__` for an object of *kind* with *state*."""
    return _by_value(), (__version__, dumps((kind, state)))


def restored(content: bytes) -> object:
    """Return the object that was pickled to *content*."""
    kind, state = cloudpickle.loads(content)
    made = object.__new__(kind)
    made.__dict__.update(state)
    return made


def _by_value() -> Callable[..., object]:
    """Return a local function, which cloudpickle pickles by value: the function runs where aioproducer is missing."""

    def unpickle(version: str, content: bytes) -> Any:
        import os  # noqa: PLC0415 - the function travels without its module
        import sys  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415

        from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415

        try:
            found = import_module("aioproducer.version").__version__
            if found == version:
                return import_module("aioproducer.spark.writer").restored(content)
            problem = f"aioproducer is {found}, and {version} on the driver; install the driver's version"
        except ImportError as error:
            problem = f"aioproducer cannot be imported: {error}; install aioproducer[spark]"
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise PySparkRuntimeError(
            f"executor on {socket.gethostname()}: {problem} on all executors (Python: {sys.executable}), or ship an"
            " environment with --archives"
        )

    return unpickle
