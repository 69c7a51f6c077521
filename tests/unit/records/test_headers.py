from __future__ import annotations

import pytest

from aioproducer.records.headers import as_columns, encode_each, encode_headers, is_shared


def test_headers_are_a_count_then_names_and_nullable_values() -> None:
    assert encode_headers(()) == b"\0"
    assert encode_headers((("trace", b"1f"), ("é", None), ("", b""))) == (
        b"\x06" + b"\x0atrace" + b"\x041f" + b"\x04\xc3\xa9" + b"\x01" + b"\x00" + b"\x00"
    )


def test_a_name_with_lone_surrogates_cannot_be_encoded() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_headers((("\ud800", b""),))


def test_the_same_headers_object_again_is_not_encoded_again() -> None:
    first, second = (("a", b"1"),), (("b", b"2"),)
    blocks = encode_each([first, first, second, first])
    assert blocks == [encode_headers(first)] * 2 + [encode_headers(second), encode_headers(first)]
    assert blocks[0] is blocks[1]


def test_headers_are_shared_when_all_records_have_the_same() -> None:
    headers, other = (("a", b"1"),), (("a", b"2"),)
    assert is_shared([headers])
    assert is_shared([headers, (("a", b"1"),), headers])
    assert not is_shared([headers, other])
    assert not is_shared([headers, other, headers])


def test_headers_of_the_same_names_are_columns() -> None:
    assert as_columns([(("a", b"1"), ("b", None)), (("a", b"2"), ("b", b"3"))]) == [
        ("a", (b"1", b"2")),
        ("b", (None, b"3")),
    ]


@pytest.mark.parametrize(
    "second", [(), (("a", b"2"),), (("b", b"2"), ("a", b"2")), (("a", b"2"), ("b", b"2"), ("c", b"2"))]
)
def test_headers_of_other_names_order_or_number_are_not_columns(
    second: tuple[tuple[str, bytes], ...],
) -> None:
    assert as_columns([(("a", b"1"), ("b", b"1")), second]) == []
