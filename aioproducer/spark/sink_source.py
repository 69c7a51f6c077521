"""The format "aioproducer", as Spark's planner meets it on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.errors import PySparkNotImplementedError, PySparkRuntimeError
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from aioproducer.errors import ConfigError
from aioproducer.spark.committing import planned
from aioproducer.spark.sink_options import sink_options
from aioproducer.spark.sink_schema import record_columns
from aioproducer.spark.spark_errors import hide_traceback, sparks_errors
from aioproducer.spark.task import Task
from aioproducer.spark.writer import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader

    from aioproducer.spark.stream_writer import StreamWriter

ONLY_WRITES: Final = "the format 'aioproducer' only writes; read the topic with Spark's own format 'kafka'"
NEEDS_COLUMNS: Final = "CREATE TABLE … USING aioproducer needs columns, such as (key STRING, value STRING)"
NO_STREAMS: Final = (
    "writeStream.format('aioproducer') needs Spark 4.1 or newer, this is Spark {version}; write each micro-batch:"
    " writeStream.foreachBatch(lambda rows, batch_id: rows.write.format('aioproducer').mode('append')….save())"
)


class NoStream(DataSourceStreamReader):
    """The reader of a format that only writes."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Raise PySparkNotImplementedError."""
        raise _not_implemented(ONLY_WRITES)

    def latestOffset(self, *_: object) -> dict[str, int]:  # noqa: N802 - Spark 4.1 passes none
        """Raise PySparkNotImplementedError: a query that was started before begins with this call."""
        raise _not_implemented(ONLY_WRITES)

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Raise PySparkNotImplementedError; no offsets, so no partitions."""
        raise _not_implemented(ONLY_WRITES)


class AioProducerSource(datasource.DataSource):
    """Writes DataFrames and streams to Kafka; columns and options are those of Spark's own Kafka sink.

    An error of a column or an option is raised on the driver, before any task runs.
    """

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(…)`."""
        return "aioproducer"

    def schema(self) -> StructType:
        """Raise PySparkNotImplementedError: Spark asks for the columns of a read, and of a table created without columns."""
        raise _not_implemented(f"{ONLY_WRITES}; {NEEDS_COLUMNS}")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raise PySparkNotImplementedError."""
        raise _not_implemented(ONLY_WRITES)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader that raises PySparkNotImplementedError as the query starts.

        Where `streamReader` itself raises, PySpark 4.2 shows an UnboundLocalError of its own.
        """
        return NoStream()

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's signature
        """Return what writes a DataFrame with *schema*.

        Raises:
            PySparkValueError: an option or a column is wrong, or the save mode is Overwrite.
            PySparkTypeError: a column has another type than the sink takes.
        """
        with sparks_errors():
            if overwrite:
                raise ConfigError(
                    "Save mode Overwrite not allowed for Kafka. The allowed save mode is Append: mode('append')."
                )
            task = self._task(schema)
            return BatchWriter(planned(task))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802 - likewise
        """Return what writes the micro-batches of a stream with *schema*.

        *overwrite* is how Spark tells output mode complete, in which every micro-batch appends the whole result.

        Raises: as `writer`; PySparkRuntimeError: this is Spark 4.0.
        """
        with sparks_errors():
            if not hasattr(datasource, "DataSourceStreamArrowWriter"):
                raise PySparkRuntimeError(NO_STREAMS.format(version=pyspark.__version__))
            from aioproducer.spark.stream_writer import StreamWriter  # noqa: PLC0415 - Spark 4.0 cannot import it

            return StreamWriter(self._task(schema), self.options.get("queryName", ""))

    def _task(self, schema: StructType) -> Task:
        options = sink_options(self.options)
        columns = record_columns(schema, options.topic, options.timestamp_column)
        return Task(options.producer, columns, options.delivery, options.dead_letters, limit=options.limit)


def _not_implemented(message: str) -> PySparkNotImplementedError:
    hide_traceback()
    return PySparkNotImplementedError(message)
