"""Program of tests/spark/test_cluster.py on a cluster: a batch, a stream, and an audit of their records."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as fn

from aioproducer.spark.audit import audit, from_kafka
from examples.spark.stream import events_from, into_topic, records_of

TASKS = 4


def main() -> None:
    """Write the events twice, as runs "batch" and "stream", and print the report of an audit as a line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path, help="where files of events are")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("events", type=int, help="how many there are")
    given = parser.parse_args()

    spark = SparkSession.builder.getOrCreate()
    events = spark.range(0, given.events, numPartitions=TASKS).selectExpr(
        "id as number", "concat('user-', id % 97) as user", "'/' as page"
    )
    (
        with_executor(records_of(events, "batch"))
        .write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", given.bootstrap_servers)
        .option("topic", given.topic)
        .save()
    )
    stream = with_executor(records_of(events_from(spark, given.directory), "stream").repartition(TASKS))
    query = into_topic(stream, given.bootstrap_servers, given.topic, given.checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    found = from_kafka(spark, given.bootstrap_servers, given.topic, "stream")
    report = audit(found, run="stream", expect=given.events)
    sys.stdout.write(f"{json.dumps(report.to_dict())}\n")
    spark.stop()


def with_executor(records: DataFrame) -> DataFrame:
    """Return *records* with one more header: the executor that made them."""
    # Python runs in the executor's directory, to which the worker gave its number for a name.
    executor = fn.udf(lambda: Path.cwd().name, "string", useArrow=False)().cast("binary")
    header = fn.struct(fn.lit("executor").alias("key"), executor.alias("value"))
    return records.withColumn("headers", fn.array_append("headers", header))


if __name__ == "__main__":
    main()
