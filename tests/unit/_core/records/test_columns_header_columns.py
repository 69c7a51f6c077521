from __future__ import annotations

import pytest

from aioproducer._core.records.columns import HeaderColumn, HeaderColumns, RecordHeaders

EACH: list[RecordHeaders] = [
    (("trace", b"1"), ("type", b"json")),
    (("trace", None), ("type", b"json")),
    (("trace", b"3"), ("type", b"json")),
]


def three() -> HeaderColumns:
    return HeaderColumns([HeaderColumn("trace", None, (b"1", None, b"3")), HeaderColumn("type", b"json")], 3)


def test_they_are_a_sequence_of_the_headers_of_each_record() -> None:
    headers = three()
    assert len(headers) == 3
    assert list(headers) == EACH
    assert [headers[0], headers[1], headers[-1]] == EACH


def test_no_headers_are_columns_too() -> None:
    headers = HeaderColumns([], 2)
    assert list(headers) == [(), ()]
    assert headers[1] == ()


@pytest.mark.parametrize("index", [3, -4])
@pytest.mark.parametrize("headers", [three(), HeaderColumns([HeaderColumn("type", b"json")], 3)])
def test_there_is_nothing_behind_the_end(headers: HeaderColumns, index: int) -> None:
    with pytest.raises(IndexError):
        headers[index]


def test_a_slice_has_columns_of_its_own() -> None:
    part = three()[1:9]
    assert list(part) == EACH[1:]
    assert part.columns == [HeaderColumn("trace", None, (None, b"3")), HeaderColumn("type", b"json")]


def test_a_part_is_picked_from_the_columns_that_there_are() -> None:
    part = three().part(lambda values: [values[2], values[0]], 2)
    assert list(part) == [EACH[2], EACH[0]]


def test_common_headers_come_first() -> None:
    assert list(three().behind((("all", None),))) == [(("all", None), *headers) for headers in EACH]


class TestExtend:
    def test_more_records_with_the_same_names_follow(self) -> None:
        headers = three().owned()
        assert headers.extend(three())
        assert list(headers) == EACH * 2
        assert headers.columns[1] == HeaderColumn("type", b"json")

    def test_what_all_had_becomes_a_column_when_others_have_something_else(self) -> None:
        headers = three().owned()
        more = HeaderColumns([HeaderColumn("trace", b"4"), HeaderColumn("type", None, [None, b"xml"])], 2)
        other: list[RecordHeaders] = [
            (("trace", b"4"), ("type", None)),
            (("trace", b"4"), ("type", b"xml")),
        ]
        assert headers.extend(more)
        assert list(headers) == EACH + other

    def test_a_null_of_all_is_not_the_lack_of_one(self) -> None:
        headers = HeaderColumns([HeaderColumn("a", None)], 1)
        assert headers.extend(HeaderColumns([HeaderColumn("a", b"")], 1))
        assert list(headers) == [(("a", None),), (("a", b""),)]

    @pytest.mark.parametrize("names", [(), ("trace",), ("type", "trace"), ("trace", "type", "type")])
    def test_records_with_other_names_do_not(self, names: tuple[str, ...]) -> None:
        headers = three().owned()
        assert not headers.extend(HeaderColumns([HeaderColumn(name, b"") for name in names], 1))
        assert list(headers) == EACH

    def test_what_it_was_made_from_stays_as_it_is(self) -> None:
        values: list[bytes | None] = [b"1", b"2"]
        theirs = HeaderColumns([HeaderColumn("a", None, values)], 2)
        ours = theirs.owned()
        assert ours.extend(theirs)
        assert list(ours) == [*theirs, *theirs]
        assert values == [b"1", b"2"]
