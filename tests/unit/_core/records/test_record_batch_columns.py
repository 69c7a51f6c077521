from __future__ import annotations

import pytest

from aioproducer._core.records.columns import HeaderColumn, HeaderColumns, RecordColumns
from tests.cases import for_each

TRACE = (("trace", b"1f"),)


def contents(columns: RecordColumns) -> tuple[object, ...]:
    return columns.values, columns.keys, columns.headers, columns.timestamps


def three() -> RecordColumns:
    columns = RecordColumns()
    columns.append(b"a", None, (), 1)
    columns.append(b"b", b"k", (), 2)
    columns.append(None, None, TRACE, 3)
    return columns


def test_columns_that_no_record_needs_are_absent() -> None:
    columns = RecordColumns()
    columns.append(b"a", None, (), 1)
    columns.append(None, None, (), 2)
    assert contents(columns) == ([b"a", None], None, None, [1, 2])
    assert len(columns) == 2


def test_late_column_is_filled_for_earlier_records() -> None:
    assert contents(three()) == ([b"a", b"b", None], [None, b"k", None], [(), (), TRACE], [1, 2, 3])


def test_empty_key_differs_from_no_key() -> None:
    columns = RecordColumns()
    columns.append(b"a", b"", (), 1)
    assert columns.keys == [b""]


def test_direct_append_to_columns_equals_append() -> None:
    columns = RecordColumns()
    columns.values.append(b"a")
    columns.timestamps.append(1)
    columns.append(b"b", b"k", TRACE, 2)
    assert contents(columns) == ([b"a", b"b"], [None, b"k"], [(), TRACE], [1, 2])


def test_extend_adds_whole_columns() -> None:
    columns = RecordColumns()
    columns.extend([b"a", None], None, None, 7)
    assert contents(columns) == ([b"a", None], None, None, [7, 7])
    columns.extend((b"c",), (b"k",), (TRACE,), (8,))
    assert contents(columns) == ([b"a", None, b"c"], [None, None, b"k"], [(), (), TRACE], [7, 7, 8])
    columns.extend([b"d"], None, None, [9])
    assert contents(columns) == (
        [b"a", None, b"c", b"d"],
        [None, None, b"k", None],
        [(), (), TRACE, ()],
        [7, 7, 8, 9],
    )


def test_extend_keeps_no_reference_to_the_columns_it_was_given() -> None:
    columns, values, keys, stamps = RecordColumns(), [b"a"], [b"k"], [1]
    columns.extend(values, keys, None, stamps)
    values.append(b"b")
    keys.append(b"l")
    stamps.append(2)
    assert contents(columns) == ([b"a"], [b"k"], None, [1])


@for_each(
    ("keys", "headers", "timestamps"),
    [([b"k", b"k"], None, 1), (None, [()] * 2, 1), (None, None, [1, 2]), ([], None, 1)],
)
def test_extend_refuses_columns_of_unequal_length(
    keys: list[bytes | None] | None, headers: list[tuple[()]] | None, timestamps: list[int] | int
) -> None:
    columns = RecordColumns()
    with pytest.raises(ValueError, match="columns of 1 and"):
        columns.extend([b"a"], keys, headers, timestamps)
    assert contents(columns) == ([], None, None, [])


def test_take_picks_records_in_the_order_of_the_indices() -> None:
    columns = three()
    part = columns.take(iter([2, 0]))
    assert contents(part) == ([None, b"a"], [None, None], [TRACE, ()], [3, 1])
    part.append(b"z", b"z", TRACE, 9)
    assert contents(columns) == contents(three())


def test_parts_have_no_columns_that_the_whole_has_not() -> None:
    columns = RecordColumns()
    columns.extend([b"a", b"b"], None, None, 1)
    assert contents(columns.take(range(1))) == ([b"a"], None, None, [1])
    assert contents(columns.take([1])) == ([b"b"], None, None, [1])


class TestHeadersAsColumns:
    @staticmethod
    def traces(*values: bytes, name: str = "trace") -> HeaderColumns:
        return HeaderColumns([HeaderColumn(name, None, values)], len(values))

    def two(self) -> RecordColumns:
        columns = RecordColumns()
        columns.extend([b"a", b"b"], None, self.traces(b"1", b"2"), 7)
        return columns

    def test_headers_stay_columns_while_names_are_equal(self) -> None:
        columns = self.two()
        columns.extend([b"c"], None, self.traces(b"3"), 8)
        assert isinstance(columns.headers, HeaderColumns)
        assert list(columns.headers) == [(("trace", b"1"),), (("trace", b"2"),), (("trace", b"3"),)]

    def test_other_header_names_convert_columns_to_a_list(self) -> None:
        columns = self.two()
        columns.extend([b"c"], None, self.traces(b"3", name="source"), 8)
        assert columns.headers == [(("trace", b"1"),), (("trace", b"2"),), (("source", b"3"),)]

    def test_single_record_converts_header_columns_to_a_list(self) -> None:
        columns = self.two()
        columns.append(b"c", None, TRACE, 8)
        assert columns.headers == [(("trace", b"1"),), (("trace", b"2"),), TRACE]

    def test_headers_after_records_without_any_are_a_list(self) -> None:
        columns = RecordColumns()
        columns.append(b"a", None, (), 7)
        columns.extend([b"b"], None, self.traces(b"1"), 8)
        assert columns.headers == [(), (("trace", b"1"),)]

    def test_records_without_headers_convert_columns_to_a_list(self) -> None:
        columns = self.two()
        columns.extend([b"c"], None, None, 8)
        assert columns.headers == [(("trace", b"1"),), (("trace", b"2"),), ()]

    def test_sliced_headers_are_columns(self) -> None:
        part = self.two().take([1])
        assert isinstance(part.headers, HeaderColumns)
        assert len(part.headers) == 1
        assert list(part.headers) == [(("trace", b"2"),)]

    def test_extend_copies_header_columns(self) -> None:
        values: list[bytes | None] = [b"1"]
        columns = RecordColumns()
        columns.extend([b"a"], None, HeaderColumns([HeaderColumn("trace", None, values)], 1), 7)
        columns.extend([b"b"], None, self.traces(b"2"), 8)
        assert values == [b"1"]


@pytest.mark.parametrize("keys", [None, [b"k", None, b"torn"], [b"k", None]])
def test_truncated_columns_have_one_length(keys: list[bytes | None] | None) -> None:
    columns = RecordColumns()
    columns.values, columns.timestamps, columns.keys = [b"1", b"2", b"torn"], [1, 2], keys
    columns.headers = [(), (), ()]
    columns.truncate(2)
    assert (columns.values, columns.timestamps, columns.headers) == ([b"1", b"2"], [1, 2], [(), ()])
    assert columns.keys == (None if keys is None else [b"k", None])


def test_truncated_header_columns_take_more() -> None:
    columns = RecordColumns()
    columns.values, columns.timestamps = [b"1", b"2"], [1, 2]
    columns.headers = HeaderColumns(
        [HeaderColumn("same", b"s"), HeaderColumn("other", None, [b"1", b"2", b"torn"])], 3
    )
    columns.truncate(2)
    more = HeaderColumns([HeaderColumn("same", b"s"), HeaderColumn("other", None, [b"3"])], 1)
    columns.extend([b"3"], None, more, 3)
    assert [dict(each)["other"] for each in columns.headers] == [b"1", b"2", b"3"]
