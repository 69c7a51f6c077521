from __future__ import annotations

import pytest

from aioproducer._core.records.columns import (
    HeaderColumn,
    RecordHeaders,
    as_columns,
    encode_each,
    encode_headers,
    encode_value,
)
from tests.cases import for_each


def columns_of(headers: list[RecordHeaders]) -> list[HeaderColumn] | None:
    columns = as_columns(headers)
    return None if columns is None else columns.columns


def test_headers_are_a_count_then_names_and_nullable_values() -> None:
    assert encode_headers(()) == b"\0"
    assert encode_headers((("trace", b"1f"), ("é", None), ("", b""))) == (
        b"\x06" + b"\x0atrace" + b"\x041f" + b"\x04\xc3\xa9" + b"\x01" + b"\x00" + b"\x00"
    )


@pytest.mark.parametrize("value", [b"1f", b"", None])
def test_header_value_is_encoded_as_in_its_record(value: bytes | None) -> None:
    assert encode_headers((("", value),)) == b"\x02\x00" + encode_value(value)


def test_header_name_with_lone_surrogates_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_headers((("\ud800", b""),))


def test_repeated_headers_object_is_encoded_once() -> None:
    first, second = (("a", b"1"),), (("b", b"2"),)
    blocks = encode_each([first, first, second, first])
    assert blocks == [encode_headers(first)] * 2 + [encode_headers(second), encode_headers(first)]
    assert blocks[0] is blocks[1]


def test_headers_shared_by_all_records_are_constant_columns() -> None:
    headers = (("a", b"1"), ("b", None))
    shared = [HeaderColumn("a", b"1"), HeaderColumn("b", None)]
    assert columns_of([headers]) == shared
    assert columns_of([headers, (("a", b"1"), ("b", None)), headers]) == shared
    assert columns_of([(), ()]) == []


def test_headers_of_the_same_names_are_columns() -> None:
    assert columns_of([(("a", b"1"), ("b", None)), (("a", b"2"), ("b", b"3"))]) == [
        HeaderColumn("a", None, (b"1", b"2")),
        HeaderColumn("b", None, (None, b"3")),
    ]
    first = (("a", b"1"),)
    assert columns_of([first, (("a", b"2"),), first]) == [HeaderColumn("a", None, (b"1", b"2", b"1"))]


def test_columns_are_columns_already() -> None:
    columns = as_columns([(("a", b"1"),)])
    assert columns is not None
    assert as_columns(columns) is columns


@for_each("second", [(), (("a", b"2"),), (("b", b"2"), ("a", b"2")), (("a", b"2"), ("b", b"2"), ("c", b"2"))])
def test_headers_of_other_names_order_or_number_are_not_columns(
    second: tuple[tuple[str, bytes], ...],
) -> None:
    assert as_columns([(("a", b"1"), ("b", b"1")), second]) is None
