"""The format "aioproducer", as Spark's planner meets it on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from aioproducer.errors import ConfigError
from aioproducer.spark.sink_options import sink_options
from aioproducer.spark.sink_schema import record_columns
from aioproducer.spark.task import Task

if TYPE_CHECKING:
    from aioproducer.spark.writer import BatchWriter, StreamWriter


class AioProducerSource(datasource.DataSource):
    """Writes DataFrames and streams to Kafka; columns and options are those of Spark's own Kafka sink.

    What is wrong with columns or options is said here, on the driver, before any task runs.
    """

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(…)`."""
        return "aioproducer"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's signature
        """Return what writes a DataFrame with *schema*.

        Raises:
            ConfigError: an option; or the save mode, for a topic is not overwritten.
            TypeError, ValueError: a column, as `record_columns`.
            RuntimeError: this Spark is too old.
        """
        if overwrite:
            raise ConfigError(
                "Save mode Overwrite not allowed for Kafka. The allowed save mode is Append: mode('append')."
            )
        task = self._task(schema)
        from aioproducer.spark.writer import BatchWriter  # noqa: PLC0415 - after the check of Spark's version

        return BatchWriter(task)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802 - likewise
        """Return what writes the micro-batches of a stream with *schema*.

        *overwrite* is how Spark tells output mode complete, in which every micro-batch appends the whole result.

        Raises: as `writer`.
        """
        task = self._task(schema)
        from aioproducer.spark.writer import StreamWriter  # noqa: PLC0415 - as above

        return StreamWriter(task)

    def _task(self, schema: StructType) -> Task:
        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            raise RuntimeError(
                f"the format 'aioproducer' needs Spark 4.1 or newer; this is Spark {pyspark.__version__}"
            )
        options = sink_options(self.options)
        return Task(
            options.producer, record_columns(schema, options.topic), options.delivery, options.dead_letters
        )
