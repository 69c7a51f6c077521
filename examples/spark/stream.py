"""Events from files into a topic: a stream that may be killed at any moment, and started again.

It needs Java and PySpark >= 4.1; if there is no Kafka on localhost:9092, `aioproducer broker` does. Then:

    python examples/spark/stream.py localhost:9092 events in/ checkpoint/

It reads what is in the directory `in/`, or makes some files there if that is empty, and waits for more. Kill it
(kill -9), start it again with the same checkpoint, and it goes on where it was: nothing is lost. But some events may be
in the topic twice. Before Spark runs a micro-batch it notes in the checkpoint which files that is, and once all of
its rows are acknowledged, that it is done. A query that is killed in between runs this micro-batch again, the same
files; what was acknowledged of it before is then there twice. Of other micro-batches nothing is.

The headers of a record say which event it is, and they are the same each time. So the topic itself can tell:

    aioproducer audit events --bootstrap-servers localhost:9092 --run events --expect 100000

"lost" has to be 0. "duplicated" are the events that were written again, with the offsets where that begins. "Out of
order" stays 0 as long as a micro-batch is one task, that is one file of less than some megabytes: tasks do not wait for
each other.

With --exactly-once nothing is there twice, for readers of committed records (isolation.level=read_committed): each micro-batch
is a few transactions, which are committed together, and the query that is started again finds out which were.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as fn
from pyspark.sql.streaming.readwriter import DataStreamWriter

from aioproducer.spark.audit import stamp

EVENT = "number bigint, user string, page string"


def events_from(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the events of the files in *directory*, one JSON object a line, as a stream; each file is a micro-batch."""
    # A source must be able to give the same rows again, or a restart loses them: files can, a socket cannot.
    return spark.readStream.schema(EVENT).option("maxFilesPerTrigger", 1).json(str(directory))


def records_of(events: DataFrame, run: str) -> DataFrame:
    """Return a record for each event, with the headers that an audit looks for."""
    return events.select(
        fn.col("user").alias("key"),
        fn.to_json(fn.struct("*")).alias("value"),
        # The sequence is a part of the event. Made here, say by monotonically_increasing_id(), it would depend on how
        # Spark cuts a micro-batch into tasks, and an event could have another one when it is written again.
        stamp(run, "number").alias("headers"),
    )


def into_topic(
    records: DataFrame, bootstrap_servers: str, topic: str, checkpoint: Path, prefix: str | None = None
) -> DataStreamWriter:
    """Return what writes *records*, once it has a trigger and is started; with a *prefix*, exactly once."""
    writer = (
        records.writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        # The query's memory: a new one would begin with the first file again. It is for this query alone.
        .option("checkpointLocation", str(checkpoint))
    )
    if prefix is None:
        return writer
    # The prefix is where its transactional ids begin, and of no other query's.
    return writer.option("deliveryGuarantee", "exactly-once").option("transactionalIdPrefix", prefix)


def make_events(directory: Path, *, files: int = 10, events_per_file: int = 10_000) -> None:
    """Write events, numbered from 0 on over all files."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        numbers = range(file * events_per_file, (file + 1) * events_per_file)
        lines = [
            json.dumps({"number": number, "user": f"user-{number % 97}", "page": f"/{number % 13}"})
            for number in numbers
        ]
        # Under a name with a dot Spark does not see it: it must not read half a file.
        unfinished = directory / f".{file:06}.json"
        unfinished.write_text("\n".join(lines) + "\n", encoding="utf-8")
        unfinished.rename(directory / f"{file:06}.json")


def main() -> None:
    """Run the query until somebody stops it, or with --once, until all that is there is written."""
    parser = argparse.ArgumentParser(description="Write events from files into a topic, as a stream.")
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path, help="where files of events are, or come")
    parser.add_argument("checkpoint", type=Path, help="a directory for what the query has to remember")
    parser.add_argument("--run", default="events", help="how an audit calls these events")
    parser.add_argument("--exactly-once", action="store_true", help="in transactions")
    parser.add_argument("--once", action="store_true", help="end when all files that are there are written")
    given = parser.parse_args()
    if not given.directory.is_dir() or not any(given.directory.iterdir()):
        make_events(given.directory)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python is to be this one
    spark = SparkSession.builder.appName("events").getOrCreate()
    records = records_of(events_from(spark, given.directory), given.run)
    prefix = f"{given.topic}-{given.run}" if given.exactly_once else None
    writer = into_topic(records, given.bootstrap_servers, given.topic, given.checkpoint, prefix)
    query = writer.trigger(availableNow=True).start() if given.once else writer.start()
    print(f"query {query.id} runs", flush=True)
    # It returns when the query has ended, and raises what it failed with.
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
