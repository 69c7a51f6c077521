from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioproducer._core.wire.primitives import (
    append_bytes,
    append_compact_bytes,
    append_compact_length,
    append_compact_nullable_bytes,
    append_compact_nullable_string,
    append_compact_string,
    append_length,
    append_nullable_bytes,
    append_nullable_string,
    append_string,
    past_the_end,
    read_bytes,
    read_compact_bytes,
    read_compact_length,
    read_compact_nullable_bytes,
    read_compact_nullable_string,
    read_compact_string,
    read_int16,
    read_int32,
    read_length,
    read_nullable_bytes,
    read_nullable_string,
    read_string,
    read_tags,
)
from aioproducer.errors import ProtocolError

Append = Callable[[bytearray, Any], None]
Read = Callable[[bytes, int], tuple[Any, int]]

LONG = "x" * 200

KNOWN: list[tuple[Append, Read, Any, bytes]] = [
    (append_string, read_string, "", b"\0\0"),
    (append_string, read_string, "é", b"\0\2\xc3\xa9"),
    (append_nullable_string, read_nullable_string, "ab", b"\0\2ab"),
    (append_nullable_string, read_nullable_string, None, b"\xff\xff"),
    (append_compact_string, read_compact_string, "", b"\1"),
    (append_compact_string, read_compact_string, "é", b"\3\xc3\xa9"),
    (append_compact_string, read_compact_string, LONG, b"\xc9\1" + LONG.encode()),
    (append_compact_nullable_string, read_compact_nullable_string, "ab", b"\3ab"),
    (append_compact_nullable_string, read_compact_nullable_string, None, b"\0"),
    (append_bytes, read_bytes, b"ab", b"\0\0\0\2ab"),
    (append_compact_bytes, read_compact_bytes, b"ab", b"\3ab"),
    (append_nullable_bytes, read_nullable_bytes, b"", b"\0\0\0\0"),
    (append_nullable_bytes, read_nullable_bytes, b"ab", b"\0\0\0\2ab"),
    (append_nullable_bytes, read_nullable_bytes, None, b"\xff\xff\xff\xff"),
    (append_compact_nullable_bytes, read_compact_nullable_bytes, b"", b"\1"),
    (append_compact_nullable_bytes, read_compact_nullable_bytes, b"ab", b"\3ab"),
    (append_compact_nullable_bytes, read_compact_nullable_bytes, None, b"\0"),
    (append_length, read_length, 0, b"\0\0\0\0"),
    (append_length, read_length, -1, b"\xff\xff\xff\xff"),
    (append_compact_length, read_compact_length, 0, b"\1"),
    (append_compact_length, read_compact_length, -1, b"\0"),
]
READS = sorted({read for _, read, _, _ in KNOWN} | {read_int16, read_int32}, key=lambda read: read.__name__)


@pytest.mark.parametrize(("append", "read", "value", "wire"), KNOWN)
def test_known_values_are_written_and_read(append: Append, read: Read, value: Any, wire: bytes) -> None:
    buf = bytearray(b"before")
    append(buf, value)
    assert buf == b"before" + wire
    assert read(b"before" + wire + b"after", 6) == (value, 6 + len(wire))


@pytest.mark.parametrize(
    ("append", "read", "wire"),
    [(append_length, read_length, b"\0\0\0\xff"), (append_compact_length, read_compact_length, b"\x80\2")],
)
def test_a_length_is_read_if_as_many_bytes_follow(append: Append, read: Read, wire: bytes) -> None:
    buf = bytearray()
    append(buf, 255)
    assert buf == wire
    assert read(wire + bytes(255), 0) == (255, len(wire))
    with pytest.raises(ProtocolError, match=f"255 bytes expected at byte {len(wire)}, 254 left"):
        read(wire + bytes(254), 0)


def test_integers_are_big_endian_and_signed() -> None:
    assert read_int16(b"..\xff\xfe", 2) == (-2, 4)
    assert read_int32(b"..\1\2\3\4", 2) == (0x0102_0304, 6)


@pytest.mark.parametrize("read", READS)
def test_nothing_at_all_is_a_protocol_error(read: Read) -> None:
    for data, pos in ((b"", 0), (b"ab", 2), (b"ab", 99)):
        with pytest.raises(ProtocolError, match="expected at byte"):
            read(data, pos)


@pytest.mark.parametrize(
    ("read", "wire"),
    [
        (read_string, b"\0\3ab"),
        (read_nullable_string, b"\x7f\xffab"),
        (read_compact_string, b"\4ab"),
        (read_compact_nullable_string, b"\xff\xff\xff\xff\x0fab"),
        (read_nullable_bytes, b"\x7f\xff\xff\xffab"),
        (read_compact_nullable_bytes, b"\4ab"),
    ],
)
def test_a_length_past_the_end_is_a_protocol_error(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"expected at byte \d, 2 left"):
        read(wire, 0)


@pytest.mark.parametrize(
    ("read", "wire"),
    [
        (read_string, b"\xff\xfe"),
        (read_nullable_string, b"\x80\0"),
        (read_length, b"\xff\xff\xff\xfe"),
        (read_nullable_bytes, b"\x80\0\0\0"),
    ],
)
def test_a_length_below_minus_one_is_a_protocol_error(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match="a length of -"):
        read(wire, 0)


@pytest.mark.parametrize(("read", "wire"), [(read_string, b"\xff\xff"), (read_compact_string, b"\0")])
def test_a_null_where_there_is_none_is_a_protocol_error(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match="null"):
        read(wire, 0)


@pytest.mark.parametrize(("read", "wire"), [(read_string, b"\0\2\xc3("), (read_compact_string, b"\3\xc3(")])
def test_a_string_that_is_not_utf_8_is_a_protocol_error(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match="not UTF-8"):
        read(wire, 0)


@pytest.mark.parametrize("append", [append_string, append_compact_string])
def test_a_string_has_32767_bytes_at_most(append: Append) -> None:
    buf = bytearray()
    append(buf, "é" * 16_383)
    with pytest.raises(ValueError, match="32768 bytes"):
        append(buf, "é" * 16_384)


@pytest.mark.parametrize("append", [append_string, append_compact_string])
@pytest.mark.parametrize("value", [None, 7])
def test_what_is_not_a_string_is_refused(append: Append, value: object) -> None:
    with pytest.raises(TypeError, match=f"{value} where the protocol has a string"):
        append(bytearray(), value)


@pytest.mark.parametrize("append", [append_nullable_bytes, append_compact_nullable_bytes])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_anything_bytes_like_is_written(append: Append, kind: Callable[[bytes], Any]) -> None:
    expected, buf = bytearray(), bytearray()
    append(expected, b"records")
    append(buf, kind(b"records"))
    assert buf == expected


def test_the_error_for_missing_bytes_counts_what_is_left() -> None:
    assert str(past_the_end(8, b"123", 1)) == "8 bytes expected at byte 1, 2 left"
    assert str(past_the_end(8, b"123", 5)) == "8 bytes expected at byte 5, 0 left"


@pytest.mark.parametrize(("read", "wire"), [(read_bytes, b"\xff\xff\xff\xff"), (read_compact_bytes, b"\0")])
def test_null_is_a_protocol_error_where_bytes_are_meant(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match="null at byte 0"):
        read(wire, 0)


def test_a_count_of_tags_that_cannot_be_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        read_tags(bytes.fromhex("ffffffff0f 00 00"), 0, {}, None)
    with pytest.raises(ProtocolError, match="9 bytes expected"):
        read_tags(bytes.fromhex("01 00 09 00"), 0, {}, None)
