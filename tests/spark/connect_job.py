"""A program that knows Spark through Spark Connect alone: a batch, a stream, a stream exactly once, and foreachBatch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000


def main() -> None:
    """Write ROWS rows in each way; values are `way-number`."""
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
        for _ in range(2):  # what is committed is skipped
            batch.write.format("aioproducer").mode("append").options(**named).save()

    for way, writer in {
        "stream": rows("stream").writeStream.format("aioproducer").options(**options),
        "once": rows("once").writeStream.format("aioproducer").options(**once),
        "foreach": rows("foreach").writeStream.foreachBatch(write),
    }.items():
        checkpoint = str(given.directory / f"checkpoint-{way}")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
