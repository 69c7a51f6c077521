from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from aioproducer._core.records.columns import HeaderColumns
from aioproducer.arrow import arrow_columns
from aioproducer.arrow.arrow_columns import (
    BadValue,
    Columns,
    as_bytes,
    as_headers,
    as_partitions,
    as_texts,
    as_timestamps_ms,
    bytes_in,
    plain,
)
from tests.cases import for_each

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MAX_INT64 = 2**63 - 1


def array_of(items: list[Any], kind: pa.DataType) -> pa.Array:
    """Return *items* as *kind*; older releases make dictionaries of few types without help."""
    if pa.types.is_dictionary(kind):
        indices = {item: index for index, item in enumerate(dict.fromkeys(items)) if item is not None}
        dictionary = pa.array([*dict.fromkeys(items)], kind.value_type)
        return pa.DictionaryArray.from_arrays(pa.array(map(indices.get, items), kind.index_type), dictionary)
    return pa.array(items, kind)


@pytest.fixture(params=["in place", "to_pylist", "slices"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to bytes: of the accelerator, of the installed pyarrow, and of older releases."""
    if request.param != "in place":
        monkeypatch.setattr(arrow_columns, "READS_IN_PLACE", False)
    monkeypatch.setattr(arrow_columns, "_HAS_FAST_LISTS", request.param != "slices")


@for_each(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(2),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_binary()),
    ],
)
def test_strings_and_bytes_of_any_form_are_bytes(each_way: None, kind: pa.DataType) -> None:
    is_text = "string" in str(kind)
    array = array_of(["ab" if is_text else b"ab", None, "ö" if is_text else b"cd", None], kind)
    last = "ö".encode() if is_text else b"cd"
    assert list(as_bytes(array)) == [b"ab", None, last, None]
    assert list(as_bytes(array[1:3])) == [None, last]
    assert list(as_bytes(array[:0])) == []
    assert bytes_in(array) == 4
    assert bytes_in(array[1:2]) == 0


def test_nulls_alone_are_nones(each_way: None) -> None:
    assert list(as_bytes(pa.nulls(2))) == [None, None]
    assert list(as_bytes(pa.nulls(2, pa.binary()))) == [None, None]


def test_null_in_a_dictionary_is_a_null(each_way: None) -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
    assert list(as_bytes(array)) == [b"a", None, None]
    assert as_texts(array) == (["a"], [0, None, None])


def test_values_under_nulls_are_ignored(each_way: None) -> None:
    buffers = pa.array([b"ab", b"secret", b"cd"]).buffers()
    validity = pa.array([True, False, True]).buffers()[1]
    array = pa.Array.from_buffers(pa.binary(), 3, [validity, *buffers[1:]])
    assert list(as_bytes(array)) == [b"ab", None, b"cd"]
    assert bytes_in(array) == 4


def test_binary_is_made_plain_without_a_copy() -> None:
    for kind, expected in ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())):
        array = pa.array(["a", "b"], kind)
        assert plain(array).type == expected
        assert plain(array).buffers()[2].address == array.buffers()[2].address


@for_each("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.uint64()])
def test_partitions_may_be_of_any_integer_type(kind: pa.DataType) -> None:
    array = pa.array([0, None, 127, 5], kind)
    assert as_partitions("p", array) == [0, None, 127, 5]
    assert as_partitions("p", array[1:3]) == [None, 127]


@pytest.mark.parametrize("array", [pa.nulls(2), pa.nulls(2, pa.int32()), pa.array([], pa.int32())], ids=str)
def test_column_without_numbers_is_none(array: pa.Array) -> None:
    assert as_partitions("p", array) is None
    assert as_timestamps_ms("t", array) is None


@pytest.mark.parametrize("wrong", [-1, 2**31, 2**64 - 1])
def test_invalid_partition_is_refused_with_its_position(wrong: int) -> None:
    kind = pa.int64() if wrong < 2**63 else pa.uint64()
    with pytest.raises(
        BadValue, match=rf"column 'p': a partition is 0 to 2\*\*31 - 1, not {wrong}"
    ) as raised:
        as_partitions("p", pa.array([7, 0, None, wrong, wrong], kind)[1:])
    assert raised.value.position == 2


@for_each(
    ("unit", "given", "expected"),
    [
        ("s", [2, None, 0], [2_000, None, 0]),
        ("ms", [2, None, MAX_INT64], [2, None, MAX_INT64]),
        ("us", [1_999, None, MAX_INT64], [1, None, MAX_INT64 // 10**3]),
        ("ns", [1_999_999, None, MAX_INT64], [1, None, MAX_INT64 // 10**6]),
    ],
)
@for_each("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit_are_milliseconds(
    unit: str, zone: str | None, given: list[int | None], expected: list[int | None]
) -> None:
    array = pa.array([9, *given], pa.int64()).cast(pa.timestamp(unit, zone))
    assert as_timestamps_ms("t", array[1:]) == expected


def test_integers_are_milliseconds() -> None:
    assert as_timestamps_ms("t", pa.array([5, None])) == [5, None]


@for_each(
    ("unit", "wrong", "milliseconds"),
    [
        ("ms", -1, -1),
        ("us", -1, -1),
        ("us", -315_619_200_000_000, -315_619_200_000),
        ("ns", -(2**63), -(2**63) // 10**6),
        ("s", MAX_INT64 // 1000 + 1, (MAX_INT64 // 1000 + 1) * 1000),
    ],
)
def test_invalid_timestamp_is_refused_in_milliseconds(unit: str, wrong: int, milliseconds: int) -> None:
    array = pa.array([0, None, wrong], pa.int64()).cast(pa.timestamp(unit))
    with pytest.raises(
        BadValue, match=f"column 't': Kafka's timestamps are .*, not {milliseconds}$"
    ) as raised:
        as_timestamps_ms("t", array)
    assert raised.value.position == 2


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())], ids=str
)
def test_texts_are_listed_once_with_codes(kind: pa.DataType) -> None:
    texts, codes = as_texts(array_of(["x", "a", None, "b", "a"], kind)[1:])
    assert texts == ["a", "b"]
    assert codes == [0, None, 1, 0]


def entries(*pairs: tuple[str | None, bytes | None]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


@pytest.mark.parametrize(
    "kind", [HEADERS, pa.large_list(HEADERS.value_type), pa.map_(pa.string(), pa.binary())], ids=str
)
def test_headers_may_be_lists_or_maps(each_way: None, kind: pa.DataType) -> None:
    rows: list[Any] = [[("x", b"0")], [("a", b"1"), ("a", None)], None, [], [("b", b"")]]
    if not pa.types.is_map(kind):
        rows = [None if row is None else entries(*row) for row in rows]
    array = pa.array(rows, kind)
    assert as_headers("h", array[1:]) == [(("a", b"1"), ("a", None)), (), (), (("b", b""),)]
    assert listed(array[:2][1:]) == [(("a", b"1"), ("a", None))]


def listed(array: pa.Array) -> list[Any]:
    return list(as_headers("h", array) or ())


@pytest.mark.parametrize("other", ["b", "c"])
def test_headers_with_equal_names_become_columns(each_way: None, other: str) -> None:
    """Headers with equal names need no object per row."""
    pairs = [[("a", b"%d" % number), ("b" if number else other, None)] for number in range(3)]
    array = pa.array([entries(*each) for each in pairs], HEADERS)
    assert listed(array) == list(map(tuple, pairs))
    assert listed(array[1:]) == list(map(tuple, pairs[1:]))
    assert isinstance(as_headers("h", array), HeaderColumns) == (other == "b")


def test_header_with_one_value_is_held_once(each_way: None) -> None:
    held = as_headers(
        "h", pa.array([entries(("a", b"1"), ("b", b"%d" % number)) for number in (2, 3)], HEADERS)
    )
    assert isinstance(held, HeaderColumns)
    shared, varying = held.columns
    assert shared == ("a", b"1", None)
    assert (*varying[:2], list(varying.values or ())) == ("b", None, [b"2", b"3"])


def test_fields_of_a_header_may_be_in_any_order() -> None:
    kind = pa.list_(pa.struct([("value", pa.string()), ("key", pa.string())]))
    assert listed(pa.array([entries(("a", None))], kind)) == [(("a", None),)]


@for_each(
    "array",
    [pa.nulls(2), pa.nulls(2, HEADERS), pa.array([[], None], HEADERS), pa.array([], HEADERS)],
)
def test_column_without_headers_is_none(array: pa.Array) -> None:
    assert as_headers("h", array) is None


@pytest.mark.parametrize("wrong", [entries(("b", b"1"), (None, b"2")), [None]], ids=str)
def test_header_without_a_key_is_reported_with_its_row(wrong: list[Any]) -> None:
    array = pa.array([entries((None, b"0")), entries(("a", b"1")), None, wrong, wrong], HEADERS)
    with pytest.raises(BadValue, match="column 'h': a header has no key") as raised:
        as_headers("h", array[1:])
    assert raised.value.position == 2


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
HEADER_KINDS = [
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
    "headers": HEADER_KINDS,
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


@for_each(("role", "kind"), [(role, kind) for role, kinds in FIT.items() for kind in kinds])
def test_column_of_every_sendable_type_is_accepted(role: str, kind: pa.DataType) -> None:
    checked(role, kind)


@for_each(("role", "kind"), [(role, kind) for role, kinds in WRONG.items() for kind in kinds])
def test_column_of_another_type_is_refused(role: str, kind: pa.DataType) -> None:
    with pytest.raises(TypeError) as raised:
        checked(role, kind)
    assert str(raised.value).startswith(f"{role}='c': the column is {kind}, expected ")
    assert str(raised.value).endswith("; cast it first")


def test_missing_column_error_lists_the_columns() -> None:
    columns = Columns(value="v", key="k", topic="orders")
    with pytest.raises(ValueError, match="key='k': no such column; the columns are: 'v', 'w'"):
        columns.check(pa.schema([("v", pa.binary()), ("w", pa.binary())]))
    with pytest.raises(ValueError, match="value='v': no such column; the columns are: none"):
        columns.check(pa.schema([]))


def test_column_name_has_to_be_unique() -> None:
    with pytest.raises(ValueError, match="value='v': 2 columns have this name"):
        Columns(value="v", topic="orders").check(pa.schema([("v", pa.binary()), ("v", pa.string())]))


@pytest.mark.parametrize("topics", [{}, {"topic": "orders", "topic_column": "t"}], ids=str)
def test_topic_is_given_either_as_name_or_as_column(topics: dict[str, str]) -> None:
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


def test_topic_has_to_be_a_legal_name() -> None:
    with pytest.raises(ValueError, match="topic 'a b' is not a legal name"):
        Columns(value="v", topic="a b")


def test_column_used_for_two_fields_is_read_once() -> None:
    assert Columns(value="v", key="v", partition="p", topic="orders").names == ["v", "p"]
