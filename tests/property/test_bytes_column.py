"""A batch of Arrow columns that the accelerator reads in place is a batch of the same values as lists, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from aioproducer._core.acceleration import accelerated
from aioproducer._core.batching.bulk import Rows, python_split_columns, split_columns
from aioproducer._core.murmur2 import key_partitions, python_key_partitions
from aioproducer._core.records.columns import (
    BytesColumn,
    HeaderColumns,
    RecordColumns,
    open_records,
    python_sizes,
    sizes,
)
from aioproducer.arrow import arrow_columns
from aioproducer.arrow.arrow_columns import as_bytes, as_headers, bytes_in
from tests.cases import for_each
from tests.encoding import encode_records

pytestmark = pytest.mark.skipif(not accelerated, reason="without the accelerator columns are tuples")

KINDS = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string()]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ITEMS = st.none() | st.binary(max_size=20).map(bytes.hex) | st.sampled_from(["", "x" * 200, "y" * 9000])
NAMES = st.sampled_from(["a", "é", "n" * 70])


class Table(NamedTuple):
    """Columns of equal length, perhaps parts of longer ones."""

    values: pa.Array
    keys: pa.Array
    headers: pa.Array


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Draw a section of a table, with dictionaries, nulls and headers of the same names or of different ones."""
    count = draw(st.integers(1, 12))
    start = draw(st.integers(0, count - 1))
    columns = [_texts(draw, count), _texts(draw, count), pa.array(_headers(draw, count), HEADERS)]
    return Table(*(column.slice(start, draw(st.just(count - start))) for column in columns))


def _texts(draw: st.DrawFn, count: int) -> pa.Array:
    array = pa.array(draw(st.lists(ITEMS, min_size=count, max_size=count))).cast(draw(st.sampled_from(KINDS)))
    is_view = pa.types.is_binary_view(array.type)
    return array.dictionary_encode() if not is_view and draw(st.booleans()) else array


def _headers(draw: st.DrawFn, count: int) -> list[Any]:
    names = draw(st.lists(NAMES, max_size=2))
    values = st.none() | st.binary(max_size=4)
    same = st.tuples(*[values] * len(names)).map(lambda row: _entries(zip(names, row, strict=True)))
    other = st.none() | st.lists(st.tuples(NAMES, values), max_size=2).map(_entries)
    row = same if draw(st.booleans()) else same | other
    return draw(st.lists(row, min_size=count, max_size=count))


def _entries(pairs: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


def encoded(table: Table, *, in_place: bool) -> tuple[Any, ...]:
    """Return sizes, partitions of keys, parts and records of *table*."""
    with pytest.MonkeyPatch.context() as patch:
        if not in_place:
            patch.setattr(arrow_columns, "READS_IN_PLACE", False)
        values, keys, headers = as_bytes(table.values), as_bytes(table.keys), as_headers("h", table.headers)
    measured, chosen = sizes, key_partitions
    split: Any = split_columns
    if not in_place:
        measured, chosen, split = python_sizes, python_key_partitions, python_split_columns
    found = measured(values, keys, headers)
    partitions = chosen([key or b"" for key in keys], 3) if None in keys else chosen(keys, 3)  # type: ignore[arg-type]
    rows = Rows("t", range(len(values)), values, keys, headers, 5, None, found)
    parts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aioproducer._core.batching.bulk.split_columns", split)
        for partition, part in rows.by_partition(partitions).items():
            records = open_records() if in_place else RecordColumns()
            for piece in (part.slice(0, 2), part.slice(2, len(part))):
                records.extend(*piece.columns)
            parts.append((partition, list(part.positions), list(part.sizes), encode_records(records)))
    return found, partitions, parts


@given(tables())
@example(Table(pa.array([b"", None, b"c"]), pa.array(["k", "", "l"]), pa.array([None, [], None], HEADERS)))
def test_batches_are_equal_to_those_of_lists(table: Table) -> None:
    assert encoded(table, in_place=True) == encoded(table, in_place=False)


@given(tables(), st.data())
def test_bytes_column_equals_the_sequence_of_its_bytes(table: Table, data: st.DataObject) -> None:
    column, expected = as_bytes(table.values), _listed(table.values)
    assert len(column) == len(expected)
    assert list(column) == expected
    assert bytes_in(table.values) == sum(len(each or b"") for each in expected)
    part = data.draw(st.slices(len(expected)))
    again = data.draw(st.slices(len(expected[part])))
    assert list(column[part]) == expected[part]
    assert list(column[part][again]) == expected[part][again]
    place = data.draw(st.integers(-len(expected), len(expected) - 1))
    assert column[place] == expected[place]
    for item in (None, b"", expected[place], bytearray(expected[place] or b"x"), "no bytes"):
        assert (item in column) == (item in expected)
        assert column.count(item) == expected.count(item)
    assert column.index(expected[place]) == expected.index(expected[place])


def _listed(array: pa.Array) -> list[Any]:
    return [each.encode() if isinstance(each, str) else each for each in array.to_pylist()]


@given(tables())
def test_headers_are_equal_to_pairs(table: Table) -> None:
    headers = as_headers("h", table.headers)
    expected = [
        tuple((each["key"], each["value"]) for each in row or ()) for row in table.headers.to_pylist()
    ]
    assert list(headers or [()] * len(expected)) == expected
    if isinstance(headers, HeaderColumns):
        assert list(headers[1:]) == expected[1:]


def test_bytes_column_keeps_its_buffers_alive() -> None:
    memory = bytearray(b"abcd")
    column = BytesColumn(None, bytes([0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0]), memory, False, 0, 2)
    part, again = column[1:], column[::-1][:1]
    del column
    with pytest.raises(BufferError):
        memory.clear()  # frees nothing that a part reads
    assert (list(part), list(again)) == ([b"cd"], [b"cd"])
    del part, again
    memory.clear()


@for_each(
    ("arguments", "message"),
    [
        ((None, b"", b"", False, 0, 1), "too short"),
        ((None, bytes(8), b"", False, 1, 1), "too short"),
        ((None, bytes(8), b"", True, 0, 1), "too short"),
        ((b"", bytes(8), b"", False, 0, 1), "too short"),
        ((b"\xff", bytes(40), b"", False, 0, 9), "too short"),
        ((None, bytes(8), b"", False, -1, 1), "positive"),
        ((None, bytes(8), b"", False, 0, -1), "positive"),
        ((None, bytes(8), b"", False, 2**62, 2**62), "positive"),
        ((None, b"\0\0\0\0\2\0\0\0", b"a", False, 0, 1), "outside"),
        ((None, b"\2\0\0\0\1\0\0\0", b"abc", False, 0, 1), "outside"),
        ((None, b"\xff\xff\xff\xff\0\0\0\0", b"abc", False, 0, 1), "outside"),
    ],
)
def test_bytes_column_refuses_rows_outside_of_its_buffers(arguments: Sequence[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BytesColumn(*arguments)


@pytest.mark.parametrize("arguments", [(), ("", b"", b"", False, 0, 0), (None, 5, b"", False, 0, 0)])
def test_bytes_column_refuses_other_types(arguments: Sequence[Any]) -> None:
    with pytest.raises(TypeError):
        BytesColumn(*arguments)


def test_keys_have_no_nulls() -> None:
    with pytest.raises(TypeError, match="must be bytes"):
        key_partitions(as_bytes(pa.array([b"k", None])), 3)  # type: ignore[arg-type]
