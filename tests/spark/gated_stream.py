"""The query of examples/spark/stream.py with a gate amid its events, to be killed there: a program of its own."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession, functions as fn

from examples.spark.stream import events_from, into_topic, records_of
from tests.spark.gate import Gate


def main() -> None:
    """Run the query; events wait at the gate from number `before` on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("run")
    parser.add_argument("gate", type=Path)
    parser.add_argument("before", type=int)
    given = parser.parse_args()

    spark = SparkSession.builder.getOrCreate()
    number = Gate(given.gate).before(given.before, fn.col("number").cast("string"))
    events = events_from(spark, given.directory).withColumn("number", number.cast("bigint"))
    records = records_of(events, given.run)
    into_topic(records, given.bootstrap_servers, given.topic, given.checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
