from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import crc32c as crc32c_package
import pytest

from aioproducer._core.protocol.fields import WireType
from aioproducer._core.protocol.types import BYTES, NULLABLE_STRING, RECORDS, STRING
from aioproducer._core.wire import (
    MEMO_ENTRIES,
    VARINTS,
    Memo,
    _extension,
    append_compact_length,
    append_length,
    append_unsigned_varint,
    append_varlong,
    crc32c,
    field_size,
    past_the_end,
    read_compact_length,
    read_int16,
    read_int32,
    read_length,
    read_tags,
    read_unsigned_varint,
    read_varlong,
    unsigned_varint_size,
    varint,
    varints_after,
    varlong_size,
)
from aioproducer.errors import ProtocolError
from tests.cases import for_each

Append = Callable[[bytearray, Any], None]
Read = Callable[[bytes, int], tuple[Any, int]]

LONG = "x" * 200
PACKAGE = SimpleNamespace(submodule_search_locations=[])


def functions(kind: WireType[Any], *, flexible: bool) -> tuple[Append, Read]:
    """Return the writer and the reader of *kind* with a classic or a compact length."""
    return (
        kind.writer(0, flexible=flexible, nullable=kind.nullable),
        kind.reader(0, flexible=flexible, nullable=kind.nullable),
    )


append_string, read_string = functions(STRING, flexible=False)
append_compact_string, read_compact_string = functions(STRING, flexible=True)
append_nullable_string, read_nullable_string = functions(NULLABLE_STRING, flexible=False)
append_compact_nullable_string, read_compact_nullable_string = functions(NULLABLE_STRING, flexible=True)
append_bytes, read_bytes = functions(BYTES, flexible=False)
append_compact_bytes, read_compact_bytes = functions(BYTES, flexible=True)
append_nullable_bytes, read_nullable_bytes = functions(RECORDS, flexible=False)
append_compact_nullable_bytes, read_compact_nullable_bytes = functions(RECORDS, flexible=True)

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
READS = list(dict.fromkeys([*(read for _, read, _, _ in KNOWN), read_int16, read_int32]))


@for_each(("append", "read", "value", "wire"), KNOWN)
def test_known_values_are_written_and_read(append: Append, read: Read, value: Any, wire: bytes) -> None:
    buf = bytearray(b"before")
    append(buf, value)
    assert buf == b"before" + wire
    assert read(b"before" + wire + b"after", 6) == (value, 6 + len(wire))


@pytest.mark.parametrize(
    ("append", "read", "wire"),
    [(append_length, read_length, b"\0\0\0\xff"), (append_compact_length, read_compact_length, b"\x80\2")],
)
def test_length_is_read_when_enough_bytes_follow(append: Append, read: Read, wire: bytes) -> None:
    buf = bytearray()
    append(buf, 255)
    assert buf == wire
    assert read(wire + bytes(255), 0) == (255, len(wire))
    with pytest.raises(ProtocolError, match=f"255 bytes expected at byte {len(wire)}, 254 left"):
        read(wire + bytes(254), 0)


def test_integers_are_big_endian_and_signed() -> None:
    assert read_int16(b"..\xff\xfe", 2) == (-2, 4)
    assert read_int32(b"..\1\2\3\4", 2) == (0x0102_0304, 6)


@for_each("read", READS)
def test_empty_input_is_a_protocol_error(read: Read) -> None:
    for data, pos in ((b"", 0), (b"ab", 2), (b"ab", 99)):
        with pytest.raises(ProtocolError, match="expected at byte"):
            read(data, pos)


@for_each(
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
def test_length_past_the_end_is_a_protocol_error(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"expected at byte \d, 2 left"):
        read(wire, 0)


@for_each(
    ("read", "wire"),
    [
        (read_string, b"\xff\xfe"),
        (read_nullable_string, b"\x80\0"),
        (read_length, b"\xff\xff\xff\xfe"),
        (read_nullable_bytes, b"\x80\0\0\0"),
    ],
)
def test_length_below_minus_one_is_a_protocol_error(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match="a length of -"):
        read(wire, 0)


@pytest.mark.parametrize(("read", "wire"), [(read_string, b"\xff\xff"), (read_compact_string, b"\0")])
def test_unexpected_null_is_a_protocol_error(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match="null"):
        read(wire, 0)


@pytest.mark.parametrize(("read", "wire"), [(read_string, b"\0\2\xc3("), (read_compact_string, b"\3\xc3(")])
def test_string_other_than_utf_8_is_a_protocol_error(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match="not UTF-8"):
        read(wire, 0)


@pytest.mark.parametrize("append", [append_string, append_compact_string])
def test_string_has_at_most_32767_bytes(append: Append) -> None:
    buf = bytearray()
    append(buf, "é" * 16_383)
    with pytest.raises(ValueError, match="32768 bytes"):
        append(buf, "é" * 16_384)


@for_each("append", [append_string, append_compact_string])
@for_each("value", [None, 7])
def test_string_writer_refuses_other_types(append: Append, value: object) -> None:
    with pytest.raises(TypeError, match=f"{value} where the protocol has a string"):
        append(bytearray(), value)


@for_each("append", [append_nullable_bytes, append_compact_nullable_bytes])
@for_each("kind", [bytes, bytearray, memoryview])
def test_writer_accepts_any_bytes_like_object(append: Append, kind: Callable[[bytes], Any]) -> None:
    expected, buf = bytearray(), bytearray()
    append(expected, b"records")
    append(buf, kind(b"records"))
    assert buf == expected


def test_error_for_missing_bytes_has_the_remaining_count() -> None:
    assert str(past_the_end(8, b"123", 1)) == "8 bytes expected at byte 1, 2 left"
    assert str(past_the_end(8, b"123", 5)) == "8 bytes expected at byte 5, 0 left"


@pytest.mark.parametrize(("read", "wire"), [(read_bytes, b"\xff\xff\xff\xff"), (read_compact_bytes, b"\0")])
def test_null_is_a_protocol_error_where_bytes_are_meant(read: Read, wire: bytes) -> None:
    with pytest.raises(ProtocolError, match="null at byte 0"):
        read(wire, 0)


def test_impossible_tag_count_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        read_tags(bytes.fromhex("ffffffff0f 00 00"), 0, {}, None)
    with pytest.raises(ProtocolError, match="9 bytes expected"):
        read_tags(bytes.fromhex("01 00 09 00"), 0, {}, None)


def test_memo_creates_each_entry_once() -> None:
    made = list[int]()

    def make(number: int) -> bytes:
        made.append(number)
        return b"%d" % number

    memo = Memo(make)
    assert [memo[5], memo[6], memo[5]] == [b"5", b"6", b"5"]
    assert made == [5, 6]


def test_memo_size_is_bounded() -> None:
    memo = Memo(str)
    for number in range(MEMO_ENTRIES + 1):
        assert memo[number] == str(number)
    assert len(memo) == 1


@for_each(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (1 << 63 - 1, "80808080808080808001"),
    ],
)
def test_varints_are_zigzag_coded(number: int, encoded: str) -> None:
    assert varint(number).hex() == VARINTS[number].hex() == encoded


def test_varints_can_stand_behind_a_prefix() -> None:
    assert varints_after(b"\1")[64] == b"\1\x80\1"
    assert varints_after(b"")[64] == b"\x80\1"


@for_each(("length", "size"), [(-1, 1), (0, 1), (1, 2), (63, 64), (64, 66), (8192, 8195)])
def test_field_is_its_length_and_its_bytes(length: int, size: int) -> None:
    assert field_size(length) == size


AppendNumber = Callable[[bytearray, int], None]
ReadNumber = Callable[[bytes, int], tuple[int, int]]
Size = Callable[[int], int]

UNSIGNED = (append_unsigned_varint, read_unsigned_varint, unsigned_varint_size)
VARLONG = (append_varlong, read_varlong, varlong_size)

KNOWN_VARINTS = [
    (UNSIGNED, 0, "00"),
    (UNSIGNED, 1, "01"),
    (UNSIGNED, 127, "7f"),
    (UNSIGNED, 128, "8001"),
    (UNSIGNED, 16_383, "ff7f"),
    (UNSIGNED, 16_384, "808001"),
    (UNSIGNED, 2**32 - 1, "ffffffff0f"),
    (VARLONG, 0, "00"),
    (VARLONG, -1, "01"),
    (VARLONG, 1, "02"),
    (VARLONG, 63, "7e"),
    (VARLONG, -64, "7f"),
    (VARLONG, 64, "8001"),
    (VARLONG, -65, "8101"),
    (VARLONG, 2**31 - 1, "feffffff0f"),
    (VARLONG, -(2**31), "ffffffff0f"),
    (VARLONG, 2**63 - 1, "feffffffffffffffff01"),
    (VARLONG, -(2**63), "ffffffffffffffffff01"),
]


@for_each(("functions", "value", "wire"), KNOWN_VARINTS)
def test_known_values_are_written_sized_and_read(
    functions: tuple[AppendNumber, ReadNumber, Size], value: int, wire: str
) -> None:
    append, read, size = functions
    buf = bytearray(b"before")
    append(buf, value)
    assert buf.hex() == b"before".hex() + wire
    assert size(value) == len(wire) // 2
    assert read(bytes.fromhex("aa" + wire + "bb"), 1) == (value, 1 + len(wire) // 2)


@for_each(
    ("append", "value"),
    [
        (append_unsigned_varint, -1),
        (append_unsigned_varint, 2**32),
        (append_varlong, 2**63),
        (append_varlong, -(2**63) - 1),
    ],
)
def test_value_out_of_range_is_refused_without_output(append: AppendNumber, value: int) -> None:
    buf = bytearray(b"before")
    with pytest.raises(ValueError, match="does not fit"):
        append(buf, value)
    assert buf == b"before"


@for_each("read", [read_unsigned_varint, read_varlong])
@for_each("wire", ["", "80", "ffff"])
def test_truncated_varint_is_a_protocol_error(read: ReadNumber, wire: str) -> None:
    with pytest.raises(ProtocolError, match="ends within"):
        read(bytes.fromhex(wire), 0)


@for_each(
    ("read", "wire"),
    [
        (read_unsigned_varint, "ffffffff1f"),  # 33 bits
        (read_unsigned_varint, "808080808000"),  # a sixth byte
        (read_varlong, "ffffffffffffffffff02"),  # 65 bits
        (read_varlong, "8080808080808080808000"),  # an eleventh byte
    ],
)
def test_overlong_varint_is_a_protocol_error(read: ReadNumber, wire: str) -> None:
    with pytest.raises(ProtocolError, match="bits"):
        read(bytes.fromhex(wire), 0)


def test_crc32c_uses_the_castagnoli_polynomial() -> None:
    """The check value of CRC-32C, and one of RFC 3720, B.4: 32 zero bytes."""
    assert crc32c(b"123456789") == 0xE306_9283
    assert crc32c(bytes(32)) == 0x8A91_36AA


def test_crc32c_continues_a_checksum_of_any_buffer() -> None:
    assert crc32c(memoryview(b"56789"), crc32c(bytearray(b"1234"))) == crc32c(b"123456789")


@for_each(
    "specs",
    [
        {"crc32c": None},
        {"crc32c": PACKAGE, "crc32c._crc32c": None},
        {"crc32c": PACKAGE, "crc32c._crc32c": SimpleNamespace(loader=None)},
        {
            "crc32c": PACKAGE,
            "crc32c._crc32c": SimpleNamespace(loader=SimpleNamespace(create_module=lambda _: None)),
        },
    ],
)
def test_crc32c_falls_back_to_the_package_without_its_extension(
    monkeypatch: pytest.MonkeyPatch, specs: dict[str, Any]
) -> None:
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda name, *_: specs[name])
    assert _extension() is crc32c_package
