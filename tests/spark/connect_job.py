"""A program on Spark Connect alone: a batch, streams at least once and exactly once, and foreachBatch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.features import HAS_STREAM_SINK

ROWS = 1_000
WAYS = ("batch", "stream", "once", "foreach") if HAS_STREAM_SINK else ("batch", "foreach")


def main() -> None:
    """Write ROWS rows in each of WAYS; values are `way-number`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    builder = SparkSession.builder.remote("local[2,2]")
    for name, value in json.loads((given.directory / "settings.json").read_text()).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    options = {"kafka.bootstrap.servers": given.bootstrap_servers, "topic": given.topic}
    once = options | {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": f"{given.topic}-stream"}
    events = given.directory / "events"
    spark.range(ROWS).write.json(str(events))

    def rows(way: str) -> DataFrame:
        stream = spark.readStream.schema("id long").json(str(events))
        return stream.selectExpr(f"concat('{way}-', id) as value")

    batch = spark.range(ROWS).selectExpr("concat('batch-', id) as value")
    batch.write.format("aioproducer").mode("append").options(**options).save()
    job = options | {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": f"{given.topic}-jobs"}

    def write(batch: DataFrame, number: int) -> None:
        named = job | {"jobId": f"foreach-{number}"}
        for _ in range(2):  # committed batches are skipped
            batch.write.format("aioproducer").mode("append").options(**named).save()

    streams = {
        "stream": rows("stream").writeStream.format("aioproducer").options(**options),
        "once": rows("once").writeStream.format("aioproducer").options(**once),
        "foreach": rows("foreach").writeStream.foreachBatch(write),
    }
    for way in WAYS[1:]:
        checkpoint = str(given.directory / f"checkpoint-{way}")
        query = streams[way].option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
