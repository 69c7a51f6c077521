"""The format "aioproducer" on the driver, and the columns of a DataFrame that form a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.errors import (
    PySparkNotImplementedError,
    PySparkRuntimeError,
    PySparkTypeError,
    PySparkValueError,
)
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import DataType, StringType, StructType

from aioproducer.arrow.arrow_columns import Columns
from aioproducer.errors import ConfigError
from aioproducer.spark.committing import planned
from aioproducer.spark.sink_options import sink_options
from aioproducer.spark.task import Task
from aioproducer.spark.writer import BatchWriter, StreamWriter, hide_traceback, pyspark_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader


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

    def latestOffset(self, *_: object) -> dict[str, int]:  # noqa: N802 - Spark 4.1 passes no argument
        """Raise PySparkNotImplementedError: a restarted query calls `latestOffset` first."""
        raise _not_implemented(ONLY_WRITES)

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Raise PySparkNotImplementedError: a source without offsets has no partitions to read."""
        raise _not_implemented(ONLY_WRITES)


class AioProducerSource(datasource.DataSource):
    """Writes DataFrames and streams to Kafka, with the columns and options of Spark's own Kafka sink.

    An error of a column or an option is raised on the driver, before any task runs.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aioproducer"

    def schema(self) -> StructType:
        """Raise PySparkNotImplementedError: Spark asks for the columns of a read, and of a table created without columns."""
        raise _not_implemented(f"{ONLY_WRITES}; {NEEDS_COLUMNS}")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raise PySparkNotImplementedError."""
        raise _not_implemented(ONLY_WRITES)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader that raises PySparkNotImplementedError when the query starts.

        If `streamReader` raised the error, PySpark 4.2 would show its own UnboundLocalError.
        """
        return NoStream()

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's signature
        """Return the writer of a DataFrame with *schema*.

        Raises:
            PySparkValueError: an option or a column is wrong, or the save mode is Overwrite.
            PySparkTypeError: a column has an unsupported type.
        """
        with pyspark_errors():
            if overwrite:
                raise ConfigError(
                    "Save mode Overwrite not allowed for Kafka. The allowed save mode is Append: mode('append')."
                )
            task = self._task(schema)
            return BatchWriter(planned(task))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802 - Spark's signature
        """Return the writer of the micro-batches of a stream with *schema*.

        *overwrite* is True in output mode complete, in which every micro-batch appends the whole result.

        Raises: the errors of `writer`; PySparkRuntimeError: Spark is older than 4.1.
        """
        with pyspark_errors():
            if not hasattr(datasource, "DataSourceStreamArrowWriter"):
                raise PySparkRuntimeError(NO_STREAMS.format(version=pyspark.__version__))
            return StreamWriter(self._task(schema), self.options.get("queryName", ""))

    def _task(self, schema: StructType) -> Task:
        options = sink_options(self.options)
        columns = record_columns(schema, options.topic, options.timestamp_column)
        return Task(options.producer, columns, options.delivery, options.dead_letters, limit=options.limit)


def _not_implemented(message: str) -> PySparkNotImplementedError:
    hide_traceback()
    return PySparkNotImplementedError(message)


_TEXT: Final = ("string", "binary")

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": _TEXT,
    "value": _TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
"""The columns of a record, and the types that each column may have. Other columns of a DataFrame are left out."""

TIMESTAMPS: Final = ("timestamp", "timestamp_ntz")
"""Types that the column of the option `timestampColumn` may have."""


def record_columns(schema: StructType, topic: str | None, timestamp_column: str | None = None) -> Columns:
    """Return the columns of *schema* that make records; the option *topic* overrides a column `topic`.

    *timestamp_column* names the column with the times of the records; with None, no column has times, as in Spark's sink.

    Raises:
        PySparkValueError: there is no column `value`, no *timestamp_column*, no topic, or a column twice.
        PySparkTypeError: a column has an unsupported type.
    """
    counts = Counter(schema.fieldNames())
    names = [name for name in TYPES if name in counts and not (name == "topic" and topic is not None)]
    if topic is None and "topic" not in counts:
        raise PySparkValueError(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic. In SQL: INSERT INTO … WITH ('topic' = '…')."
        )
    if "value" not in counts:
        raise PySparkValueError("Required attribute 'value' not found")
    for name in names:
        if counts[name] > 1:
            raise PySparkValueError(f"{name} attribute is ambiguous: {counts[name]} columns have that name")
        found = _name_of(schema[name].dataType)
        if found not in TYPES[name]:
            raise PySparkTypeError(
                f"{name} attribute unsupported type {found}. {name} must be a(n) {' or '.join(TYPES[name])}"
            )
    if timestamp_column is not None:
        _check_timestamps(schema, timestamp_column, counts[timestamp_column])
    parts = {name: name for name in names if name not in ("topic", "value")}
    return Columns(
        value="value",
        timestamp=timestamp_column,
        topic=topic,
        topic_column="topic" if topic is None else None,
        **parts,
    )


def _check_timestamps(schema: StructType, name: str, count: int) -> None:
    if not count:
        nearest = get_close_matches(name.lower(), {each.lower(): each for each in schema.fieldNames()}, n=1)
        named = [each for each in schema.fieldNames() if nearest and each.lower() == nearest[0]]
        hint = f"; did you mean {named[0]!r}?" if named else ""
        raise PySparkValueError(f"timestampColumn={name!r}: no such column{hint}")
    if count > 1:
        raise PySparkValueError(
            f"timestampColumn={name!r}: {count} columns have that name; rename all but one"
        )
    found = schema[name].dataType.simpleString()
    if found not in TIMESTAMPS:
        raise PySparkTypeError(
            f"timestampColumn={name!r}: the column is {found}, not a timestamp; cast it, or use timestamp_millis() for"
            " milliseconds"
        )


def _name_of(kind: DataType) -> str:
    return "string" if isinstance(kind, StringType) else kind.simpleString()  # any collation
