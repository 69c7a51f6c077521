"""Invalid rows are refused on the driver before any task runs, with the messages of Spark's own sink."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.kafka.apache.broker import ApacheKafka
from tests.spark.conftest import Save
from tests.spark.log import SparkLog

HEADERS = "array(named_struct('key', 'a', 'value', {}))"


@pytest.mark.parametrize(
    ("topic", "columns"),
    [
        ("orders", ["'v' as payload"]),
        (None, ["'v' as value"]),
        ("orders", ["1 as value"]),
        ("orders", ["array('v') as value"]),
        ("orders", ["'v' as value", "1.5 as key"]),
        (None, ["'v' as value", "7 as topic"]),
        ("orders", ["'v' as value", "7L as partition"]),
        ("orders", ["'v' as value", "'trace=1' as headers"]),
        ("orders", ["'v' as value", f"{HEADERS.format('1')} as headers"]),
    ],
    ids=lambda value: "; ".join(value) if isinstance(value, list) else str(value),
)
def test_unsuitable_column_is_refused_as_by_sparks_own_sink(
    spark: SparkSession, save: Save, topic: str | None, columns: list[str]
) -> None:
    rows = spark.range(1).selectExpr(*columns)
    their_writer = rows.write.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
    if topic is not None:
        their_writer = their_writer.option("topic", topic)
    with pytest.raises(PySparkException) as theirs:
        their_writer.save()
    said = str(theirs.value).split("\n")[0].rstrip(";")
    assert said
    with pytest.raises(PySparkException, match=re.escape(said)):
        save(rows, topic)


@pytest.mark.parametrize("option", ["kafka.key.serializer", "kafka.value.serializer"])
def test_serializers_are_refused_as_in_sparks_own_sink(spark: SparkSession, option: str) -> None:
    rows = spark.range(1).selectExpr("'v' as value")
    for format_ in ("kafka", "aioproducer"):
        writer = rows.write.format(format_).mode("append").option("topic", "orders")
        with pytest.raises(PySparkException, match=f"Kafka option '{option[6:]}' is not supported as"):
            writer.option("kafka.bootstrap.servers", "127.0.0.1:1").option(option, "x").save()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.lingerr.ms": "5"}, r"unknown option 'lingerr\.ms'; did you mean 'linger\.ms'\?"),
        ({"kafka.linger.ms": "soon"}, r"linger\.ms = 'soon': expected a number from 0"),
        ({"topics": "orders"}, r"unknown option 'topics'; did you mean 'topic'\?"),
        ({"acks": "1"}, r"unknown option 'acks'; did you mean 'kafka\.acks'\?"),
        ({"path": "/tmp/orders"}, r"rows go to a topic, not to the path '/tmp/orders'"),
    ],
    ids=str,
)
def test_invalid_option_is_named(spark: SparkSession, options: dict[str, str], message: str) -> None:
    writer = spark.range(1).selectExpr("'v' as value").write.format("aioproducer").mode("append")
    with pytest.raises(PySparkException, match=message):
        writer.options(topic="orders", **{"kafka.bootstrap.servers": "127.0.0.1:1"}).options(**options).save()


def test_missing_bootstrap_servers_option_is_named(spark: SparkSession) -> None:
    writer = spark.range(1).selectExpr("'v' as value").write.format("aioproducer").mode("append")
    with pytest.raises(PySparkException, match=r"option 'kafka\.bootstrap\.servers' is missing"):
        writer.option("topic", "orders").save()


def test_overwrite_mode_is_refused(spark: SparkSession) -> None:
    writer = spark.range(1).selectExpr("'v' as value").write.format("aioproducer").mode("overwrite")
    with pytest.raises(PySparkException, match="Save mode Overwrite not allowed for Kafka"):
        writer.option("topic", "orders").option("kafka.bootstrap.servers", "127.0.0.1:1").save()


def test_secrets_are_not_shown_by_a_failure(
    spark: SparkSession, save: Save, kafka: ApacheKafka, spark_log: SparkLog
) -> None:
    rows = spark.range(1).selectExpr("'v' as value")
    with pytest.raises(PySparkException) as failure:
        save(rows, "no-such-topic", ssl_keystore_password="hunter2", max_block_ms=500)
    with pytest.raises(PySparkException) as refusal:
        save(rows, "no-such-topic", ssl_keystore_pasword="hunter2")
    assert "no-such-topic" in str(failure.value)
    assert "ssl.keystore.pasword" in str(refusal.value)
    assert "hunter2" not in str(failure.value) + str(refusal.value) + spark_log.text()
