from __future__ import annotations

import pytest

from aioproducer._core.records.columns import HeaderColumn, HeaderColumns, RecordHeaders
from tests.cases import for_each

EACH: list[RecordHeaders] = [
    (("trace", b"1"), ("type", b"json")),
    (("trace", None), ("type", b"json")),
    (("trace", b"3"), ("type", b"json")),
]


def three() -> HeaderColumns:
    return HeaderColumns([HeaderColumn("trace", None, (b"1", None, b"3")), HeaderColumn("type", b"json")], 3)


def test_header_columns_are_a_sequence_of_headers() -> None:
    headers = three()
    assert len(headers) == 3
    assert list(headers) == EACH
    assert [headers[0], headers[1], headers[-1]] == EACH


@for_each(
    ("values", "column"),
    [
        ((b"1", b"1", b"1"), HeaderColumn("trace", b"1")),
        ((None, None), HeaderColumn("trace", None)),
        ((b"1", b"2", b"1"), HeaderColumn("trace", None, (b"1", b"2", b"1"))),
        ((b"1", None), HeaderColumn("trace", None, (b"1", None))),
    ],
)
def test_header_column_stores_equal_values_once(
    values: tuple[bytes | None, ...], column: HeaderColumn
) -> None:
    assert HeaderColumn.holding("trace", values) == column


def test_header_columns_may_be_empty() -> None:
    headers = HeaderColumns([], 2)
    assert list(headers) == [(), ()]
    assert headers[1] == ()


@for_each("index", [3, -4])
@for_each("headers", [three(), HeaderColumns([HeaderColumn("type", b"json")], 3)])
def test_header_columns_raise_index_error_at_the_end(headers: HeaderColumns, index: int) -> None:
    with pytest.raises(IndexError):
        headers[index]


def test_slice_of_header_columns_has_own_columns() -> None:
    part = three()[1:9]
    assert list(part) == EACH[1:]
    assert part.columns == [HeaderColumn("trace", None, (None, b"3")), HeaderColumn("type", b"json")]


def test_picked_rows_keep_the_columns() -> None:
    part = three().part(lambda values: [values[2], values[0]], 2)
    assert list(part) == [EACH[2], EACH[0]]


def test_common_headers_come_first() -> None:
    assert list(three().behind((("all", None),))) == [(("all", None), *headers) for headers in EACH]


class TestExtend:
    def test_extend_appends_rows_with_the_same_names(self) -> None:
        headers = three().owned()
        assert headers.extend(three())
        assert list(headers) == EACH * 2
        assert headers.columns[1] == HeaderColumn("type", b"json")

    def test_extend_expands_a_constant_when_values_differ(self) -> None:
        headers = three().owned()
        more = HeaderColumns([HeaderColumn("trace", b"4"), HeaderColumn("type", None, [None, b"xml"])], 2)
        other: list[RecordHeaders] = [
            (("trace", b"4"), ("type", None)),
            (("trace", b"4"), ("type", b"xml")),
        ]
        assert headers.extend(more)
        assert list(headers) == EACH + other

    def test_constant_null_differs_from_a_missing_header(self) -> None:
        headers = HeaderColumns([HeaderColumn("a", None)], 1)
        assert headers.extend(HeaderColumns([HeaderColumn("a", b"")], 1))
        assert list(headers) == [(("a", None),), (("a", b""),)]

    @for_each("names", [(), ("trace",), ("type", "trace"), ("trace", "type", "type")])
    def test_records_with_other_names_do_not(self, names: tuple[str, ...]) -> None:
        headers = three().owned()
        assert not headers.extend(HeaderColumns([HeaderColumn(name, b"") for name in names], 1))
        assert list(headers) == EACH

    def test_extend_leaves_its_source_unchanged(self) -> None:
        values: list[bytes | None] = [b"1", b"2"]
        theirs = HeaderColumns([HeaderColumn("a", None, values)], 2)
        ours = theirs.owned()
        assert ours.extend(theirs)
        assert list(ours) == [*theirs, *theirs]
        assert values == [b"1", b"2"]
