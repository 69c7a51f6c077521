"""Faults while rows are written: a clear error in bounded time, or a job that succeeds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as fn

from tests.kafka.apache.broker import ApacheKafka, free_ports
from tests.kafka.readback import await_records, read_with_librdkafka
from tests.spark.conftest import Save
from tests.spark.gate import Gate
from tests.spark.log import SparkLog


def numbered(spark: SparkSession, count: int) -> DataFrame:
    """Return rows in one task, with their numbers as values."""
    return spark.range(0, count, numPartitions=1).selectExpr("cast(id as string) as value")


def failure_of(save: Save, rows: DataFrame, topic: str | None, **options: object) -> str:
    """Return the message of the error of a job."""
    with pytest.raises(PySparkException) as failure:
        save(rows, topic, **options)
    return str(failure.value)


def counted(kafka: ApacheKafka, topic: str) -> Counter[int]:
    """Return the count of each number in *topic*."""
    return Counter(int(each.value or b"") for each in read_with_librdkafka(kafka.bootstrap_servers, topic))


@contextmanager
def while_half_done(
    gate: Gate, kafka: ApacheKafka, topic: str, event: Callable[[], None], *afterwards: Callable[[], None]
) -> Iterator[None]:
    """Let *event* happen once a job waits at *gate* and the first of its rows are in *topic*; then open the gate."""

    def happen() -> None:
        try:
            gate.wait_until_reached()
            await_records(kafka.bootstrap_servers, topic, lambda records: len(records) > 0)
            event()
        finally:
            gate.open()  # the job is to end, whatever fails here
        for each in afterwards:
            each()

    with ThreadPoolExecutor(1) as pool:  # the job stays in this thread: Spark finds the format only here
        happened = pool.submit(happen)
        yield
        happened.result()


def test_missing_topic_is_named(spark: SparkSession, save: Save) -> None:
    began = time.monotonic()
    said = failure_of(save, numbered(spark, 10), "no-such-topic")
    assert time.monotonic() - began < 40, "on the driver, not kafka.max.block.ms in each attempt of a task"
    assert "UnknownTopicOrPartition: topic 'no-such-topic': the brokers do not have it" in said
    assert said.startswith("[PYTHON_DATA_SOURCE_ERROR]")


def test_missing_broker_fails_the_job_with_the_addresses(spark: SparkSession, save: Save) -> None:
    ports = free_ports(2)
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    began = time.monotonic()
    said = failure_of(save, numbered(spark, 10), "orders", bootstrap_servers=servers)
    assert time.monotonic() - began < 40
    assert "ConnectionFailed" in said
    for port in ports:
        assert f"127.0.0.1:{port}" in said


def test_oversized_row_is_named_by_its_number(
    spark: SparkSession, save: Save, topic: str, spark_log: SparkLog
) -> None:
    rows = spark.range(0, 30_000, numPartitions=1).selectExpr(
        "if(id = 12345, repeat('x', 2000), 'x') as value"
    )
    said = failure_of(save, rows, topic, max_request_size=1_000)
    assert f"SendTableError: row 12,345 (topic '{topic}'): RecordTooLarge: " in said
    assert "rows are counted from 0 in partition 0 of the DataFrame" in said
    assert "query=- batch=- rows=0 bytes=0" in spark_log.wait_for("spark.batch.aborted")


def test_missing_partition_is_named_with_its_row(spark: SparkSession, save: Save, topic: str) -> None:
    rows = spark.range(0, 10, numPartitions=1).selectExpr("'v' as value", "if(id = 4, 3, 2) as partition")
    assert f"row 4 (topic '{topic}', partition 3): " in failure_of(save, rows, topic)


def test_row_without_a_topic_is_named(spark: SparkSession, save: Save, topic: str) -> None:
    rows = spark.range(0, 10, numPartitions=1).selectExpr(
        "'v' as value", f"if(id = 7, null, '{topic}') as topic"
    )
    said = failure_of(save, rows, None)
    assert "row 7" in said
    assert "there is no topic (null)" in said


def test_killed_task_is_retried_and_loses_nothing(
    spark: SparkSession, save: Save, topic: str, kafka: ApacheKafka, gate: Gate, spark_log: SparkLog
) -> None:
    rows = numbered(spark, 40_000).select(gate.before(35_000, fn.col("value"), deadly=True).alias("value"))
    with while_half_done(gate, kafka, topic, lambda: None):
        save(rows, topic)
    counts = counted(kafka, topic)
    assert counts.keys() == set(range(40_000))
    assert set(counts.values()) == {1, 2}, "the first attempt had written some of them"
    assert "rows=40000 " in spark_log.wait_for("spark.batch.committed")


def test_restarting_broker_only_delays_the_job(
    spark: SparkSession, save: Save, topic: str, kafka: ApacheKafka, gate: Gate
) -> None:
    rows = numbered(spark, 40_000).select(gate.before(35_000, fn.col("value")).alias("value"))
    with while_half_done(gate, kafka, topic, kafka.kill, kafka.restart):
        save(rows, topic)
    assert counted(kafka, topic) == Counter(range(40_000)), "each once: retries within a task are idempotent"
