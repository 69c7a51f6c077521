"""A DataFrame written to a topic: every row once, each column in its field of the record."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as fn
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from aioproducer.spark import AioProducerSource
from aioproducer.spark.writer import BatchWriter
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import Record, read_with_librdkafka
from tests.spark.conftest import NewTopic, Save
from tests.spark.features import needs_worker_logs
from tests.spark.log import SparkLog

ROWS = 1_000_000
PADDING = "x" * 92
RECORD = "key string, value string, headers array<struct<key:string,value:binary>>, partition int, timestamp timestamp"


def contents(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((each.key or b"", each.value or b"") for each in records)


def test_every_column_arrives(
    spark: SparkSession, save: Save, new_topic: NewTopic, kafka: ApacheKafka
) -> None:
    topic = new_topic(retention_ms="-1")
    began_ms = int(time.time() * 1_000)
    told = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
    rows = [
        ("key", "value", [("trace", bytearray(b"1f")), ("trace", None)], 2, told),
        ("schlüssel", "größe", [], 2, told),
        (None, "no key", None, 2, None),
        ("tombstone", None, None, 2, told),
        ("", "", None, 0, told),
    ]
    save(spark.createDataFrame(rows, RECORD).coalesce(1), topic, times="timestamp")
    first, *others = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert (first.partition, first.key, first.value) == (0, b"", b"")
    told_ms = 1_709_209_815_123
    assert others[0] == Record(2, 0, b"key", b"value", (("trace", b"1f"), ("trace", None)), told_ms, False)
    assert others[1] == Record(2, 1, "schlüssel".encode(), "größe".encode(), (), told_ms, False)
    assert others[2][:5] == (2, 2, None, b"no key", ())
    assert began_ms <= others[2].timestamp_ms <= time.time() * 1_000
    assert others[3] == Record(2, 3, b"tombstone", None, (), told_ms, False)


def test_keys_and_values_may_be_binary(
    spark: SparkSession, save: Save, topic: str, kafka: ApacheKafka
) -> None:
    everything = bytes(range(256))
    rows = [(bytearray(everything), bytearray(everything * 2)), (None, bytearray())]
    save(spark.createDataFrame(rows, "key binary, value binary"), topic)
    assert contents(read_with_librdkafka(kafka.bootstrap_servers, topic)) == [
        (b"", b""),
        (everything, everything * 2),
    ]


def test_rows_become_the_records_of_sparks_own_sink(
    spark: SparkSession, save: Save, new_topic: NewTopic, kafka: ApacheKafka
) -> None:
    """The same partition for the same key, above all: or a topic could not be moved from one sink to the other."""
    ours, theirs = new_topic(7), new_topic(7)
    rows = spark.range(3_000).selectExpr(
        "if(id % 10 = 0, concat('kündin-', id), cast(id * id as string)) as key",
        "concat('v', id) as value",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) as headers",
        "if(id % 100 = 99, cast(id % 7 as int), null) as partition",
    )
    save(rows, ours)
    rows.write.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers).option(
        "topic", theirs
    ).save()

    def without_place_and_time(topic: str) -> list[tuple[object, ...]]:
        records = read_with_librdkafka(kafka.bootstrap_servers, topic)
        return sorted((each.partition, each.key, each.value, each.headers) for each in records)

    assert len(without_place_and_time(theirs)) == 3_000
    assert without_place_and_time(ours) == without_place_and_time(theirs)


def test_column_names_the_topic_of_each_row(
    spark: SparkSession, save: Save, new_topic: NewTopic, kafka: ApacheKafka
) -> None:
    topics = [new_topic(2), new_topic(2)]
    rows = spark.range(1_000).selectExpr(
        f"if(id % 3 = 0, '{topics[0]}', '{topics[1]}') as topic", "cast(id as string) as value"
    )
    save(rows)
    values = [
        sorted(int(each.value or b"") for each in read_with_librdkafka(kafka.bootstrap_servers, topic))
        for topic in topics
    ]
    assert values[0] == [number for number in range(1_000) if number % 3 == 0]
    assert values[1] == [number for number in range(1_000) if number % 3 != 0]


def test_topic_option_overrides_the_column_and_extra_columns(
    spark: SparkSession, save: Save, topic: str, kafka: ApacheKafka
) -> None:
    rows = spark.range(10).selectExpr(
        "'elsewhere' as topic", "cast(id as string) as value", "id * 2 as twice"
    )
    save(rows, topic)
    assert len(read_with_librdkafka(kafka.bootstrap_servers, topic)) == 10


@pytest.mark.parametrize(
    "column",
    [
        "timestamp_millis(1000) as timestamp",
        "now() + interval 2 days as timestamp",
        "'yesterday' as timestamp",
        "array(7) as timestamp",
        "timestamp_ntz'2020-01-01 00:00:00' as timestamp",
        "null as timestamp",
    ],
)
def test_column_timestamp_is_ignored_as_in_sparks_own_sink(
    spark: SparkSession, save: Save, topic: str, kafka: ApacheKafka, column: str
) -> None:
    rows = spark.range(1).selectExpr("'v' as value", column)
    began_ms = int(time.time() * 1_000)
    save(rows, topic)
    theirs = rows.write.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    theirs.option("topic", topic).save()
    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert [each.value for each in records] == [b"v", b"v"]
    assert all(began_ms <= each.timestamp_ms <= time.time() * 1_000 for each in records)


def test_timestamps_without_a_zone_are_utc(
    spark: SparkSession, save: Save, new_topic: NewTopic, kafka: ApacheKafka
) -> None:
    topic = new_topic(cleanup_policy="compact")
    save(spark.sql("select 'k' key, 'v' value, timestamp_ntz'2020-01-01 00:00:00' at"), topic, times="at")
    (record,) = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert record.timestamp_ms == 1_577_836_800_000


def test_empty_dataframe_writes_no_records(
    spark: SparkSession, save: Save, topic: str, kafka: ApacheKafka
) -> None:
    save(spark.range(0).selectExpr("cast(id as string) as value"), topic)
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == []


def test_topic_is_copied_with_its_partitions_and_times(
    spark: SparkSession, save: Save, new_topic: NewTopic, kafka: ApacheKafka
) -> None:
    """The columns of Spark's own source are those that this sink writes."""
    original, copy = new_topic(5), new_topic(5)
    save(spark.range(500).selectExpr("cast(id as string) key", "'v' value", "now() timestamp"), original)
    save(
        read_with_spark(spark, kafka, original).orderBy("partition", "offset").coalesce(1),
        copy,
        times="timestamp",
    )
    records = read_with_librdkafka(kafka.bootstrap_servers, original)
    assert len(records) == 500
    assert read_with_librdkafka(kafka.bootstrap_servers, copy) == records


def test_million_rows_arrive_once_and_in_order(
    spark: SparkSession, save: Save, new_topic: NewTopic, kafka: ApacheKafka
) -> None:
    topic = new_topic(6, retention_ms="-1")
    rows = spark.range(0, ROWS, numPartitions=4).selectExpr(
        "concat('key-', id % 5003) as key",
        f"concat(lpad(id, 8, '0'), '{PADDING}') as value",
        "timestamp_millis(1700000000000 + id) as timestamp",
    )
    save(rows, topic, times="timestamp")

    read = read_with_spark(spark, kafka, topic).withColumn(
        "id", fn.expr("cast(cast(substr(value, 1, 8) as string) as long)")
    )
    as_sent = fn.expr(
        "cast(key as string) = concat('key-', id % 5003)"
        f" and cast(value as string) = concat(lpad(id, 8, '0'), '{PADDING}')"
        " and timestamp = timestamp_millis(1700000000000 + id)"
    )
    counts = read.agg(fn.count("*"), fn.count_if(as_sent), fn.count_distinct("id")).first()
    assert counts == (ROWS, ROWS, ROWS), "each row once, and as it was sent"

    records = read_with_librdkafka(kafka.bootstrap_servers, topic, timeout_s=60)
    assert len({(each.key, each.partition) for each in records}) == 5_003, "a key is in one partition"
    numbers = [int((each.value or b"")[:8]) for each in records]
    assert sorted(numbers) == list(range(ROWS))
    task_rows = ROWS // rows.rdd.getNumPartitions()
    last: dict[tuple[int, int], int] = {}
    for each, number in zip(records, numbers, strict=True):
        line = each.partition, number // task_rows
        assert last.get(line, -1) < number, "what a task sends to a partition stays in order"
        last[line] = number


def test_results_of_tasks_with_many_partitions_stay_small(
    spark: SparkSession, save: Save, new_topic: NewTopic, kafka: ApacheKafka
) -> None:
    tasks, partitions = 20, 300
    topic = new_topic(partitions)
    rows = spark.range(0, tasks * partitions, numPartitions=tasks).selectExpr(
        "cast(id as string) as value", f"cast(id % {partitions} as int) as partition"
    )
    settings = (
        spark.sparkContext._jsc.sc().conf()
    )  # those that Spark reads when a job begins; no copy, as getConf()
    settings.set("spark.driver.maxResultSize", "100k")  # a task's result is about 2 KB without offsets
    try:
        save(rows, topic)
    finally:
        settings.remove("spark.driver.maxResultSize")
    assert len(read_with_librdkafka(kafka.bootstrap_servers, topic)) == tasks * partitions


def test_committed_batch_is_logged_by_the_driver(
    spark: SparkSession, save: Save, topic: str, spark_log: SparkLog, kafka: ApacheKafka
) -> None:
    spark.sparkContext.setJobDescription("nightly")
    try:
        rows = spark.range(1_000).selectExpr("lpad(id, 3, '0') as key", "'1234567' as value")
        save(rows, topic, compression_type="gzip")
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    line = spark_log.wait_for("spark.batch.committed")
    assert re.search(r" INFO aioproducer\.spark: spark\.batch\.committed query=- batch=- rows=1000 ", line)
    assert " bytes=10000 tasks=2 name=nightly " in line
    assert re.search(
        r" execution=\d+ retries=0 throttle_ms=\d+ compression_rate=0\.\d+ partitions=3 offsets=", line
    )
    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    offsets = [
        f"{topic}-{partition}:0-{max(each.offset for each in records if each.partition == partition)}"
        for partition in range(3)
    ]
    assert line.endswith(f" offsets={','.join(offsets)}")


@needs_worker_logs
def test_spark_collects_log_lines_of_the_driver(spark: SparkSession, save: Save, topic: str) -> None:
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        save(spark.range(10).selectExpr("'1234567' as value"), topic)
        logged = spark.sql(
            "select msg from python_worker_logs() where logger = 'aioproducer.spark'"
        ).collect()
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    (message,) = [each.msg for each in logged]
    assert message.startswith("spark.batch.committed query=- batch=- rows=10 bytes=70 tasks=2 name=- ")


def test_format_may_be_registered(spark: SparkSession, save: Save, topic: str, kafka: ApacheKafka) -> None:
    class Registered(AioProducerSource):
        @classmethod
        def name(cls) -> str:
            return "registered"

    spark.dataSource.register(Registered)
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    rows.write.format("registered").mode("append").option(
        "KAFKA.Bootstrap.Servers", kafka.bootstrap_servers
    ).option("Topic", topic).save()
    assert len(read_with_librdkafka(kafka.bootstrap_servers, topic)) == 3


def read_with_spark(spark: SparkSession, kafka: ApacheKafka, topic: str) -> DataFrame:
    """Return *topic* as Spark's own source reads it."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
        .drop("topic")
    )


def test_imported_modules_are_frozen_for_the_garbage_collector(
    spark: SparkSession, topic: str, kafka: ApacheKafka, tmp_path: Path
) -> None:
    """Spark's processes collect garbage after every request, and have many objects."""

    class Writer(BatchWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            report = super().write(iterator)
            (tmp_path / str(os.getpid())).write_text(str(gc.get_freeze_count()))
            return report

    class Source(AioProducerSource):
        @classmethod
        def name(cls) -> str:
            return "counting"

        def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
            return Writer(self._task(schema))

    spark.dataSource.register(Source)
    rows = spark.range(4).selectExpr("cast(id as string) as value").repartition(2)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    rows.write.format("counting").mode("append").options(**options).save()
    left_alone = [int(each.read_text()) for each in tmp_path.iterdir()]
    assert left_alone
    assert min(left_alone) > 10_000
