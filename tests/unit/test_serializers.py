from __future__ import annotations

import pytest

from aioproducer.serializers import bytes_serializer, string_serializer


@pytest.mark.parametrize(("value", "expected"), [("", b""), ("grün €", "grün €".encode()), (None, None)])
def test_strings_become_utf8_and_null_stays_null(value: str | None, expected: bytes | None) -> None:
    assert string_serializer(value) == expected


@pytest.mark.parametrize("value", [b"bytes", 5, True])
def test_the_string_serializer_takes_nothing_but_strings(value: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        string_serializer(value)


def test_half_a_surrogate_pair_has_no_utf8() -> None:
    with pytest.raises(UnicodeEncodeError):
        string_serializer("\ud800")


@pytest.mark.parametrize("value", [b"", b"b", bytearray(b"a"), memoryview(b"m"), None])
def test_bytes_are_handed_on_as_they_are(value: object) -> None:
    assert bytes_serializer(value) is value


@pytest.mark.parametrize("value", ["text", 5, [1]])
def test_the_bytes_serializer_takes_nothing_but_bytes(value: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        bytes_serializer(value)
