"""SQL and tables: statements that write to a topic, and the errors of other statements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.spark.features import HAS_STREAM_SINK

pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture
def tables(spark: SparkSession) -> object:
    """Drop each table that the test has created."""
    yield None
    for table in spark.catalog.listTables():
        spark.sql(f"DROP TABLE {table.name}")


def values(kafka: ApacheKafka, topic: str) -> list[bytes]:
    return sorted(each.value or b"" for each in read_with_librdkafka(kafka.bootstrap_servers, topic))


def test_table_is_written_in_each_way(
    spark: SparkSession, kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    given = f"'kafka.bootstrap.servers' = '{kafka.bootstrap_servers}', 'topic' = '{topic}'"
    spark.sql("CREATE TABLE sink (key STRING, value STRING) USING aioproducer")
    spark.sql(f"INSERT INTO sink WITH ({given}) VALUES ('k', 'insert')")
    spark.sql(f"INSERT INTO sink WITH ({given}) SELECT 'k', concat('select-', id) FROM range(2)")

    def rows(way: str) -> DataFrame:
        return spark.sql(f"SELECT 'k' AS key, '{way}' AS value")

    rows("writeTo").writeTo("sink").options(**options).append()
    rows("create").writeTo("created").using("aioproducer").options(**options).create()
    for way, name in {"saveAsTable": "sink", "saveAsTable-new": "saved"}.items():
        rows(way).write.format("aioproducer").mode("append").options(**options).saveAsTable(name)
    expected = b"insert select-0 select-1 writeTo create saveAsTable saveAsTable-new".split()
    if HAS_STREAM_SINK:
        expected += write_stream_to_tables(spark, options, tmp_path)
    assert values(kafka, topic) == sorted(expected)


def write_stream_to_tables(spark: SparkSession, options: Mapping[str, str], tmp_path: Path) -> list[bytes]:
    """Write a row to each of two tables; return the values."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("toTable\n", encoding="utf-8")
    stream = spark.readStream.text(str(tmp_path / "in")).selectExpr("'k' as key", "value")
    for name in ("sink", "streamed"):
        query = (
            stream.writeStream.format("aioproducer")
            .options(**options, checkpointLocation=str(tmp_path / name))
            .trigger(availableNow=True)
            .toTable(name)
        )
        assert query.awaitTermination(60)
    return [b"toTable", b"toTable"]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO sink VALUES ('v')",
        "INSERT INTO sink WITH ('topic' = 'orders') VALUES ('v')",
        "CREATE TABLE made USING aioproducer OPTIONS ('kafka.bootstrap.servers' = 'b:1', 'topic' = 't') AS SELECT 'v' AS value",
    ],
)
def test_write_without_options_error_names_their_place(spark: SparkSession, statement: str) -> None:
    spark.sql(
        "CREATE TABLE sink (value STRING) USING aioproducer OPTIONS ('kafka.bootstrap.servers' = 'b:1', 'topic' = 't')"
    )
    with pytest.raises(
        PySparkException, match=r"INSERT INTO … WITH \('kafka\.bootstrap\.servers' = 'host:port'"
    ):
        spark.sql(statement)


def test_table_without_columns_error_names_the_syntax(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"CREATE TABLE … USING aioproducer needs columns, such as"):
        spark.sql("CREATE TABLE sink USING aioproducer")
    spark.sql("CREATE TABLE sink (value STRING) USING aioproducer")
    with pytest.raises(PySparkException, match="only writes; read the topic with Spark's own format 'kafka'"):
        spark.sql("SELECT * FROM sink").collect()
    with pytest.raises(PySparkException, match="Save mode Overwrite not allowed for Kafka"):
        spark.sql("INSERT OVERWRITE sink VALUES ('v')")
