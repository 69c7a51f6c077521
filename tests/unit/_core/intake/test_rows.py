from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from aioproducer._core.batching.bulk import Rows
from aioproducer._core.intake.checks import as_headers
from aioproducer._core.records.columns import HeaderColumn, HeaderColumns
from tests.cases import for_each
from tests.unit._core.intake.intake_rig import NOW_MS, checked

UNLIKE: list[Any] = [
    (),
    {},
    None,
    5,
    "ab",
    b"ab",
    ["ab", "cd"],
    [b"ab", b"cd"],
    [("a", b"1")],
    [("b", b"1"), ("a", b"2")],
    [("a", b"1"), ("b", b"2"), ("c", b"3")],
    [("a", b"1", b"b"), (b"2",)],
    [("a", "1"), ("b", b"2")],
    [("a", 1), ("b", None)],
    [(b"a", b"1"), ("b", b"2")],
    [("a", bytearray(b"1")), ("b", memoryview(b"2"))],
    [("a", None), ("\ud800", b"2")],
    [("\ud800", None), ("b", b"2")],
    [5, 6],
    [None, None],
    [{"a": 1, b"1": 2}, ("b", b"2")],
    {"a": b"1", "b": "2"},
    {"a": b"1", "c": b"2"},
    {"a": b"1", "b": bytearray(b"2")},
    {("a", b"1"): None, ("b", b"2"): None},
    {"\ud800": b"1", "b": b"2"},
    {1: b"1", "b": b"2"},
]
"""Headers that are not as `("a", …), ("b", …)` with bytes or None; some are right all the same."""


def test_values_alone_are_enough() -> None:
    rows = checked([b"a", None])
    assert rows == Rows("orders", range(2), [b"a", None], None, None, NOW_MS, None)


def test_all_columns_are_checked() -> None:
    rows = checked(
        (b"a", b"b"),
        keys=[b"k", None],
        headers=[{"h": b"1"}, ()],
        timestamps_ms=[5, None],
        partitions=[None, 2],
    )
    assert rows.keys == [b"k", None]
    assert rows.headers == [(("h", b"1"),), ()]
    assert rows.timestamps_ms == [5, NOW_MS]
    assert rows.partitions == [None, 2]


def test_one_partition_applies_to_all_records() -> None:
    assert checked([b"a"], partition=3).partitions == 3


def test_any_iterable_is_a_column() -> None:
    def numbers() -> Iterator[int]:
        yield from (1, 2)

    rows = checked(iter([b"a", b"b"]), keys=(key for key in (b"x", b"y")), timestamps_ms=numbers())
    assert list(rows.values) == [b"a", b"b"]
    assert rows.keys == [b"x", b"y"]
    assert rows.timestamps_ms == [1, 2]


def test_empty_values_give_no_rows() -> None:
    assert len(checked([])) == 0


class TestBytes:
    def test_column_of_bytes_is_kept_by_reference(self) -> None:
        values, keys = [b"a", None], [b"k", b"l"]
        rows = checked(values, keys=keys)
        assert (rows.values, rows.keys) == (values, keys)
        assert all(mine is theirs for mine, theirs in zip(rows.values, values, strict=True))
        values.clear()
        assert len(rows) == 2

    def test_mutable_values_are_copied(self) -> None:
        value = bytearray(b"before")
        rows = checked([b"a", value, memoryview(b"m")])
        value[:] = b"after!"
        assert rows.values == [b"a", b"before", b"m"]

    @pytest.mark.parametrize(
        ("column", "told"),
        [
            ("values", r"^values\[1\] must be bytes.* not str; set value_serializer"),
            ("keys", r"^keys\[1\] must be bytes.* not str; set key_serializer"),
        ],
    )
    def test_value_of_another_type_is_refused_by_position(self, column: str, told: str) -> None:
        columns: dict[str, Any] = {"values": [b"a", b"b"], column: [b"a", "text"]}
        with pytest.raises(TypeError, match=told):
            checked(**columns)

    def test_any_type_is_accepted_with_serializers(self) -> None:
        rows = checked([{"a": 1}], keys=["text"], serialized_later=(True, True))
        assert rows.values == [{"a": 1}]
        assert rows.keys == ["text"]

    def test_columns_have_their_own_serializers(self) -> None:
        with pytest.raises(TypeError, match=r"keys\[0\]"):
            checked(["text"], keys=["text"], serialized_later=(True, False))
        with pytest.raises(TypeError, match=r"values\[0\]"):
            checked(["text"], keys=["text"], serialized_later=(False, True))


class TestHeaders:
    def test_common_headers_come_first(self) -> None:
        rows = checked([b"a", b"b"], headers=[{"own": b"1"}, ()], common_headers=[("all", b"0")])
        assert rows.headers == [(("all", b"0"), ("own", b"1")), (("all", b"0"),)]

    def test_common_headers_alone_share_one_tuple(self) -> None:
        headers = checked([b"a", b"b"], common_headers={"all": b"0"}).headers
        assert headers is not None
        assert headers[0] == (("all", b"0"),)
        assert headers[0] is headers[1]

    @for_each(
        "headers",
        [
            [[("a", b"1"), ("b", None)], [("a", b"2"), ("b", b"3")]],
            [(("a", b"1"), ("b", b"3")), [["a", b"2"], ("b", b"3")]],
            [{"a": b"1", "b": b"3"}, {"a": b"2", "b": b"3"}],
            [[("a", b"1"), ("a", None)]] * 2,
            [{}, {}],
        ],
    )
    def test_headers_with_equal_names_become_columns(self, headers: Any) -> None:
        common = {"all": b"0"}
        columns = checked([b"v", b"w"], headers=headers, common_headers=common).headers
        assert isinstance(columns, HeaderColumns)
        assert list(columns) == [as_headers("", common) + as_headers("", each) for each in headers]

    def test_header_with_one_value_for_all_is_no_column(self) -> None:
        headers = checked([b"v"] * 3, headers=[{"a": each, "b": b"x"} for each in (b"1", b"2", b"1")]).headers
        assert isinstance(headers, HeaderColumns)
        assert headers.columns == [HeaderColumn("a", None, (b"1", b"2", b"1")), HeaderColumn("b", b"x")]

    def test_columns_stay_columns(self) -> None:
        columns = HeaderColumns([HeaderColumn("a", None, [b"1", b"2"])], 2)
        headers = checked([b"v", b"w"], headers=columns, common_headers={"all": b"0"}).headers
        assert isinstance(headers, HeaderColumns)
        assert headers.columns == [HeaderColumn("all", b"0"), *columns.columns]
        with pytest.raises(ValueError, match="headers has 2 items, values has 3"):
            checked([b"v"] * 3, headers=columns)

    def test_header_columns_are_a_snapshot(self) -> None:
        pairs, by_name = [("a", b"1")], {"a": b"1"}
        of_lists = checked([b"v", b"w"], headers=[pairs, [*pairs]]).headers
        of_dicts = checked([b"v", b"w"], headers=[by_name, {**by_name}]).headers
        pairs[0] = ("b", b"2")
        by_name["a"] = b"2"
        assert list(of_lists or ()) == list(of_dicts or ()) == [(("a", b"1"),)] * 2

    @pytest.mark.parametrize("kind", [list, tuple, dict])
    def test_headers_of_different_names_are_a_snapshot(self, kind: Any) -> None:
        headers = [kind([["a", b"1"]]), kind([["b", b"2"], ["c", None]])]
        taken = checked([b"v", b"w"], headers=headers).headers
        assert taken == [(("a", b"1"),), (("b", b"2"), ("c", None))]
        assert {type(pair) for pairs in taken for pair in pairs} == {tuple}

    def test_headers_of_no_records_are_empty(self) -> None:
        assert list(checked([], headers=[]).headers or ()) == []

    @for_each("unlike", UNLIKE)
    def test_unlike_headers_are_accepted_or_refused_as_if_alone(self, unlike: Any) -> None:
        alike: list[Any] = [("a", b"1"), ("b", b"2")]
        for headers in [[alike, unlike, alike], [unlike, alike], [dict(alike), unlike], [unlike]]:
            try:
                expected = [as_headers(f"headers[{index}]", each) for index, each in enumerate(headers)]
            except (TypeError, ValueError) as refusal:
                with pytest.raises(type(refusal), match=f"^{re.escape(str(refusal))}$"):
                    checked([b"v"] * len(headers), headers=headers)
            else:
                taken = checked([b"v"] * len(headers), headers=headers).headers
                assert list(taken or ()) == expected

    def test_invalid_headers_are_refused_by_position(self) -> None:
        with pytest.raises(TypeError, match=r"headers\[1\]: the value of 'h'"):
            checked([b"a", b"b"], headers=[(), {"h": 5}])
        with pytest.raises(TypeError, match="common_headers must be pairs"):
            checked([b"a"], common_headers="text")


class TestColumns:
    @for_each("column", ["keys", "headers", "timestamps_ms", "partitions"])
    @for_each("count", [1, 3])
    def test_columns_of_unequal_length_are_refused(self, column: str, count: int) -> None:
        told = f"^{column} has {count} items, values has 2: columns must be of equal length"
        item = () if column == "headers" else None
        with pytest.raises(ValueError, match=told):
            checked([b"a", b"b"], **{column: [item] * count})

    @for_each("argument", ["values", "keys", "headers", "timestamps_ms", "partitions"])
    @for_each("wrong", ["text", b"bytes", bytearray(b"b"), memoryview(b"m"), 5])
    def test_argument_that_is_no_column_is_refused(self, argument: str, wrong: Any) -> None:
        columns: dict[str, Any] = {"values": [b"a"], argument: wrong}
        with pytest.raises(TypeError, match=f"^{argument} must be a column, one item per record, not "):
            checked(**columns)


class TestNumbers:
    def test_wrong_timestamps_are_refused_by_position(self) -> None:
        with pytest.raises(ValueError, match=r"timestamps_ms\[1\] must be milliseconds"):
            checked([b"a", b"b"], timestamps_ms=[0, -1])
        with pytest.raises(TypeError, match=r"timestamps_ms\[0\] must be int"):
            checked([b"a"], timestamps_ms=["now"])

    def test_wrong_partitions_are_refused_by_position(self) -> None:
        with pytest.raises(ValueError, match=r"partitions\[1\] must be 0 to 2"):
            checked([b"a", b"b"], partitions=[0, -1])
        with pytest.raises(TypeError, match=r"partitions\[0\] must be int"):
            checked([b"a"], partitions=["first"])
        with pytest.raises(ValueError, match=r"^partition must be 0 to 2"):
            checked([b"a"], partition=-1)

    def test_partition_and_partitions_exclude_each_other(self) -> None:
        with pytest.raises(ValueError, match=r"partition .* or partitions .* not both"):
            checked([b"a"], partition=0, partitions=[0])

    def test_topic_is_checked(self) -> None:
        with pytest.raises(ValueError, match="topic '' is not a legal name"):
            checked([b"a"], topic="")
