"""Lines of JSON into the topics that they name; those that cannot be sent become dead letters, and the rest goes on.

It needs Java and PySpark >= 4.1; if there is no Kafka on localhost:9092, `aioproducer broker` does. Then:

    echo '{"topic": "orders", "key": "c-7", "value": "hello"}' > in/1.json
    echo '{"topic": null, "key": "c-8", "value": "for nobody"}' > in/2.json
    python examples/spark/dead_letters.py localhost:9092 in/ dead checkpoint/

One bad row fails its task, which is tried again, fails again, and ends the query: nothing comes behind it until somebody
has mended the data. With `onBadRow=topic:dead` such a row goes to the topic "dead" instead, with its key, its value and
headers that say why, and where it should have gone. Both are in the same transactions: whoever reads committed records sees
each row once, here or there, whatever is killed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

LINE = "topic string, partition int, key string, value string"


def lines_from(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the lines of the files in *directory*, a JSON object each, as a stream."""
    return spark.readStream.schema(LINE).json(str(directory))


def into_topics(
    records: DataFrame, bootstrap_servers: str, dead_letters: str, prefix: str, checkpoint: Path
) -> DataStreamWriter:
    """Return what writes *records*, each to its topic or as a dead letter, when it has a trigger and is started."""
    return (
        records.writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("onBadRow", f"topic:{dead_letters}")
        .option("deliveryGuarantee", "exactly-once")
        .option("transactionalIdPrefix", prefix)
        .option("checkpointLocation", str(checkpoint))
    )


def main() -> None:
    """Run the query until somebody stops it, or with --once, until all that is there is written."""
    parser = argparse.ArgumentParser(description="Write lines into the topics that they name.")
    parser.add_argument("bootstrap_servers")
    parser.add_argument("directory", type=Path, help="where files of lines are, or come")
    parser.add_argument("dead_letters", help="the topic for what cannot be sent")
    parser.add_argument("checkpoint", type=Path, help="a directory for what the query has to remember")
    parser.add_argument("--prefix", default="lines", help="how its transactional ids begin (default: lines)")
    parser.add_argument("--once", action="store_true", help="end when all files that are there are written")
    given = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python is to be this one
    spark = SparkSession.builder.appName("dead-letters").getOrCreate()
    lines = lines_from(spark, given.directory)
    writer = into_topics(lines, given.bootstrap_servers, given.dead_letters, given.prefix, given.checkpoint)
    query = writer.trigger(availableNow=True).start() if given.once else writer.start()
    print(f"query {query.id} runs", flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
