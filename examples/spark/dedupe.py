"""Events of a topic that came twice, into another one that has each once: by their id, as long as a watermark remembers.

It needs what kafka_to_kafka.py needs. Then:

    export PYSPARK_SUBMIT_ARGS="--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3 pyspark-shell"
    python examples/spark/dedupe.py localhost:9092 events events-once checkpoint/

Two things are easily taken for one here. A writer that is not idempotent, or a user who clicks twice, puts an event into
the topic twice: that is what this removes, by the field `id` of the event. That this query itself doubles nothing
when it is killed is what `deliveryGuarantee=exactly-once` is for. It takes both.

Spark remembers an id until no event that is so much earlier is expected any more: the watermark, which follows the times of
the events (the field `time`, not when they came). A second one that comes later than that is let through; so make it
as long as your writers try again, and mind that all ids of that time are in the checkpoint's state.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as fn
from pyspark.sql.streaming.readwriter import DataStreamWriter

EVENT = "id string, time timestamp, user string"


def events_from(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """Return the committed events of *topic*, from its first one on, as a stream; `value` is the event as it came."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    value = fn.col("value").cast("string")
    return records.select(value.alias("value"), fn.from_json(value, EVENT).alias("event")).select(
        "value", "event.*"
    )


def once_each(events: DataFrame, remembered: str) -> DataFrame:
    """Return a record for the first event of each id, which is *remembered* so long, such as "2 hours"."""
    first = events.withWatermark("time", remembered).dropDuplicatesWithinWatermark(["id"])
    return first.select(fn.col("user").alias("key"), "value")


def into_topic(
    records: DataFrame, bootstrap_servers: str, topic: str, prefix: str, checkpoint: Path
) -> DataStreamWriter:
    """Return what writes *records*, each once, when it has a trigger and is started."""
    return (
        records.writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .option("deliveryGuarantee", "exactly-once")
        .option("transactionalIdPrefix", prefix)
        .option("checkpointLocation", str(checkpoint))
    )


def main() -> None:
    """Run the query until somebody stops it, or with --once, until all that is there is written."""
    parser = argparse.ArgumentParser(description="Copy a topic without the events that are in it twice.")
    parser.add_argument("bootstrap_servers")
    parser.add_argument("source", help="the topic to read")
    parser.add_argument("target", help="the topic to write to")
    parser.add_argument("checkpoint", type=Path, help="a directory for what the query has to remember")
    parser.add_argument("--remembered", default="2 hours", help="how long an id is known (default: 2 hours)")
    parser.add_argument("--prefix", help="how its transactional ids begin (default: the target, and -query)")
    parser.add_argument("--once", action="store_true", help="end when all events that are there are written")
    given = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python is to be this one
    spark = SparkSession.builder.appName("dedupe").getOrCreate()
    records = once_each(events_from(spark, given.bootstrap_servers, given.source), given.remembered)
    prefix = given.prefix or f"{given.target}-query"
    writer = into_topic(records, given.bootstrap_servers, given.target, prefix, given.checkpoint)
    query = writer.trigger(availableNow=True).start() if given.once else writer.start()
    print(f"query {query.id} runs", flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
