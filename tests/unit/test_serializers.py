from __future__ import annotations

from uuid import UUID

import pytest

from aioproducer.serializers import (
    Serializer,
    bytes_serializer,
    double_serializer,
    float_serializer,
    integer_serializer,
    long_serializer,
    short_serializer,
    string_serializer,
    uuid_serializer,
)
from tests.cases import for_each


@pytest.mark.parametrize(("value", "expected"), [("", b""), ("grün €", "grün €".encode()), (None, None)])
def test_strings_become_utf8_and_null_stays_null(value: str | None, expected: bytes | None) -> None:
    assert string_serializer(value) == expected


@pytest.mark.parametrize("value", [b"bytes", 5, True])
def test_string_serializer_accepts_only_strings(value: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        string_serializer(value)


def test_half_a_surrogate_pair_has_no_utf8() -> None:
    with pytest.raises(UnicodeEncodeError):
        string_serializer("\ud800")


@for_each("value", [b"", b"b", bytearray(b"a"), memoryview(b"m"), None])
def test_bytes_are_handed_on_as_they_are(value: object) -> None:
    assert bytes_serializer(value) is value


@pytest.mark.parametrize("value", ["text", 5, [1]])
def test_bytes_serializer_accepts_only_bytes(value: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        bytes_serializer(value)


@for_each(
    ("serializer", "value", "expected"),
    [  # output of the Java serializers
        (short_serializer, -2, "fffe"),
        (integer_serializer, 1, "00000001"),
        (integer_serializer, -(2**31), "80000000"),
        (long_serializer, 1_700_000_000_000, "0000018bcfe56800"),
        (long_serializer, -1, "ffffffffffffffff"),
        (float_serializer, 1.5, "3fc00000"),
        (float_serializer, 3, "40400000"),
        (double_serializer, -0.1, "bfb999999999999a"),
        (double_serializer, float("inf"), "7ff0000000000000"),
        (uuid_serializer, UUID(int=1), b"00000000-0000-0000-0000-000000000001".hex()),
    ],
)
def test_numbers_and_uuids_are_written_as_java_does(
    serializer: Serializer, value: object, expected: str
) -> None:
    written = serializer(value)
    assert isinstance(written, bytes)
    assert written.hex() == expected


NUMBERS = [short_serializer, integer_serializer, long_serializer, float_serializer, double_serializer]


@for_each("serializer", [*NUMBERS, uuid_serializer])
def test_serializers_keep_null_and_refuse_other_types(serializer: Serializer) -> None:
    assert serializer(None) is None
    for value in ("7", b"7", True):
        with pytest.raises(
            TypeError, match=rf"^\w+_serializer takes .* or None, not {type(value).__name__}$"
        ):
            serializer(value)


@pytest.mark.parametrize("serializer", [short_serializer, integer_serializer, long_serializer])
def test_whole_numbers_are_not_rounded(serializer: Serializer) -> None:
    with pytest.raises(TypeError, match=r"takes int or None, not float"):
        serializer(1.0)


@for_each(
    ("serializer", "value"),
    [
        (short_serializer, 2**15),
        (integer_serializer, 2**31),
        (long_serializer, -(2**63) - 1),
        (float_serializer, 1e39),
    ],
)
def test_number_that_does_not_fit_is_refused(serializer: Serializer, value: float) -> None:
    with pytest.raises(ValueError, match="the number is too large"):
        serializer(value)


def test_repr_of_a_serializer_is_its_name() -> None:
    assert repr(long_serializer) == "<long_serializer>"
