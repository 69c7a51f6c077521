"""The audit of `aioproducer.audit` for runs of any size, by operations on DataFrames. No row reaches the driver.

    records = from_kafka(spark, "localhost:9092", "orders", "nightly-7")
    print(audit(records, run="nightly-7", expect=1_000_000_000))

The audit needs a Spark session, and a topic whose records have the headers of `aioproducer.audit`. The audit does not
need the sink.
"""

from __future__ import annotations

from typing import Final, Literal

from pyspark.sql import Column, DataFrame, Row, SparkSession, functions as fn
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType
from pyspark.sql.window import Window

from aioproducer.audit import (
    FIRST_LOST,
    LANE_HEADER,
    MAX_DIGITS,
    RUN_HEADER,
    SEQUENCE_HEADER,
    AuditReport,
    PartitionAudit,
)

JSON_COLUMNS: Final = "partition int, offset bigint, sequence bigint, run string, key string, lane string"
INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)


def audit(
    records: DataFrame, *, run: str | None = None, expect: int | None = None, order: bool = False
) -> AuditReport:
    """Return the report of `aioproducer.audit.Audit` on *records*, which has each record once, in any order.

    *records* has the integer columns `partition`, `offset` and `sequence`. Only `sequence` may have nulls. With a column
    `run` and the argument *run*, only the rows of *run* count. With a column `lane`, records have an order within each
    lane of a partition. Other columns are ignored. With *order*, records out of order are a flaw.

    The audit is one job with two shuffles: by sequence, then by partition and lane. One task sorts a lane. If records
    were lost, a second job finds the first lost sequences, so the data should not change between the jobs.

    Raises:
        ValueError: a column is missing, an offset is null or occurs twice, *expect* is negative.
        TypeError: a column has another type than integer.
    """
    if expect is not None and expect < 0:
        raise ValueError(f"expect = {expect}: expected a number of records, 0 or more")
    _check_columns(records)
    if run is not None and "run" in records.columns:
        records = records.where(fn.col("run") == run)
    sequence = fn.col("sequence").cast("bigint")
    is_expected = sequence >= 0 if expect is None else (sequence >= 0) & (sequence < expect)
    records = records.select(
        fn.col("partition").cast("int").alias("partition"),
        fn.col("offset").cast("bigint").alias("offset"),
        fn.when(is_expected, sequence).alias("sequence"),
        (fn.col("lane") if "lane" in records.columns else fn.lit(None).cast("binary")).alias("lane"),
    )
    rows = sorted(_by_partition(records).collect(), key=lambda row: row.partition or 0)
    if broken := sum(row.records if row.partition is None else row.broken for row in rows):
        raise ValueError(
            f"records: {broken:,} rows without a partition or an offset, or with those of another row;"
            " give each record once"
        )
    expected = max((row.highest + 1 for row in rows if row.highest is not None), default=0)
    if expect is not None:
        expected = expect
    found = sum(row.once for row in rows)
    return AuditReport(
        run=run,
        expected=expected,
        expect_was_given=expect is not None,
        lost=expected - found,
        first_lost=_first_lost(records, expected, found),
        partitions=tuple(map(_partition_audit, rows)),
        order_required=order,
    )


def stamp(run: str, sequence: Column | str, lane: Column | str | None = None) -> Column:
    """Return the headers by which an audit recognises a record, for the column `headers` of the written DataFrame.

    *sequence* numbers all rows of the run from 0, and must be a column of the data, so that a row keeps its number.
    `monotonically_increasing_id()` depends on the partitions of the DataFrame, so a row that is written again may have
    another number.

    *lane* names the task, for an audit of the order: use `spark_partition_id()` in the last step before the write.
    A string is the name of a column.
    """
    number = fn.col(sequence) if isinstance(sequence, str) else sequence
    headers = {RUN_HEADER: fn.lit(run), SEQUENCE_HEADER: number.cast("bigint")}
    if lane is not None:
        headers[LANE_HEADER] = fn.col(lane) if isinstance(lane, str) else lane
    return fn.array(
        *(
            fn.struct(fn.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in headers.items()
        )
    )


def from_kafka(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    run: str,
    *,
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
) -> DataFrame:
    """Return the records of *run* in a topic, for `audit`. `from_kafka` needs Spark's own Kafka connector.

    By default the result omits records of aborted and open transactions, as in `aioproducer audit`. With
    *isolation_level* `read_uncommitted` the result contains records of aborted and open transactions.

    For other connection options, pass `of_run` the DataFrame of Spark's Kafka source, read with `includeHeaders` and
    `kafka.isolation.level`.

    Raises:
        ValueError: *isolation_level* has another value.
    """
    if isolation_level not in {"read_committed", "read_uncommitted"}:
        raise ValueError(f"isolation_level={isolation_level!r}: expected read_committed or read_uncommitted")
    kafka = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.isolation.level", isolation_level)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    return of_run(kafka, run)


def of_run(records: DataFrame, run: str) -> DataFrame:
    """Return the records whose header names *run*, for `audit`; *records* has the columns of Spark's Kafka source."""
    digits = _header(SEQUENCE_HEADER).cast("string")
    is_number = digits.rlike(rf"\A[0-9]{{1,{MAX_DIGITS}}}\z")
    return records.where(_header(RUN_HEADER) == fn.lit(run).cast("binary")).select(
        "partition",
        "offset",
        "key",
        fn.lit(run).alias("run"),
        fn.when(is_number, digits).cast("bigint").alias("sequence"),
        _header(LANE_HEADER).alias("lane"),
    )


def from_parquet(spark: SparkSession, path: str) -> DataFrame:
    """Return the records in Parquet files with the columns that `audit` takes."""
    return spark.read.parquet(path)


def from_json(spark: SparkSession, path: str) -> DataFrame:
    """Return the records in files with one JSON object per line, with the columns that `audit` takes.

    A line without a JSON object fails the audit.
    """
    return spark.read.schema(JSON_COLUMNS).option("mode", "FAILFAST").json(path)


def _check_columns(records: DataFrame) -> None:
    for name in ("partition", "offset", "sequence"):
        if name not in records.columns:
            raise ValueError(
                f"an audit needs a column {name!r}; the columns are {', '.join(records.columns)}"
            )
        found = records.schema[name].dataType
        if not isinstance(found, INTEGERS):
            raise TypeError(f"column {name!r} is of type {found.simpleString()}, not of integers")


def _by_partition(records: DataFrame) -> DataFrame:
    """Return a row of counts per partition; unexpected sequences in *records* are null."""
    copies = Window.partitionBy("sequence").orderBy("partition", "offset")
    log = Window.partitionBy("partition", "lane").orderBy("offset")
    earlier = log.rowsBetween(Window.unboundedPreceding, -1)
    offset, sequence, first = fn.col("offset"), fn.col("sequence"), fn.col("first")
    judged = (
        records.withColumn("first", fn.when(fn.row_number().over(copies) == 1, sequence))
        .withColumn("highest_before", fn.max("first").over(earlier))
        .withColumn("offset_before", fn.lag("offset").over(log))
    )
    return judged.groupBy("partition").agg(
        fn.count("*").alias("records"),
        fn.min("offset").alias("first_offset"),
        fn.max("offset").alias("last_offset"),
        *_how_many_and_where("duplicated", sequence.isNotNull() & first.isNull()),
        *_how_many_and_where("out_of_order", first < fn.col("highest_before")),
        *_how_many_and_where("unexpected", sequence.isNull()),
        fn.count("first").alias("once"),
        fn.max("sequence").alias("highest"),
        fn.count_if(offset.eqNullSafe(fn.col("offset_before"))).alias("broken"),
    )


def _how_many_and_where(name: str, flaw: Column) -> tuple[Column, Column]:
    return fn.count_if(flaw).alias(name), fn.min(fn.when(flaw, fn.col("offset"))).alias(f"{name}_at")


def _partition_audit(row: Row) -> PartitionAudit:
    values = row.asDict()
    return PartitionAudit(**{name: values[name] for name in PartitionAudit.__dataclass_fields__})


def _first_lost(records: DataFrame, expected: int, found: int) -> tuple[int, ...]:
    """Return the lowest lost sequences.

    At most *found* of the first *found* + 20 numbers are present, so these numbers contain 20 lost sequences.
    """
    if found == expected:
        return ()
    end = min(expected, found + FIRST_LOST)
    candidates = records.sparkSession.range(end).withColumnRenamed("id", "sequence")
    lost = candidates.join(records.select("sequence"), "sequence", "left_anti").orderBy("sequence")
    return tuple(row.sequence for row in lost.limit(FIRST_LOST).collect())


def _header(name: str) -> Column:
    named = fn.filter("headers", lambda header: header["key"] == name)
    return fn.get(named, 0)["value"]
