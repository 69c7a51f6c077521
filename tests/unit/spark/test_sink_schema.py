"""Which columns make records."""

from __future__ import annotations

import pytest
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

from aioproducer.arrow.arrow_schema import Columns
from aioproducer.spark.sink_schema import record_columns

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


def test_columns_are_known_by_their_names_and_others_are_left_out() -> None:
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


def test_only_value_and_a_topic_are_needed() -> None:
    assert record_columns(schema(value=BinaryType()), "orders") == Columns(value="value", topic="orders")


def test_the_topic_option_wins_over_a_column_whatever_that_is() -> None:
    assert record_columns(schema(value=StringType(), topic=DoubleType()), "orders").topic == "orders"


def test_a_string_is_a_string_in_any_collation() -> None:
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
def test_a_column_that_is_missing_is_named(column: str, topic: str | None, message: str) -> None:
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
def test_a_column_of_another_type_is_named(name: str, kind: DataType, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        record_columns(schema(**{**EVERYTHING, name: kind}), None)


def test_a_column_that_is_there_twice_is_named() -> None:
    columns = StructType([*schema(value=StringType()).fields, *schema(value=StringType()).fields])
    with pytest.raises(ValueError, match="value attribute is ambiguous: 2 columns have that name"):
        record_columns(columns, "orders")
