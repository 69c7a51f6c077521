"""Job of tests/spark/test_cluster.py under a limit of Python's memory: large rows at least once, then exactly once."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

ROWS = 400
ROW_BYTES = 100 * 1024
LARGEST_BYTES = 10 * 1024 * 1024
ONCE = {
    "deliveryGuarantee": "exactly-once",
    "transactionalIdPrefix": "large-rows",
    "jobId": "large-rows",
    "kafka.compression.type": "zstd",
}


def main() -> None:
    """Write the rows to the topic of each guarantee; row 7 is the largest. The second job has the processes of the first."""
    bootstrap_servers, at_least_once, exactly_once = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    rows = spark.range(0, ROWS, 1, 2).selectExpr(
        "cast(id as string) AS key",
        f"repeat(chr(cast(97 + id % 26 as int)), if(id = 7, {LARGEST_BYTES}, {ROW_BYTES})) AS value",
        "array(named_struct('key', 'n', 'value', cast(string(id) as binary))) AS headers",
    )
    for topic, more in ((at_least_once, {}), (exactly_once, ONCE)):
        (
            rows.write.format("aioproducer")
            .mode("append")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("kafka.max.request.size", str(LARGEST_BYTES + 1024 * 1024))
            .option("topic", topic)
            .options(**more)
            .save()
        )
    spark.stop()


if __name__ == "__main__":
    main()
