from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from aioproducer.arrow.arrow_schema import Columns

TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BYTES = [
    *TEXT,
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.binary(16),
    pa.dictionary(pa.int32(), pa.large_binary()),
    pa.null(),
]
HEADERS = [
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("value", pa.large_string()), ("key", pa.dictionary(pa.int8(), pa.string()))])),
    pa.map_(pa.string(), pa.binary()),
    pa.null(),
]
PARTITIONS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.null()]
TIMESTAMPS = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")] + [
    pa.timestamp("us", "UTC"),
    pa.int64(),
    pa.null(),
]
FIT = {
    "value": BYTES,
    "key": BYTES,
    "headers": HEADERS,
    "partition": PARTITIONS,
    "timestamp": TIMESTAMPS,
    "topic_column": TEXT,
}
WRONG = {
    "value": [pa.int64(), pa.list_(pa.binary()), pa.dictionary(pa.int8(), pa.int64()), pa.decimal128(3)],
    "key": [pa.float64()],
    "headers": [
        pa.list_(pa.string()),
        pa.list_(pa.struct([("key", pa.string())])),
        pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.int8())])),
        pa.list_(pa.struct([("key", pa.string()), ("key", pa.string()), ("value", pa.binary())])),
        pa.map_(pa.int8(), pa.binary()),
        pa.map_(pa.string(), pa.int8()),
        pa.struct([("key", pa.string()), ("value", pa.binary())]),
    ],
    "partition": [pa.float64(), pa.string(), pa.bool_()],
    "timestamp": [pa.int32(), pa.date32(), pa.string(), pa.uint64()],
    "topic_column": [pa.binary(), pa.null()],
}


def checked(role: str, kind: pa.DataType) -> None:
    named: dict[str, Any] = {"value": "v", role: "c"}
    if role != "topic_column":
        named["topic"] = "orders"
    Columns(**named).check(pa.schema([("v", pa.binary()), ("c", kind)]))


@pytest.mark.parametrize(
    ("role", "kind"), [(role, kind) for role, kinds in FIT.items() for kind in kinds], ids=str
)
def test_a_column_may_be_of_any_type_that_can_be_sent(role: str, kind: pa.DataType) -> None:
    checked(role, kind)


@pytest.mark.parametrize(
    ("role", "kind"), [(role, kind) for role, kinds in WRONG.items() for kind in kinds], ids=str
)
def test_another_type_is_refused_with_what_was_expected(role: str, kind: pa.DataType) -> None:
    with pytest.raises(TypeError) as raised:
        checked(role, kind)
    assert str(raised.value).startswith(f"{role}='c': the column is {kind}, expected ")
    assert str(raised.value).endswith("; cast it first")


def test_a_missing_column_is_told_with_those_that_are_there() -> None:
    columns = Columns(value="v", key="k", topic="orders")
    with pytest.raises(ValueError, match="key='k': no such column; the columns are: 'v', 'w'"):
        columns.check(pa.schema([("v", pa.binary()), ("w", pa.binary())]))
    with pytest.raises(ValueError, match="value='v': no such column; the columns are: none"):
        columns.check(pa.schema([]))


def test_a_name_must_be_that_of_one_column() -> None:
    with pytest.raises(ValueError, match="value='v': 2 columns have this name"):
        Columns(value="v", topic="orders").check(pa.schema([("v", pa.binary()), ("v", pa.string())]))


@pytest.mark.parametrize("topics", [{}, {"topic": "orders", "topic_column": "t"}], ids=str)
def test_the_topic_is_given_in_one_way(topics: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"topic .* or topic_column"):
        Columns(value="v", **topics)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"value": None}, "value must be the name of a column, not None"),
        ({"key": 1}, "key must be the name of a column, not 1"),
        ({"topic": b"orders"}, "topic must be str, not bytes"),
    ],
    ids=str,
)
def test_names_are_strings(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        Columns(**{"value": "v", "topic": "orders", **wrong})


def test_the_topic_is_a_legal_name() -> None:
    with pytest.raises(ValueError, match="topic 'a b' is not a legal name"):
        Columns(value="v", topic="a b")


def test_a_column_that_is_two_parts_is_read_once() -> None:
    assert Columns(value="v", key="v", partition="p", topic="orders").names == ["v", "p"]
