"""Orders into a topic as Avro or JSON Schema, in a registry's wire format: a zero, the schema's id, the order.

It needs Java and PySpark >= 4.1, a schema registry, and `confluent-kafka[avro,json]` wherever Python runs; if there is no
Kafka on localhost:9092, `aioproducer broker` does. Then:

    echo '{"id": 7, "customer": "c-7", "note": "hello"}' > in/1.json
    python examples/spark/registry.py localhost:9092 orders in/ http://localhost:8081 --form json

The serializers are confluent-kafka's, called for each row in a function on Arrow columns (`arrow_udf`, no pandas needed).
All of their options work: names of subjects, compatibility rules, references. Each task makes one, and asks the registry
once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from pyspark.sql import Column, DataFrame, SparkSession, functions as fn
from pyspark.sql.types import BinaryType

from aioproducer.contrib.schema_registry import value_serializer

ORDER = "id long not null, customer string, note string"
TEXT = ["null", "string"]
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": TEXT, "default": None},
            {"name": "note", "type": TEXT, "default": None},
        ],
    }
)
JSON_SCHEMA = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "customer": {"type": ["string", "null"]},
            "note": {"type": ["string", "null"]},
        },
    }
)


def serialized(form: str, url: str, topic: str) -> Callable[[Column], Column]:
    """Return a function of Spark's from a struct to bytes; a null stays one, which is a tombstone."""

    def serialize(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        # created in the task, because a client or a serializer cannot be pickled
        client = SchemaRegistryClient({"url": url, "timeout": 10})
        own: Any = AvroSerializer(client, AVRO) if form == "avro" else JSONSerializer(JSON_SCHEMA, client)
        values = value_serializer(own)
        for orders in batches:
            yield pa.array([values.serialize(topic, [], order) for order in orders.to_pylist()], pa.binary())

    function: Callable[[Column], Column] = fn.arrow_udf(serialize, BinaryType())  # type: ignore[attr-defined]
    return function


def records_of(orders: DataFrame, form: str, url: str, topic: str) -> DataFrame:
    """Return *orders* as keys and values."""
    order = fn.struct("id", "customer", "note")
    return orders.select(fn.col("customer").alias("key"), serialized(form, url, topic)(order).alias("value"))


def main() -> None:
    """Write what is in a directory."""
    parser = argparse.ArgumentParser(
        description="Write orders into a topic, in the format of a schema registry."
    )
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("directory", help="where files with an order a line are, in JSON")
    parser.add_argument("registry", help="its URL")
    parser.add_argument("--form", choices=["avro", "json"], default="avro")
    given = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python is to be this one
    spark = SparkSession.builder.appName("registry").getOrCreate()
    orders = spark.read.schema(ORDER).json(given.directory)
    (
        records_of(orders, given.form, given.registry, given.topic)
        .write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", given.bootstrap_servers)
        .option("topic", given.topic)
        .save()
    )
    spark.stop()


if __name__ == "__main__":
    main()
