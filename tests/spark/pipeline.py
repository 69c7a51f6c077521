"""The definitions of a declarative pipeline, which tests/spark/test_pipelines.py runs: events of files into a topic."""

from __future__ import annotations

import os

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

pipelines.create_sink(
    "clicks",
    "aioproducer",
    {
        "kafka.bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
        "topic": os.environ["TOPIC"],
        "failOnDataLoss": "false",
    },
)


@pipelines.append_flow(target="clicks")
def into_the_topic() -> DataFrame:
    """Return the rows to write."""
    spark = SparkSession.active()
    return spark.readStream.schema("value string").json(os.environ["EVENTS"])
