"""The columns of a DataFrame that make a record: as with Spark's own Kafka sink, and in its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from pyspark.errors import PySparkTypeError, PySparkValueError
from pyspark.sql.types import DataType, StringType, StructType

from aioproducer.arrow.arrow_schema import Columns

_TEXT: Final = ("string", "binary")

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": _TEXT,
    "value": _TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
"""The columns of a record, and the types that each may have. Other columns of a DataFrame are left out."""

TIMESTAMPS: Final = ("timestamp", "timestamp_ntz")
"""Types that the column of the option `timestampColumn` may have."""


def record_columns(schema: StructType, topic: str | None, timestamp_column: str | None = None) -> Columns:
    """Return the columns of *schema* that make records; the option *topic* wins over a column of that name.

    *timestamp_column* names the column with the times of the records. Without this name, no column has times, as in Spark's sink.

    Raises:
        PySparkValueError: there is no column `value`, no *timestamp_column*, no topic, or a column twice.
        PySparkTypeError: a column has a type that it may not have.
    """
    counts = Counter(schema.fieldNames())
    names = [name for name in TYPES if name in counts and not (name == "topic" and topic is not None)]
    if topic is None and "topic" not in counts:
        raise PySparkValueError(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic. In SQL: INSERT INTO … WITH ('topic' = '…')."
        )
    if "value" not in counts:
        raise PySparkValueError("Required attribute 'value' not found")
    for name in names:
        if counts[name] > 1:
            raise PySparkValueError(f"{name} attribute is ambiguous: {counts[name]} columns have that name")
        found = _name_of(schema[name].dataType)
        if found not in TYPES[name]:
            raise PySparkTypeError(
                f"{name} attribute unsupported type {found}. {name} must be a(n) {' or '.join(TYPES[name])}"
            )
    if timestamp_column is not None:
        _check_timestamps(schema, timestamp_column, counts[timestamp_column])
    parts = {name: name for name in names if name not in ("topic", "value")}
    return Columns(
        value="value",
        timestamp=timestamp_column,
        topic=topic,
        topic_column="topic" if topic is None else None,
        **parts,
    )


def _check_timestamps(schema: StructType, name: str, count: int) -> None:
    if not count:
        nearest = get_close_matches(name.lower(), {each.lower(): each for each in schema.fieldNames()}, n=1)
        named = [each for each in schema.fieldNames() if nearest and each.lower() == nearest[0]]
        hint = f"; did you mean {named[0]!r}?" if named else ""
        raise PySparkValueError(f"timestampColumn={name!r}: no such column{hint}")
    if count > 1:
        raise PySparkValueError(
            f"timestampColumn={name!r}: {count} columns have that name; rename all but one"
        )
    found = schema[name].dataType.simpleString()
    if found not in TIMESTAMPS:
        raise PySparkTypeError(
            f"timestampColumn={name!r}: the column is {found}, not a timestamp; cast it, or use timestamp_millis() for"
            " milliseconds"
        )


def _name_of(kind: DataType) -> str:
    return "string" if isinstance(kind, StringType) else kind.simpleString()  # whatever its collation
