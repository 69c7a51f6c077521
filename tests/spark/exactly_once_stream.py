"""A stream of files into a topic, exactly once, through the sink with a probe: a program of its own, to be killed."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from examples.spark.stream import events_from, records_of
from tests.spark.probed_source import ProbedSource

RUN = "exactly-once"


def stream(
    spark: SparkSession,
    source: str,
    bootstrap_servers: str,
    topic: str,
    directory: Path,
    guarantee: str,
    tasks: int,
    timeout_ms: int = 60_000,
) -> DataStreamWriter:
    """Return a writer of the events of a directory, one file per micro-batch; topic and prefix have the same name."""
    rows = records_of(events_from(spark, directory / "events"), RUN)
    rows = rows.coalesce(1) if tasks == 1 else rows.repartition(tasks)
    writer = rows.writeStream.format(source)
    if source == ProbedSource.name():
        writer = writer.option("probe", str(directory / "probe"))
    return (
        writer.option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .option("deliveryGuarantee", guarantee)
        .option("transactionalIdPrefix", topic)
        .option("kafka.transaction.timeout.ms", timeout_ms)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
    )


def main() -> None:
    """Run the query until all files are written."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path)
    parser.add_argument("guarantee")
    parser.add_argument("tasks", type=int)
    parser.add_argument("timeout_ms", type=int)
    given = parser.parse_args()

    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(ProbedSource)
    query = stream(
        spark,
        "probed",
        given.bootstrap_servers,
        given.topic,
        given.directory,
        given.guarantee,
        given.tasks,
        given.timeout_ms,
    )
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
