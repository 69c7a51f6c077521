"""A batch of two tasks (or of one), one or both of which wait at a gate: a program of its own, for a cluster."""

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
    parser.add_argument("--guarantee", help="exactly once: its prefix is the topic, and its job, too")
    parser.add_argument(
        "--shuffled", type=Path, help="the rows are shuffled; the other task waits at this gate"
    )
    parser.add_argument("--linger", type=Path, help="the driver waits at this gate, with everything written")
    given = parser.parse_args()

    spark = SparkSession.builder.getOrCreate()
    tasks = 1 if given.guarantee == "exactly-once-single" else 2
    events = spark.range(0, given.events, numPartitions=tasks)
    number = Gate(given.gate).before(given.before, fn.col("id").cast("string"))
    if given.shuffled:
        events = events.repartitionByRange(2, "id")
        number = Gate(given.shuffled).before(given.events - given.before, number)
    events = events.select(
        number.cast("bigint").alias("number"), fn.lit("user").alias("user"), fn.lit("/").alias("page")
    )
    writer = (
        records_of(events, given.run)
        .write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", given.bootstrap_servers)
        .option("topic", given.topic)
    )
    if given.guarantee:
        writer = writer.option("deliveryGuarantee", given.guarantee)
        writer = writer.option("transactionalIdPrefix", given.topic).option("jobId", given.topic)
    writer.save()
    if given.linger:
        Gate(given.linger).wait_until_open()
    spark.stop()


if __name__ == "__main__":
    main()
