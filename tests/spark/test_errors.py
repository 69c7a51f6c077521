"""The text of an error in Spark: one line of this sink, without a Python traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.kafka.apache.broker import ApacheKafka
from tests.spark.conftest import NewTopic
from tests.spark.features import needs_stream_sink
from tests.spark.log import SparkLog

BASE = "pyspark.errors.exceptions.base."
NOT_A_READER = (
    BASE
    + "PySparkNotImplementedError: the format 'aioproducer' only writes; read the topic with Spark's own format 'kafka'"
)


def text_of(action: Callable[[], object]) -> list[str]:
    with pytest.raises(PySparkException) as raised:
        action()
    assert "Traceback" not in str(raised.value)
    assert raised.value.__cause__ is None
    return str(raised.value).splitlines()


def assert_said_by_driver(lines: list[str], what: str) -> None:
    """Spark's own text, the line of this sink, and the SQLSTATE that Spark appends to the line."""
    first, last = lines
    assert first.startswith("[PYTHON_DATA_SOURCE_ERROR] ")
    assert first.partition(": ")[2].startswith(what)
    assert last == " SQLSTATE: 38000"


def written(rows: DataFrame, kafka: ApacheKafka, **options: str) -> Callable[[], object]:
    writer = rows.write.format("aioproducer").mode("append")
    return writer.options(**{"kafka.bootstrap.servers": kafka.bootstrap_servers}, **options).save


def test_error_of_a_batch_is_one_line(spark: SparkSession, kafka: ApacheKafka) -> None:
    rows = spark.range(2).selectExpr("'v' as value")
    assert_said_by_driver(
        text_of(written(rows, kafka, topics="orders")),
        BASE + "PySparkValueError: unknown option 'topics'; did you mean 'topic'?",
    )
    assert_said_by_driver(
        text_of(written(spark.range(1), kafka, topic="orders")),
        BASE + "PySparkValueError: Required attribute 'value' not found",
    )
    assert_said_by_driver(
        text_of(written(spark.range(1).selectExpr("1 as value"), kafka, topic="orders")),
        BASE + "PySparkTypeError: value attribute unsupported type int.",
    )


def test_failure_of_a_task_is_one_line(
    spark: SparkSession, kafka: ApacheKafka, new_topic: NewTopic, spark_log: SparkLog
) -> None:
    topic = new_topic(3, max_message_bytes="2000")
    rows = spark.range(0, 300, 1, 1).selectExpr("repeat('x', 3000) as value")
    *_, first, last = text_of(written(rows, kafka, topic=topic))
    assert first.strip().startswith("An exception was thrown from the Python worker")  # Spark 4.0 says more
    assert last.startswith(BASE + "PySparkRuntimeError: SendTableError: row 0 (topic ")
    assert "MessageTooLarge" in last
    assert last.endswith("; rows are counted from 0 in partition 0 of the DataFrame")
    attempts = 2
    assert spark_log.text().count("batch.failed ") == attempts, "one line per cause, and not per batch"


@needs_stream_sink
def test_error_of_a_stream_is_one_line(spark: SparkSession, kafka: ApacheKafka, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("v\n", encoding="utf-8")
    rows = spark.readStream.text(str(tmp_path / "in"))
    for more, said in {
        ("topics", "orders"): "PySparkValueError: unknown option 'topics'; did you mean 'topic'?",
        (
            "topic",
            "missing",
        ): "PlanningError: UnknownTopicOrPartition: topic 'missing': the brokers do not have it",
    }.items():
        given = rows.writeStream.format("aioproducer").option(*more)
        given = given.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        given = given.option("checkpointLocation", str(tmp_path / more[0]))
        lines = text_of(given.trigger(availableNow=True).start().awaitTermination)
        assert said in lines[0]
        assert lines[1:3] == [" SQLSTATE: 38000 SQLSTATE: XXKST", "=== Streaming Query ==="]


def test_read_error_names_the_kafka_format(spark: SparkSession, tmp_path: Path) -> None:
    reads = {
        "load": lambda: spark.read.format("aioproducer").load(),
        "load with columns": lambda: spark.read.format("aioproducer").schema("value string").load().collect(),
        "stream": lambda: spark.readStream.format("aioproducer").load(),
    }
    for read in reads.values():
        assert_said_by_driver(text_of(read), NOT_A_READER)
    rows = spark.readStream.format("aioproducer").schema("value string").load()
    query = (
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(once=True).start()
    )
    assert any(NOT_A_READER in line for line in text_of(query.awaitTermination))
