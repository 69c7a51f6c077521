"""A batch of two tasks, the first of which waits at a gate: a program of its own, for a cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession, functions as fn

from examples.spark.stream import records_of
from tests.spark.gate import Gate


def main() -> None:
    """Write the events; they wait at the gate from number `before` on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("events", type=int)
    parser.add_argument("run")
    parser.add_argument("gate", type=Path)
    parser.add_argument("before", type=int)
    given = parser.parse_args()

    spark = SparkSession.builder.getOrCreate()
    number = Gate(given.gate).before(given.before, fn.col("id").cast("string"))
    events = spark.range(0, given.events, numPartitions=2).select(
        number.cast("bigint").alias("number"), fn.lit("user").alias("user"), fn.lit("/").alias("page")
    )
    (
        records_of(events, given.run)
        .write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", given.bootstrap_servers)
        .option("topic", given.topic)
        .save()
    )
    spark.stop()


if __name__ == "__main__":
    main()
