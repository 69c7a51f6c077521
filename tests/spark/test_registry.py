"""Columns in a schema registry's wire format, as the example writes them, and as consumers read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as fn

from examples.spark import registry as example
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.spark.conftest import Save
from tests.unit.contrib.registry_fake import RegistryFake, registry

ORDERS = [
    {"id": 7, "customer": "c-7", "note": "grün"},
    {"id": 8, "customer": "c-8", "note": None},
    {"id": 9, "customer": None, "note": ""},
]


pytestmark = pytest.mark.skipif(not hasattr(fn, "arrow_udf"), reason="fn.arrow_udf came with Spark 4.1")


@pytest.fixture
def fake() -> Iterator[RegistryFake]:
    with registry() as running:
        yield running


@pytest.mark.parametrize("form", ["avro", "json"])
def test_orders_are_read_by_consumers_that_ask_the_registry(
    spark: SparkSession,
    kafka: ApacheKafka,
    topic: str,
    fake: RegistryFake,
    form: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "1.json").write_text("".join(f"{json.dumps(order)}\n" for order in ORDERS), encoding="utf-8")
    arguments = [kafka.bootstrap_servers, topic, str(tmp_path), fake.url, "--form", form]
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setattr("sys.argv", ["registry.py", *arguments])
    example.main()
    (schema,) = fake.schemas
    assert schema["subject"] == f"{topic}-value"
    client = SchemaRegistryClient({"url": fake.url})
    read = (
        AvroDeserializer(client)
        if form == "avro"
        else JSONDeserializer(example.JSON_SCHEMA, schema_registry_client=client)
    )
    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert {(each.value or b"")[:5] for each in records} == {b"\0" + schema["id"].to_bytes(4, "big")}
    found = [read(each.value, SerializationContext(topic, MessageField.VALUE)) for each in records]
    assert sorted(found, key=lambda order: order["id"]) == ORDERS
    assert {each.key for each in records} == {b"c-7", b"c-8", None}


def test_task_sends_one_request_to_the_registry(
    spark: SparkSession, kafka: ApacheKafka, topic: str, fake: RegistryFake, save: Save
) -> None:
    orders = spark.range(0, 40_000, numPartitions=2).selectExpr("id", "'c' as customer", "'' as note")
    save(example.records_of(orders, "avro", fake.url, topic), topic)
    assert len(read_with_librdkafka(kafka.bootstrap_servers, topic)) == 40_000
    assert 1 <= sum(each.startswith("POST") for each in fake.requests) <= 2


def test_row_that_violates_the_schema_fails_the_job(
    spark: SparkSession, topic: str, fake: RegistryFake, save: Save
) -> None:
    orders = spark.range(1).select(
        fn.expr("cast(null as long)").alias("id"), fn.lit("c").alias("customer"), fn.lit("").alias("note")
    )
    with pytest.raises(PySparkException, match="id"):
        save(example.records_of(orders, "avro", fake.url, topic), topic)


def test_unreachable_registry_is_named(spark: SparkSession, topic: str, save: Save) -> None:
    orders = spark.range(1).selectExpr("id", "'c' as customer", "'' as note")
    with pytest.raises(PySparkException, match="the schema registry cannot be reached"):
        save(example.records_of(orders, "avro", "http://127.0.0.1:1", topic), topic)
