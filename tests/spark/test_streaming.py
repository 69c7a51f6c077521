"""A stream into a topic, micro-batch by micro-batch: stopped, started again, and nothing is missing."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as fn
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import await_records, read_with_librdkafka
from tests.spark.features import HAS_STREAM_SINK, needs_stream_sink
from tests.spark.gate import Gate
from tests.spark.log import SparkLog

PAGE = Path(__file__).parents[2] / "docs/spark.md"
SCHEMA = "key string, value string"


class Files:
    """A directory that a stream reads; each file is a micro-batch."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        directory.mkdir()
        self._spark = spark
        self._directory = directory
        self._rows = 0

    def add(self, rows: int) -> None:
        """Add one file; values go on where the last one's ended."""
        first, self._rows = self._rows, self._rows + rows
        lines = (f'{{"key": "k{n % 97}", "value": "{n}"}}\n' for n in range(first, self._rows))
        complete = self._directory / f".{first:09}.json"  # Spark leaves such names alone
        complete.write_text("".join(lines))
        complete.rename(self._directory / f"{first:09}.json")

    def stream(self) -> DataFrame:
        reader = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._directory))


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path / "files")


def to_topic(rows: DataFrame, kafka: ApacheKafka, topic: str, directory: Path) -> DataStreamWriter:
    return (
        rows.writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(directory / "checkpoint"))
    )


def run_to_the_end(writer: DataStreamWriter) -> StreamingQuery:
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    return query


@needs_stream_sink
def test_every_row_of_every_micro_batch_is_there_once(
    files: Files, kafka: ApacheKafka, topic: str, tmp_path: Path, spark_log: SparkLog
) -> None:
    """The query continues from its checkpoint."""
    for rows in (20_000, 1, 30_000):
        files.add(rows)
    query = run_to_the_end(to_topic(files.stream(), kafka, topic, tmp_path))
    files.add(10_000)
    again = run_to_the_end(to_topic(files.stream(), kafka, topic, tmp_path))

    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert sorted(int(each.value or b"") for each in records) == list(range(60_001))
    assert all(each.key == b"k%d" % (int(each.value or b"") % 97) for each in records)
    assert again.id == query.id
    for batch, rows in enumerate((20_000, 1, 30_000, 10_000)):
        spark_log.wait_for(f"spark.batch.committed query={query.id} batch={batch} rows={rows} ")


@needs_stream_sink
def test_query_has_name_in_log_line_and_listener(
    spark: SparkSession,
    files: Files,
    kafka: ApacheKafka,
    topic: str,
    tmp_path: Path,
    spark_log: SparkLog,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spark puts the name among the options of the sink."""
    (listener,) = (
        each
        for each in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        if "Lineage" in each
    )
    added: list[StreamingQueryListener] = []
    exec(listener, {"spark": SimpleNamespace(streams=SimpleNamespace(addListener=added.append))})
    files.add(10)
    spark.streams.addListener(added[0])
    try:
        query = run_to_the_end(to_topic(files.stream(), kafka, topic, tmp_path).queryName("orders"))
        said = ""
        deadline = time.monotonic() + 20
        while f"query={query.id} batch=0 name='orders' rows=10 source=" not in said:
            assert time.monotonic() < deadline, said
            time.sleep(0.02)
            said += capsys.readouterr().out
    finally:
        spark.streams.removeListener(added[0])
    assert query.name == "orders"
    assert len(read_with_librdkafka(kafka.bootstrap_servers, topic)) == 10
    line = spark_log.wait_for(f"spark.batch.committed query={query.id} batch=0 rows=10 ")
    assert " name=orders execution=" in line
    assert "without_effect" not in spark_log.text()


@needs_stream_sink
def test_stopped_query_loses_nothing_after_its_restart(
    files: Files, kafka: ApacheKafka, topic: str, tmp_path: Path, gate: Gate
) -> None:
    files.add(1_000)
    files.add(40_000)
    rows = files.stream().withColumn("value", gate.before(35_000, fn.col("value")))
    query = to_topic(rows, kafka, topic, tmp_path).start()
    gate.wait_until_reached()
    await_records(kafka.bootstrap_servers, topic, lambda records: len(records) > 1_000)
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 15
    assert query.exception() is None

    gate.open()
    run_to_the_end(to_topic(rows, kafka, topic, tmp_path))
    counts = Counter(int(each.value or b"") for each in read_with_librdkafka(kafka.bootstrap_servers, topic))
    assert counts.keys() == set(range(41_000))
    assert all(counts[number] == 1 for number in range(1_000)), "the batch before was committed"


@needs_stream_sink
def test_output_mode_complete_appends_the_whole_result_each_time(
    files: Files, kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    files.add(100)
    files.add(100)
    counts = files.stream().groupBy().count().selectExpr("cast(count as string) as value")
    run_to_the_end(to_topic(counts, kafka, topic, tmp_path).outputMode("complete"))
    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert sorted(each.value or b"" for each in records) == [b"100", b"200"]


def test_output_mode_update_goes_through_foreach_batch(
    files: Files, kafka: ApacheKafka, topic: str, tmp_path: Path, spark_log: SparkLog
) -> None:
    """Spark refuses the mode for every sink written in Python; the documentation shows this way around."""
    files.add(100)
    counts = files.stream().groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    with pytest.raises(PySparkException, match="does not support Update mode"):
        run_to_the_end(to_topic(counts, kafka, topic, tmp_path).outputMode("update"))

    def write(rows: DataFrame, batch_id: int) -> None:
        writer = rows.write.format("aioproducer").mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).save()

    query = run_to_the_end(
        counts.writeStream.outputMode("update")
        .queryName("counts")
        .foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "other"))
    )
    assert len(read_with_librdkafka(kafka.bootstrap_servers, topic)) == 97
    line = spark_log.wait_for(f"spark.batch.committed query={query.id} batch=0 rows=97 ")
    assert " name=counts " in line


@needs_stream_sink
def test_continuous_query_commits_nothing(
    spark: SparkSession, kafka: ApacheKafka, topic: str, tmp_path: Path, spark_log: SparkLog
) -> None:
    """The driver does not know the trigger, but without a report of a task it commits nothing."""
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    query = to_topic(rows, kafka, topic, tmp_path).trigger(continuous="1 second").start()
    try:
        spark_log.wait_for("trigger(continuous=…) is not supported", timeout_s=90)
    finally:
        query.stop()
    assert not list((tmp_path / "checkpoint/commits").glob("[0-9]*"))
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == []


@needs_stream_sink
def test_error_in_a_stream_ends_the_query(
    files: Files, kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    files.add(1)
    query = to_topic(files.stream().drop("value"), kafka, topic, tmp_path).start()
    with pytest.raises(PySparkException, match="Required attribute 'value' not found"):
        query.awaitTermination(60)


@pytest.mark.skipif(HAS_STREAM_SINK, reason="Spark 4.0 alone has no Arrow writer for streams")
def test_spark_4_0_names_foreachbatch_for_a_stream(
    files: Files, kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    files.add(1)
    with pytest.raises(PySparkException, match=r"needs Spark 4\.1 or newer.*writeStream\.foreachBatch\("):
        run_to_the_end(to_topic(files.stream(), kafka, topic, tmp_path))
