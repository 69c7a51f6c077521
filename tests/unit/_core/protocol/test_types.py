from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from aioproducer._core.protocol.fields import WireType, field, struct
from aioproducer._core.protocol.types import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    UUID,
    array_of,
    nullable_array_of,
    struct_of,
)
from aioproducer.errors import ProtocolError
from tests.cases import for_each


@struct
class Point:
    x: int = field(INT8, default=0)
    y: int = field(INT8, default=9)


TOPIC_ID = bytes(range(16))

KNOWN: list[tuple[WireType[Any], Any, str, str]] = [
    # type, value, classic form, compact form
    (BOOL, True, "01", "01"),
    (INT8, -2, "fe", "fe"),
    (INT16, -2, "fffe", "fffe"),
    (INT32, -2, "fffffffe", "fffffffe"),
    (INT64, -2, "fffffffffffffffe", "fffffffffffffffe"),
    (UUID, TOPIC_ID, TOPIC_ID.hex(), TOPIC_ID.hex()),
    (STRING, "a", "0001 61", "02 61"),
    (NULLABLE_STRING, "a", "0001 61", "02 61"),
    (NULLABLE_STRING, None, "ffff", "00"),
    (BYTES, b"ab", "00000002 6162", "03 6162"),
    (BYTES, b"", "00000000", "01"),
    (RECORDS, b"ab", "00000002 6162", "03 6162"),
    (RECORDS, None, "ffffffff", "00"),
    (array_of(STRING), ["a", ""], "00000002 0001 61 0000", "03 02 61 01"),
    (array_of(INT16), (), "00000000", "01"),
    (array_of(INT16), (1, -2), "00000002 0001 fffe", "03 0001 fffe"),
    (array_of(INT8), tuple(range(20)), "00000014" + bytes(range(20)).hex(), "15" + bytes(range(20)).hex()),
    (array_of(Point), [], "00000000", "01"),
    (array_of(Point), [Point(x=1, y=2)], "00000001 0102", "02 0102 00"),
    (nullable_array_of(Point), [Point(x=1, y=2)], "00000001 0102", "02 0102 00"),
    (nullable_array_of(Point), None, "ffffffff", "00"),
    (struct_of(Point), Point(x=1, y=2), "0102", "0102 00"),
]
FORMS = [
    (type_, value, bytes.fromhex(form), flexible)
    for type_, value, *forms in KNOWN
    for form, flexible in zip(forms, (False, True), strict=True)
]


@for_each(("wire_type", "value", "wire", "flexible"), FORMS)
def test_known_values_are_written_and_read(
    wire_type: WireType[Any], value: Any, wire: bytes, flexible: bool
) -> None:
    buf = bytearray(b"before")
    wire_type.writer(0, flexible=flexible, nullable=wire_type.nullable)(buf, value)
    assert buf == b"before" + wire
    read = wire_type.reader(0, flexible=flexible, nullable=wire_type.nullable)
    assert read(b"before" + wire + b"after", 6) == (value, 6 + len(wire))


@for_each(("wire_type", "value", "wire", "flexible"), FORMS)
def test_truncated_value_is_a_protocol_error(
    wire_type: WireType[Any], value: Any, wire: bytes, flexible: bool
) -> None:
    read = wire_type.reader(0, flexible=flexible, nullable=wire_type.nullable)
    for end in range(len(wire)):
        with pytest.raises(ProtocolError):
            read(wire[:end], 0)


@for_each(
    ("wire_type", "default"),
    [
        (BOOL, False),
        (INT64, 0),
        (UUID, bytes(16)),
        (STRING, ""),
        (NULLABLE_STRING, ""),
        (RECORDS, None),
        (array_of(STRING), []),
        (array_of(INT32), ()),
        (nullable_array_of(Point), []),
        (struct_of(Point), Point()),
    ],
)
def test_defaults_are_kafkas(wire_type: WireType[Any], default: Any) -> None:
    assert wire_type.default() == default


@for_each(
    ("wire_type", "name"),
    [
        (UUID, "uuid"),
        (NULLABLE_STRING, "string"),
        (array_of(INT32), "[]int32"),
        (array_of(STRING), "[]string"),
        (nullable_array_of(Point), "[]Point"),
        (struct_of(Point), "Point"),
    ],
)
def test_types_are_named_as_in_kafkas_definitions(wire_type: WireType[Any], name: str) -> None:
    assert wire_type.name == name


@for_each("wire_type", [NULLABLE_STRING, array_of(STRING), array_of(INT32), nullable_array_of(Point)])
@for_each("flexible", [False, True])
def test_null_is_refused_when_the_version_does_not_allow_it(wire_type: WireType[Any], flexible: bool) -> None:
    with pytest.raises(TypeError):
        wire_type.writer(0, flexible=flexible, nullable=False)(bytearray(), None)
    with pytest.raises(ProtocolError, match="null"):
        wire_type.reader(0, flexible=flexible, nullable=False)(b"\0" if flexible else b"\xff" * 4, 0)


@for_each("flexible", [False, True])
def test_array_with_too_many_items_is_refused(flexible: bool) -> None:
    wire_type = array_of(STRING, most=2)
    write = wire_type.writer(0, flexible=flexible, nullable=False)
    read = wire_type.reader(0, flexible=flexible, nullable=False)
    two, three = bytearray(), bytearray()
    write(two, ["a", "b"])
    write(three, ["a", "b", "c"])
    assert read(bytes(two), 0) == (["a", "b"], len(two))
    with pytest.raises(ProtocolError, match=r"3 items in \[\]string before byte \d; 2 are possible"):
        read(bytes(three), 0)


@for_each("wire_type", [array_of(STRING), array_of(INT64), array_of(Point), RECORDS])
@for_each("flexible", [False, True])
def test_huge_count_is_refused_before_allocation(wire_type: WireType[Any], flexible: bool) -> None:
    read = wire_type.reader(0, flexible=flexible, nullable=wire_type.nullable)
    data = (b"\xff\xff\xff\xff\x0f" if flexible else b"\x7f\xff\xff\xff") + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="100 left"):
            read(data, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_count_of_wide_items_is_checked_against_their_width() -> None:
    read = array_of(INT64).reader(0, flexible=False, nullable=False)
    with pytest.raises(ProtocolError, match="800 bytes expected at byte 4, 100 left"):
        read(b"\0\0\0\x64" + bytes(100), 0)


def test_items_of_fixed_width_may_be_given_as_any_sequence() -> None:
    buf = bytearray()
    array_of(INT8).writer(0, flexible=True, nullable=False)(buf, [1, 2])
    assert buf == b"\3\1\2"
