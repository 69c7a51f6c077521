"""A Python sink that discards all rows. Its micro-batches show Spark's own overhead for a Python sink."""

from __future__ import annotations

from collections.abc import Iterator

from pyarrow import RecordBatch
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from benchmarks.spark.table import IDLE


def register(spark: SparkSession) -> None:
    """Register the sink for `format(IDLE)`."""

    # Defined here, so that Spark sends the classes to its processes, which cannot import this module.
    class Writer(DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Sink(DataSource):
        @classmethod
        def name(cls) -> str:
            return IDLE

        def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: FBT001, N802 - Spark's own
            return Writer()

    spark.dataSource.register(Sink)
