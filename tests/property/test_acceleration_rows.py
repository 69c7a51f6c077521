"""The functions in C and in Python for rows are equal: hashes of keys, headers, groups, metadata."""

from __future__ import annotations

import gc
import sys
from enum import IntEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, strategies as st

from aioproducer._core.batching.bulk import python_split_columns
from aioproducer._core.batching.waiters import python_new_metadata
from aioproducer._core.intake.fast_append import measured_headers
from aioproducer._core.intake.rows import python_uniform_headers
from aioproducer._core.murmur2 import python_murmur2
from aioproducer._core.records.columns import (
    RECORD_OVERHEAD,
    SMALL_PAYLOAD,
    python_running_totals,
    record_size_bound,
)
from aioproducer.types import RecordMetadata
from tests.property.test_acceleration import DATA, NAMES, NO_DATA, WRONG_HEADERS, Raw, Text

accelerator: Any = pytest.importorskip(
    "aioproducer._core._accelerator", reason="it was not built", exc_type=ImportError
)

FEW = st.sampled_from(["trace", "content-type", "é", "n" * 70, Text("trace"), "\ud800", 5, b"trace"])
SOME = st.one_of(DATA, NO_DATA)
PAIR = st.one_of(
    st.tuples(FEW, SOME),
    st.tuples(NAMES, DATA),
    st.tuples(NAMES, DATA).map(list),
    st.sampled_from([("a",), "ab", 5]),
)
OF_ONE: st.SearchStrategy[Any] = st.one_of(
    st.lists(PAIR, max_size=3),
    st.lists(PAIR, max_size=3).map(tuple),
    st.dictionaries(st.one_of(FEW, NAMES), SOME, max_size=3),
    WRONG_HEADERS,
)


@st.composite
def of_each(draw: st.DrawFn) -> list[Any]:
    """Make the headers of some records, which nearly always have the same names."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.lists(OF_ONE, max_size=4))
    names = draw(st.lists(st.sampled_from(["a", "b", "é", "c" * 200, "\ud800"]), max_size=3))
    kind: Any = draw(st.sampled_from([list, tuple, dict]))
    made = [kind([(name, draw(DATA)) for name in names]) for _ in range(draw(st.integers(1, 5)))]
    if draw(st.integers(0, 3)) == 0:
        made.insert(draw(st.integers(0, len(made))), draw(OF_ONE))
    return made


@given(st.binary(max_size=40))
@example(bytes(5000))
@example(b"\xff" * 19)
def test_both_hashes_are_equal(key: bytes) -> None:
    assert accelerator.murmur2(key) == python_murmur2(key)


def test_hash_refuses_other_types() -> None:
    with pytest.raises(TypeError):
        accelerator.murmur2("key")


@given(OF_ONE)
@example({"trace": b"1", "é": None})
@example([("trace", Raw(b"1"))])
def test_headers_of_a_record_have_the_size_of_its_bound(headers: Any) -> None:
    measured = measured_headers(headers)
    if measured[0] and measured[1] < SMALL_PAYLOAD:
        assert RECORD_OVERHEAD + measured[1] == record_size_bound(None, None, measured[0])
        own = headers.items() if type(headers) is dict else headers
        assert type(headers) is dict or all(
            one is other for one, other in zip(measured[0], own, strict=True)
        ), "the pairs themselves are kept"


@given(of_each())
@example([{"a": b"1"}, {"a": None}])
@example([{"a": b"1"}, [("a", b"1")]])
@example([[("a", b"1")], [("a", b"1"), ("b", b"2")]])
@example([(), ()])
def test_headers_become_the_same_columns(headers: list[Any]) -> None:
    assert accelerator.uniform_headers(headers) == python_uniform_headers(headers)


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 3))
@example([0, 10**30, -1, 0], 2)
def test_both_groupings_of_rows_are_equal(chosen: list[int], width: int) -> None:
    columns: list[Any] = [range(len(chosen)), [b"%d" % row for row in range(len(chosen))], tuple(chosen)][
        :width
    ]
    split = accelerator.split_columns(columns, chosen)
    as_tuples = {choice: [tuple(part) for part in parts] for choice, parts in split.items()}
    assert as_tuples == python_split_columns(columns, chosen)
    assert list(split) == list(dict.fromkeys(chosen))


@pytest.mark.parametrize(
    "rows", [range(3), range(5, 8), range(4, -2, -2), range(2**63 - 3, 2**63), range(0)], ids=str
)
def test_ranges_are_grouped_like_their_numbers(rows: range) -> None:
    [[ones], [others]] = accelerator.split_columns([rows], ["a", "b", "a"][: len(rows)] or []).values() or [
        [()],
        [()],
    ]
    assert (*ones,) == tuple(rows[0::2])
    assert (*others,) == tuple(rows[1::2])


@given(st.lists(st.integers(0, 2**40), max_size=9))
def test_running_totals_are_the_same(sizes: list[int]) -> None:
    assert list(accelerator.running_totals(sizes)) == python_running_totals(sizes)
    assert list(accelerator.running_totals(tuple(sizes))) == python_running_totals(sizes)


@pytest.mark.parametrize("wrong", [5, ["1"], [2**70]])
def test_running_totals_refuse_other_types(wrong: Any) -> None:
    with pytest.raises((TypeError, OverflowError)):
        accelerator.running_totals(wrong)


@pytest.mark.parametrize(
    ("columns", "chosen", "error"),
    [
        ([[1]], [0, 0], ValueError),
        ([range(1)], [0, 0], ValueError),
        (5, [0], TypeError),
        ([5], [0], TypeError),
        ([[1]], [[]], TypeError),
    ],
)
def test_grouping_refuses_other_arguments(columns: Any, chosen: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        accelerator.split_columns(columns, chosen)


def test_grouping_refuses_an_inconsistent_chooser() -> None:
    class Fickle:
        asked = 0

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            Fickle.asked += 1
            return Fickle.asked > 1

    with pytest.raises(ValueError, match="inconsistent results"):
        accelerator.split_columns([[1, 2]], [Fickle(), Fickle()])


@given(
    st.lists(st.integers(0, 2**63), max_size=5), st.one_of(st.just(-1), st.integers(0, 2**62)), st.booleans()
)
def test_metadata_are_the_same(timestamps: list[int], base: int, log_append: bool) -> None:
    made = accelerator.new_metadata(RecordMetadata, "orders", 3, base, timestamps, log_append)
    assert made == list(python_new_metadata(RecordMetadata, "orders", 3, base, timestamps, log_append))
    assert {type(each) for each in made} <= {RecordMetadata}


def test_metadata_without_references_are_untracked() -> None:
    class Time(IntEnum):
        NOW = 8

    for topic, timestamp, tracked in (
        ("orders", 8, False),
        (Text("orders"), 8, True),
        ("orders", Time.NOW, True),
    ):
        [made] = accelerator.new_metadata(RecordMetadata, topic, 3, 7, [timestamp], False)
        assert gc.is_tracked(made) is tracked


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="not used there: it would leave them without a hash")
def test_metadata_have_the_same_hash() -> None:
    fields = ("orders", 3, 7, [8, 9], False)
    made = accelerator.new_metadata(RecordMetadata, *fields)
    assert [*map(hash, made)] == [*map(hash, python_new_metadata(RecordMetadata, *fields))]


def test_metadata_refuse_impossible_offsets() -> None:
    with pytest.raises(OverflowError, match="no such offsets"):
        accelerator.new_metadata(RecordMetadata, "orders", 3, 2**63 - 1, [1], False)


def test_metadata_are_tuples_of_five() -> None:
    for kind in (int, 5):
        with pytest.raises(TypeError):
            accelerator.new_metadata(kind, "orders", 0, 0, [1], False)


class Row(NamedTuple):
    """A row with fields of any kind."""

    one: object
    other: object


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="a tuple stores its hash")
def test_new_tuple_equals_the_tuple_of_python() -> None:
    fields: tuple[Any, Any] = ("orders", [1])
    made = accelerator.new_tuple(Row, fields)
    assert (type(made), made, made.other, gc.is_tracked(made)) == (Row, Row(*fields), [1], True)
    assert hash(accelerator.new_tuple(Row, ("orders", 3))) == hash(Row("orders", 3))
    for wrong in ((), (Row,), (Row, [1, 2]), (dict, fields), (7, fields), (Row, fields, 1)):
        with pytest.raises(TypeError):
            accelerator.new_tuple(*wrong)
