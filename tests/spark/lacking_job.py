"""Program of tests/spark/test_cluster.py on executors that lack a package: a batch whose error is printed."""

from __future__ import annotations

import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main() -> None:
    """Write a few rows with snappy; print the last line of the error."""
    bootstrap_servers, topic = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    try:
        (
            spark.range(4)
            .selectExpr("cast(id as string) as value")
            .write.format("aioproducer")
            .mode("append")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("kafka.compression.type", "snappy")
            .option("topic", topic)
            .save()
        )
    except PySparkException as error:
        sys.stdout.write(f"REFUSED {str(error).splitlines()[-1]}\n")
    spark.stop()


if __name__ == "__main__":
    main()
