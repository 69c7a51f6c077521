"""Rows that cannot be sent, and their handling under each guarantee."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as fn

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import Record, await_records
from tests.spark.conftest import NewTopic
from tests.spark.log import SparkLog

GOOD = 1_000
REASONS = (
    "column 'topic': there is no topic (null)",
    "topic 'no topic' is not a legal name",
    "there is no partition 7",
    "there is no partition -1",
    "column 'at': Kafka's timestamps are milliseconds since 1970",
    "column 'headers': a header has no key (null)",
    "RecordTooLarge: a record for",
    "column 'at': 2025-06-15T15:06:40.000Z is older than topic",
    "InvalidRecord: ",
    "MessageTooLarge: ",
)
"""The last two are the broker's."""


def rows_of(spark: SparkSession, topic: str) -> DataFrame:
    """Return a thousand good rows, and behind each hundredth a bad one, of each kind in turn."""
    kind = fn.expr(f"if(id % 101 = 100, int(id / 101) % {len(REASONS)}, -1)")
    rows = spark.range(0, GOOD + GOOD // 100, numPartitions=2).withColumn("kind", kind)

    def but(column: str, **others: str) -> str:
        cases = "".join(f" when kind = {number[1:]} then {other}" for number, other in others.items())
        return f"case{cases} else {column} end"

    return rows.selectExpr(
        but(f"'{topic}'", _0="null", _1="'no topic'") + " as topic",
        but("cast(id % 3 as int)", _2="7", _3="-1") + " as partition",
        but("now()", _4="timestamp_millis(-5)", _7="timestamp_millis(1750000000000)") + " as at",
        "array(timestamp_millis(1750000000000)) as timestamp",
        but("'trace'", _5="null") + " as name",
        but("cast(id as string)", _8="cast(null as string)") + " as key",
        but("cast(id as string)", _6="repeat('x', 2000000)", _9="repeat('x', 500000)") + " as value",
    ).selectExpr("*", "array(struct(name as key, cast('7' as binary) as value)) as headers")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once", "exactly-once-single"])
def test_bad_rows_are_dead_letters_and_the_good_ones_are_written(
    spark: SparkSession, kafka: ApacheKafka, new_topic: NewTopic, guarantee: str, spark_log: SparkLog
) -> None:
    limits = {"cleanup_policy": "compact,delete", "max_message_bytes": "300000", "retention_ms": "604800000"}
    topic, dead = new_topic(3, **limits), new_topic(1)
    rows = rows_of(spark, topic)
    writer = (
        (rows.coalesce(1) if guarantee.endswith("single") else rows)
        .write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("deliveryGuarantee", guarantee)
        .option("onBadRow", f"topic:{dead}")
        .option("timestampColumn", "at")
    )
    if guarantee != "at-least-once":
        writer = writer.option("transactionalIdPrefix", topic).option("jobId", "job")
    writer.save()

    def seen(name: str, count: int) -> list[Record]:
        servers = kafka.bootstrap_servers
        return await_records(
            servers, name, lambda found: len(found) >= count, isolation_level="read_committed"
        )

    good, letters = seen(topic, GOOD), seen(dead, GOOD // 100)
    assert sorted(int(each.value or b"") for each in good) == [
        number for number in range(GOOD + GOOD // 100) if number % 101 != 100
    ]
    reasons = [dict(each.headers)["dead-letter.reason"] or b"" for each in letters]
    found = {reason for reason in REASONS if any(each.decode().startswith(reason) for each in reasons)}
    assert found == set(REASONS)
    rows_of_letters = sorted(int(each.key or each.value or b"") for each in letters)
    assert rows_of_letters == list(range(100, GOOD + GOOD // 100, 101))
    spark_log.wait_for(f"spark.batch.bad_rows query=- batch=- rows={GOOD // 100} topic={dead}")


def test_bad_row_fails_the_job_without_a_dead_letter_topic(
    spark: SparkSession, kafka: ApacheKafka, topic: str
) -> None:
    writer = rows_of(spark, topic).write.format("aioproducer").mode("append")
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("onBadRow", "fail")
    writer = writer.option("timestampColumn", "at")
    with pytest.raises(PySparkException, match=r"SendTableError: row \d+"):
        writer.save()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_refused_row_fails_the_job_and_is_named(
    spark: SparkSession, kafka: ApacheKafka, new_topic: NewTopic, guarantee: str
) -> None:
    """The other rows of its batch are innocent."""
    topic = new_topic(1, cleanup_policy="compact")
    rows = spark.range(0, 20, numPartitions=1).selectExpr("if(id = 7, null, 'k') as key", "'v' as value")
    writer = rows.write.format("aioproducer").mode("append").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    if guarantee != "at-least-once":
        writer = writer.option("transactionalIdPrefix", topic).option("jobId", "job")
    with pytest.raises(PySparkException, match=rf"row 7 \(topic '{topic}'\): InvalidRecord: .* without key"):
        writer.option("deliveryGuarantee", guarantee).save()
