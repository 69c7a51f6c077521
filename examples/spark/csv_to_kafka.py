"""Rows of CSV or Parquet files into a topic, with keys and headers.

It needs Java and PySpark >= 4.0; if there is no Kafka on localhost:9092, `aioproducer broker` does. Then, with a file
orders.csv whose first line is `order,customer,country,total`:

    python examples/spark/csv_to_kafka.py localhost:9092 orders orders.csv --key customer --header country

A record's key is its customer, the value all of its row as JSON. The headers are the country, and the file it comes from.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Observation, SparkSession, functions as fn


class Written(NamedTuple):
    """How much was written."""

    rows: int
    bytes: int
    """Of keys and values."""


def rows_of(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Read *files*, all of them Parquet or all CSV with a line of names; they may be directories or patterns."""
    if all(file.endswith(".parquet") for file in files):
        return spark.read.parquet(*files)
    # Without inferSchema every column is a string: 007 stays 007, and the files are read once, not twice.
    return spark.read.option("header", "true").csv(list(files))


def records_of(rows: DataFrame, key: str | None, headers: Sequence[str]) -> DataFrame:
    """Return *rows* with the columns of Kafka's records; *key* and *headers* name columns of theirs."""
    return rows.select(
        # Rows without a key are spread over the partitions; those with the same key go to the same one.
        fn.lit(None if key is None else fn.col(key)).cast("string").alias("key"),
        fn.to_json(fn.struct("*")).alias("value"),
        fn.array(
            *(header(name, fn.col(name)) for name in headers),
            header("file", fn.col("_metadata.file_name")),  # Spark has this column for every file it reads
        ).alias("headers"),
    )


def header(name: str, value: Column) -> Column:
    """Return a header with the text of *value*, or if that is null, with a null."""
    return fn.struct(fn.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def write(records: DataFrame, bootstrap_servers: str, topic: str) -> Written:
    """Write *records* to *topic*; return when all of them are acknowledged."""
    # It counts what passes, so the files need not be read a second time.
    passed = Observation()
    size = fn.coalesce(fn.octet_length("key"), fn.lit(0)) + fn.octet_length("value")
    counted = records.observe(
        passed, fn.count("*").alias("rows"), fn.coalesce(fn.sum(size), fn.lit(0)).alias("bytes")
    )
    (
        counted.write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .option("kafka.compression.type", "zstd")
        .save()
    )
    return Written(**passed.get)


def main() -> None:
    """Write the files that the command line names."""
    parser = argparse.ArgumentParser(description="Write rows of CSV or Parquet files into a topic.")
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("files", nargs="+", help="CSV, or Parquet if the names end so")
    parser.add_argument("--key", metavar="COLUMN", help="the key of a record")
    parser.add_argument("--header", metavar="COLUMN", action="append", default=[], help="may be repeated")
    given = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python is to be this one
    spark = SparkSession.builder.appName("files to Kafka").getOrCreate()
    records = records_of(rows_of(spark, given.files), given.key, given.header)
    written = write(records, given.bootstrap_servers, given.topic)
    print(f"{written.rows:,} rows, {written.bytes:,} bytes, are in topic {given.topic}")
    spark.stop()


if __name__ == "__main__":
    main()
