"""The lists of an array equal `to_pylist` for any memory layout."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from aioproducer._core.records.columns import READS_IN_PLACE
from aioproducer.arrow import arrow_columns
from aioproducer.arrow.arrow_columns import (
    as_bytes,
    as_headers,
    as_partitions,
    as_texts,
    as_timestamps_ms,
    bytes_in,
    plain,
    sliced,
)

TEXT = [pa.string(), pa.large_string(), pa.string_view()]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
HEADERS = [
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    pa.map_(pa.string(), pa.binary()),
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


@st.composite
def sections(draw: st.DrawFn, items: st.SearchStrategy[Any], kinds: list[pa.DataType]) -> pa.Array:
    """Draw an array as one meets it: a part of a larger one, perhaps put together of several, or a dictionary."""
    kind = draw(st.sampled_from(kinds))
    chunks = draw(st.lists(st.lists(st.none() | items, max_size=12), min_size=1, max_size=3))
    array = pa.concat_arrays([_section(draw, pa.array(chunk, kind)) for chunk in chunks])
    if not pa.types.is_nested(kind) and "view" not in str(kind) and draw(st.booleans()):
        array = array.dictionary_encode()
    return _section(draw, array)


def _section(draw: st.DrawFn, array: pa.Array) -> pa.Array:
    start = draw(st.integers(0, len(array)))
    return array.slice(start, draw(st.integers(0, len(array) - start)))


@given(sections(st.binary(max_size=9), BYTES))
def test_bytes_columns_equal_lists(array: pa.Array) -> None:
    expected = array.to_pylist()
    assert list(as_bytes(array)) == sliced(plain(array)) == expected
    assert bytes_in(array) == sum(len(each or b"") for each in expected)


@given(sections(texts, TEXT))
def test_string_columns_equal_lists(array: pa.Array) -> None:
    expected = array.to_pylist()
    utf_8 = [None if each is None else each.encode() for each in expected]
    assert list(as_bytes(array)) == sliced(plain(array)) == utf_8
    different, codes = as_texts(array)
    assert [None if code is None else different[code] for code in codes] == expected
    assert len(set(different)) == len(different)


@given(
    sections(st.integers(0, 127), [pa.int8(), pa.uint16(), pa.int32(), pa.uint64()]).filter(
        lambda a: not pa.types.is_dictionary(a.type)
    )
)
def test_partition_columns_equal_lists(array: pa.Array) -> None:
    expected = array.to_pylist()
    assert as_partitions("p", array) == (expected if any(each is not None for each in expected) else None)


@pytest.mark.parametrize(
    ("unit", "multiplier", "divisor"), [("s", 1000, 1), ("ms", 1, 1), ("us", 1, 10**3), ("ns", 1, 10**6)]
)
@given(data=st.data())
def test_timestamp_columns_equal_lists(unit: str, multiplier: int, divisor: int, data: st.DataObject) -> None:
    numbers = data.draw(sections(st.integers(0, (2**63 - 1) // multiplier), [pa.int64()]))
    if pa.types.is_dictionary(numbers.type):
        numbers = numbers.dictionary_decode()
    expected = [None if each is None else each * multiplier // divisor for each in numbers.to_pylist()]
    found = as_timestamps_ms("t", numbers.view(pa.timestamp(unit)))
    assert found == (expected if any(each is not None for each in expected) else None)


@pytest.mark.parametrize("in_place", [READS_IN_PLACE, False])
@pytest.mark.parametrize("fast_lists", [True, False])
@given(data=st.data())
def test_header_columns_equal_lists(fast_lists: bool, in_place: bool, data: st.DataObject) -> None:
    pairs = st.lists(st.tuples(texts, st.none() | st.binary(max_size=5)), max_size=3)
    array = data.draw(sections(pairs, HEADERS[2:]) | sections(pairs.map(_entries), HEADERS[:2]))
    expected = [tuple(map(_pair, each or ())) for each in array.to_pylist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_columns, "READS_IN_PLACE", in_place)
        patch.setattr(arrow_columns, "_HAS_FAST_LISTS", fast_lists)
        found = as_headers("h", array)
        assert (None if found is None else list(found)) == (expected if any(expected) else None)


def _entries(pairs: list[tuple[str, bytes | None]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


def _pair(entry: Any) -> tuple[str, bytes | None]:
    return (entry["key"], entry["value"]) if isinstance(entry, dict) else entry
