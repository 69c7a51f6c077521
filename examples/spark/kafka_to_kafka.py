"""Events of one topic, changed, into another, exactly once: kill it whenever you like, and start it again.

It needs Java, PySpark >= 4.1, Apache Kafka, and Spark's own connector for reading from it, of the same Spark release:

    export PYSPARK_SUBMIT_ARGS="--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3 pyspark-shell"
    python examples/spark/kafka_to_kafka.py localhost:9092 events events-by-section checkpoint/

What makes it exactly once, from end to end:

- It reads committed records only. What a writer has aborted is in no micro-batch.
- Spark notes in the checkpoint which offsets a micro-batch is, before it runs. A query that was killed runs it again, with
  the same ones.
- Each task writes in a transaction, and a micro-batch is decided once. What was decided is not written again; what was
  not is aborted, and nobody who reads committed records has seen any of it.

The headers of a record go along. So if its writer has stamped it, as stream.py does, an audit of the new topic counts what
was lost or doubled all the way:

    aioproducer audit events-by-section --bootstrap-servers localhost:9092 --run events --expect 100000
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as fn
from pyspark.sql.streaming.readwriter import DataStreamWriter

EVENT = "number bigint, user string, page string"


def records_from(spark: SparkSession, bootstrap_servers: str, topic: str, at_a_time: int) -> DataFrame:
    """Return the committed records of *topic*, from its first one on, as a stream."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        # A micro-batch is as long as a transaction, and a transaction has its time: so it should not be the whole topic.
        .option("maxOffsetsPerTrigger", at_a_time)
        .load()
    )


def by_section(records: DataFrame) -> DataFrame:
    """Return a record for each of *records*: where on the site the event was, with that for a key."""
    event = fn.from_json(fn.col("value").cast("string"), EVENT)
    records = records.withColumn("event", event).select("headers", "event.*")
    section = fn.when(fn.col("page").isin("/1", "/2", "/3"), "shop").otherwise("rest")
    return records.withColumn("section", section).select(
        fn.col("section").alias("key"),
        fn.to_json(fn.struct("number", "user", "page", "section")).alias("value"),
        # only the headers: a column `partition` would decide on the partition
        "headers",
    )


def into_topic(
    records: DataFrame, bootstrap_servers: str, topic: str, prefix: str, checkpoint: Path
) -> DataStreamWriter:
    """Return what writes *records*, each once, when it has a trigger and is started."""
    return (
        records.writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .option("deliveryGuarantee", "exactly-once")
        # How the transactional ids begin: of this query, for as long as its checkpoint lives, and of no other.
        .option("transactionalIdPrefix", prefix)
        .option("checkpointLocation", str(checkpoint))
    )


def main() -> None:
    """Run the query until somebody stops it, or with --once, until all that is there is written."""
    parser = argparse.ArgumentParser(description="Copy a topic, with changes, exactly once.")
    parser.add_argument("bootstrap_servers")
    parser.add_argument("source", help="the topic to read")
    parser.add_argument("target", help="the topic to write to")
    parser.add_argument("checkpoint", type=Path, help="a directory for what the query has to remember")
    parser.add_argument("--prefix", help="how its transactional ids begin (default: the target, and -query)")
    parser.add_argument("--at-a-time", type=int, default=100_000, help="records of a micro-batch, at most")
    parser.add_argument("--once", action="store_true", help="end when all records that are there are written")
    given = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python is to be this one
    spark = SparkSession.builder.appName("kafka-to-kafka").getOrCreate()
    records = by_section(records_from(spark, given.bootstrap_servers, given.source, given.at_a_time))
    prefix = given.prefix or f"{given.target}-query"
    writer = into_topic(records, given.bootstrap_servers, given.target, prefix, given.checkpoint)
    query = writer.trigger(availableNow=True).start() if given.once else writer.start()
    print(f"query {query.id} runs", flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
