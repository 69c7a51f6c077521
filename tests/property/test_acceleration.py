"""The functions in C and in Python have equal results, and refuse the same arguments, for any columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, example, given, strategies as st

from aioproducer._core.intake.rows import check_rows
from aioproducer._core.murmur2 import python_key_partitions
from aioproducer._core.records.columns import SMALL_PAYLOAD, HeaderColumn, HeaderColumns, python_sizes
from aioproducer._core.records.record_batch import python_records_section

accelerator: Any = pytest.importorskip(
    "aioproducer._core._accelerator", reason="it was not built", exc_type=ImportError
)


class Text(str):
    """A name of a type of the user's own."""

    __slots__ = ()


class Raw(bytes):
    """A value of a type of the user's own."""

    __slots__ = ()


DATA = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.integers(60, 9000).map(bytes),
    st.binary(max_size=3).map(Raw),
)
NAMES = st.one_of(
    st.sampled_from(["trace", "", "é"]),
    st.text(max_size=5),
    st.integers(60, 200).map("n".__mul__),
    st.text(max_size=3).map(Text),
)
PAIRS = st.tuples(NAMES, DATA)
TIMES = st.one_of(
    st.integers(0, 100), st.integers(0, 2**63 - 1), st.sampled_from([-(2**63), -1, 0, 2**62, 2**63 - 1])
)
NO_DATA = st.sampled_from(["text", 5, 1.5, bytearray(b"1"), memoryview(b"1"), [b"1"], (b"1",)])
"""Neither bytes nor None."""
WRONG_HEADERS = st.sampled_from(
    [
        None,
        5,
        "ab",
        (5,),
        ("ab",),
        (("a",),),
        (("a", b"1", b"2"),),
        ((b"a", b"1"),),
        (("a", "1"),),
        (("\ud800", b""),),
    ]
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[Any], list[Any] | None, Any, list[int]]:
    """Make values, keys, headers and timestamps."""
    count = draw(st.one_of(st.integers(1, 12), st.integers(60, 70)))

    def column(of: st.SearchStrategy[Any]) -> Any:
        few = draw(st.lists(of, min_size=1, max_size=3))
        return [few[index % len(few)] for index in range(count)]

    def header_columns() -> HeaderColumns:
        made = []
        for name, value in draw(st.lists(PAIRS, max_size=3)):
            is_shared = draw(st.booleans())
            made.append(HeaderColumn(name, value) if is_shared else HeaderColumn(name, None, column(DATA)))
        return HeaderColumns(made, count)

    headers: Any = draw(st.sampled_from(["none", "columns", "pairs"]))
    pairs = st.lists(PAIRS, max_size=4).map(tuple)
    return (
        column(DATA),
        draw(st.sampled_from([None, column(DATA)])),
        None if headers == "none" else header_columns() if headers == "columns" else column(pairs),
        column(TIMES),
    )


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of *function*, or the type of its exception."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - the kinds of errors are compared
        return type(error)


@given(columns(), st.sampled_from([0, 61]))
@example(([None], None, None, [0]), 61)
@example(([b"v"] * 8200, None, None, [0] * 8200), 0)
@example(([b"v"] * 2, None, None, [-(2**63), 2**63 - 1]), 0)
def test_both_encoders_write_the_same_bytes(
    made: tuple[list[Any], list[Any] | None, Any, list[int]], room: int
) -> None:
    section = outcome(python_records_section, *made, room)
    assert outcome(accelerator.records_section, *made, room) == section
    assert section is ValueError or (section[:room] == bytes(room) and type(section) is bytearray)


@given(columns())
@example(([b"v" * (SMALL_PAYLOAD - 1)], None, None, [0]))
@example(([b"v" * SMALL_PAYLOAD], None, HeaderColumns([HeaderColumn("a", b"1")], 1), [0]))
def test_both_encoders_estimate_the_same_sizes(
    made: tuple[list[Any], list[Any] | None, Any, list[int]],
) -> None:
    assert accelerator.sizes(*made[:3]) == python_sizes(*made[:3])


@given(st.lists(st.binary(max_size=40)), st.integers(1, 2**31 - 1))
@example([bytes(length) for length in (0, 1, 2, 3, 4, 255, 256, 257, 5000)], 2**31 - 1)
@example([b"\xff" * 16, b"\x80" * 19] * 30, 12)
def test_both_partitioners_choose_the_same_partition(keys: list[bytes], partition_count: int) -> None:
    assert accelerator.key_partitions(keys, partition_count) == python_key_partitions(keys, partition_count)


@given(columns(), st.data())
def test_both_encoders_refuse_other_types(
    made: tuple[list[Any], list[Any] | None, Any, list[int]], data: st.DataObject
) -> None:
    """`check_rows` rejects such columns; if one passed, the accelerator would raise and read no memory."""
    values, keys, headers, _ = made
    spoilt = data.draw(st.sampled_from([values, keys]))
    assume(spoilt is not None)
    spoilt[data.draw(st.integers(0, len(values) - 1))] = data.draw(NO_DATA)
    for function, arguments in (
        (accelerator.sizes, (values, keys, headers)),
        (accelerator.records_section, (values, keys, headers, [0] * len(values), 0)),
        (accelerator.key_partitions, (spoilt, 6)),
    ):
        with pytest.raises(TypeError):
            function(*arguments)


@given(WRONG_HEADERS, st.booleans())
def test_both_encoders_refuse_malformed_headers(wrong: Any, first: bool) -> None:
    headers = [wrong, (("a", b"1"),)] if first else [(("a", b"1"),), wrong]
    for function, more in ((accelerator.sizes, ()), (accelerator.records_section, ([0, 0], 0))):
        with pytest.raises((TypeError, UnicodeEncodeError, SystemError)):
            function([b"v"] * 2, None, headers, *more)


@pytest.mark.parametrize(
    "arguments",
    [
        ([b"v"], [], None),
        ([b"v"], None, [(), ()]),
        ([b"v"], None, HeaderColumns([HeaderColumn("a", None, [b"1", b"2"])], 2)),
    ],
)
def test_both_encoders_refuse_columns_of_unequal_length(arguments: Sequence[Any]) -> None:
    with pytest.raises(ValueError, match="equal length"):
        accelerator.sizes(*arguments)
    with pytest.raises(ValueError, match="equal length"):
        accelerator.records_section(*arguments, [0], 0)
    with pytest.raises(ValueError, match="equal length"):
        accelerator.records_section([b"v"], None, None, [0, 0], 0)


@given(st.lists(st.one_of(DATA, NO_DATA), min_size=1, max_size=5), st.data())
def test_both_intakes_agree_on_any_argument(values: list[Any], data: st.DataObject) -> None:
    """Arguments that pass the checks of `send_many` are accepted by both implementations."""
    some = st.lists(st.one_of(DATA, NO_DATA), min_size=len(values), max_size=len(values))
    mappings = st.dictionaries(NAMES, DATA, max_size=2)
    any_headers: st.SearchStrategy[Any] = st.one_of(st.lists(PAIRS, max_size=2), mappings, WRONG_HEADERS)
    of_each = st.lists(any_headers, min_size=len(values), max_size=len(values))
    keys, headers = data.draw(st.one_of(st.none(), some)), data.draw(st.one_of(st.none(), of_each))
    try:
        rows = check_rows("orders", values, serialized_later=(False, False), keys=keys, headers=headers)
    except (TypeError, ValueError):
        return
    times = [0] * len(values)
    assert accelerator.sizes(rows.values, rows.keys, rows.headers) == python_sizes(
        rows.values, rows.keys, rows.headers
    )
    assert accelerator.records_section(
        rows.values, rows.keys, rows.headers, times, 0
    ) == python_records_section(rows.values, rows.keys, rows.headers, times, 0)
