"""The data source as Spark's planner sees it, per Spark version."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkNotImplementedError, PySparkRuntimeError, PySparkValueError
from pyspark.sql import datasource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from aioproducer.arrow.arrow_columns import Columns
from aioproducer.spark import AioProducerSource, committing
from aioproducer.spark.sink_source import record_columns
from aioproducer.spark.writer import BatchWriter, StreamWriter, dumps
from pyspark_aioproducer import DefaultSource

OPTIONS = {"kafka.bootstrap.servers": "a:9092", "topic": "orders"}
ROWS = StructType([StructField("value", StringType())])


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The topics of each check; there is no broker."""
    checked: list[tuple[str, ...]] = []
    monkeypatch.setattr(committing, "check", lambda _host, _settings, topics: checked.append(topics))
    monkeypatch.setattr(committing, "worker", lambda: None)
    return checked


@pytest.mark.parametrize("source", [AioProducerSource, DefaultSource])
def test_writers_are_picklable(source: type[datasource.DataSource]) -> None:
    assert source.name() == "aioproducer"
    assert isinstance(cloudpickle.loads(dumps(source(OPTIONS).writer(ROWS, False))), BatchWriter)
    assert isinstance(cloudpickle.loads(dumps(source(OPTIONS).streamWriter(ROWS, False))), StreamWriter)


def test_batch_is_checked_by_writer_and_stream_by_pickling(checked: list[tuple[str, ...]]) -> None:
    """A process that commits a micro-batch makes a writer, and may only have to abort."""
    AioProducerSource({**OPTIONS, "onBadRow": "topic:dead"}).writer(ROWS, False)
    assert checked == [("orders", "dead")]
    writer = AioProducerSource(OPTIONS).streamWriter(ROWS, False)
    assert checked == [("orders", "dead")]
    dumps(writer)
    assert checked[1:] == [("orders",)]


def test_spark_may_name_the_arguments() -> None:
    """It does, when it commits a micro-batch: by then the rows would have been written."""
    assert isinstance(DefaultSource(OPTIONS).streamWriter(schema=ROWS, overwrite=True), StreamWriter)


def test_overwrite_mode_is_refused() -> None:
    with pytest.raises(PySparkValueError, match="Save mode Overwrite not allowed for Kafka"):
        AioProducerSource(OPTIONS).writer(ROWS, True)


def test_spark_4_0_writes_batches_and_names_foreachbatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter")
    monkeypatch.setattr("pyspark.__version__", "4.0.5")
    assert isinstance(AioProducerSource(OPTIONS).writer(ROWS, False), BatchWriter)
    with pytest.raises(
        PySparkRuntimeError, match=r"this is Spark 4\.0\.5; .*foreachBatch\(lambda rows, batch_id"
    ):
        AioProducerSource(OPTIONS).streamWriter(ROWS, False)


def test_spark_4_0_imports_the_package() -> None:
    program = "from pyspark.sql import datasource; del datasource.DataSourceStreamArrowWriter; import aioproducer.spark"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("kind", [AioProducerSource, DefaultSource])
def test_read_is_refused_and_names_the_kafka_format(kind: type[datasource.DataSource]) -> None:
    source = kind({})
    stream = source.streamReader(ROWS)
    for read in (lambda: source.reader(ROWS), stream.initialOffset):
        with pytest.raises(PySparkNotImplementedError, match=r"only writes; read .* format 'kafka'$"):
            read()
    with pytest.raises(
        PySparkNotImplementedError, match=r"'kafka'; CREATE TABLE … .* needs columns, such as"
    ):
        source.schema()


def test_pyspark_aioproducer_imports_no_aioproducer() -> None:
    """An error on import would hide the formats of all packages."""
    program = (
        "import sys, pyspark_aioproducer; print([m for m in sys.modules if m.startswith('aioproducer')])"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().strip() == "[]"


@pytest.mark.parametrize(("missing", "package"), [("pyspark.sql.datasource", "spark"), ("pyarrow", "arrow")])
def test_missing_package_is_named_with_the_install_command(missing: str, package: str) -> None:
    program = f"import sys; sys.modules['{missing}'] = None; import aioproducer.{package}"
    output = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=60)
    assert 'pip install "pyarrow' in output.stderr.decode().splitlines()[-1]


HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
EVERYTHING: dict[str, DataType] = {
    "topic": StringType(),
    "key": BinaryType(),
    "value": StringType(),
    "headers": ArrayType(HEADER),
    "partition": IntegerType(),
    "timestamp": DateType(),
    "at": TimestampType(),
    "offset": LongType(),
}


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_record_columns_ignore_other_columns() -> None:
    assert record_columns(schema(**EVERYTHING), None) == Columns(
        value="value",
        key="key",
        headers="headers",
        partition="partition",
        topic_column="topic",
    )


@pytest.mark.parametrize("kind", [TimestampType(), TimestampNTZType()], ids=str)
def test_column_of_times_is_used_on_request(kind: DataType) -> None:
    columns = record_columns(schema(value=StringType(), timestamp=kind, at=kind), "orders", "at")
    assert (columns.timestamp, columns.names) == ("at", ["value", "at"])
    assert record_columns(schema(value=StringType(), timestamp=kind), "orders").timestamp is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("AT", r"timestampColumn='AT': no such column; did you mean 'at'\?"),
        ("elsewhere", r"timestampColumn='elsewhere': no such column$"),
        ("offset", r"timestampColumn='offset': the column is bigint, not a timestamp; cast it, or use timestamp_mil"),
        ("timestamp", r"timestampColumn='timestamp': the column is date, not a timestamp"),
    ],
)  # fmt: skip
def test_column_of_times_that_will_not_do_is_named(name: str, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        record_columns(schema(**EVERYTHING), None, name)


def test_column_of_times_that_is_there_twice_is_named() -> None:
    fields = schema(value=StringType(), at=TimestampType()).fields
    with pytest.raises(ValueError, match=r"timestampColumn='at': 2 columns have that name"):
        record_columns(StructType([*fields, fields[1]]), "orders", "at")


def test_value_and_topic_suffice() -> None:
    assert record_columns(schema(value=BinaryType()), "orders") == Columns(value="value", topic="orders")


def test_topic_option_overrides_a_topic_column() -> None:
    assert record_columns(schema(value=StringType(), topic=DoubleType()), "orders").topic == "orders"


def test_string_column_may_have_any_collation() -> None:
    assert record_columns(schema(value=StringType("UNICODE")), "orders").value == "value"


def test_nulls_may_be_ruled_out() -> None:
    headers = ArrayType(
        StructType([StructField("key", StringType(), False), StructField("value", BinaryType(), False)]),
        False,
    )
    assert record_columns(schema(value=StringType(), headers=headers), "orders").headers == "headers"


@pytest.mark.parametrize(
    ("column", "topic", "message"),
    [
        ("value", None, r"topic option required when no 'topic' attribute is present\. Use the topic option"),
        ("key", "orders", r"Required attribute 'value' not found"),
        ("Value", "orders", r"Required attribute 'value' not found"),
    ],
)
def test_missing_column_is_named(column: str, topic: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record_columns(schema(**{column: StringType()}), topic)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("value", IntegerType(), r"value attribute unsupported type int\. value must be a\(n\) string or binary"),
        ("topic", IntegerType(), r"topic attribute unsupported type int\. topic must be a\(n\) string$"),
        ("partition", LongType(), r"partition attribute unsupported type bigint\. partition must be a\(n\) int$"),
        (
            "headers",
            MapType(StringType(), BinaryType()),
            r"headers attribute unsupported type map<string,binary>\. headers must be a\(n\) array<struct<key:st",
        ),
    ],
)  # fmt: skip
def test_column_of_another_type_is_named(name: str, kind: DataType, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        record_columns(schema(**{**EVERYTHING, name: kind}), None)


def test_column_that_appears_twice_is_named() -> None:
    columns = StructType([*schema(value=StringType()).fields, *schema(value=StringType()).fields])
    with pytest.raises(ValueError, match="value attribute is ambiguous: 2 columns have that name"):
        record_columns(columns, "orders")
