from __future__ import annotations

import pytest

from aioproducer._core.protocol.fields import (
    COMPILED_AFTER,
    field,
    field_specs,
    struct,
    struct_reader,
    struct_writer,
)
from aioproducer._core.protocol.types import (
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    array_of,
    struct_of,
)
from aioproducer._core.wire import BytesLike
from aioproducer.errors import ProtocolError


@struct
class Sample:
    number: int = field(INT32)
    text: str | None = field(NULLABLE_STRING, since=2, until=5, nullable_since=3, ignorable=True)
    tagged: int = field(INT16, since=4, tag=7, default=-1)
    items: list[str] = field(array_of(STRING), factory=list)
    records: BytesLike | None = field(RECORDS, default=None)


@struct
class Named:
    text: str = field(STRING)


@struct
class Titled:
    text: str = field(STRING)


def test_field_specs_are_in_the_order_of_the_fields() -> None:
    specs = field_specs(Sample)
    assert list(specs) == ["number", "text", "tagged", "items", "records"]
    assert [spec.type.name for spec in specs.values()] == ["int32", "string", "int16", "[]string", "records"]
    assert specs["tagged"].tag == 7
    assert [name for name, spec in specs.items() if spec.ignorable] == ["text"]


def test_versions_are_inclusive_and_open_ended() -> None:
    specs = field_specs(Sample)
    assert [version for version in range(9) if specs["text"].exists_in(version)] == [2, 3, 4, 5]
    assert all(specs["number"].exists_in(version) for version in (0, 0x7FFF))


def test_nullable_type_is_nullable_from_the_given_version() -> None:
    specs = field_specs(Sample)
    assert not specs["text"].nullable_in(2)
    assert specs["text"].nullable_in(3)
    assert specs["records"].nullable_in(0)
    assert not specs["number"].nullable_in(9)


def test_omitted_fields_have_their_default() -> None:
    sample = Sample(number=3, text=None)
    assert (sample.tagged, sample.items, sample.records) == (-1, [], None)
    assert sample.items is not Sample(number=3, text=None).items
    assert Sample() == Sample(number=0, text="")  # type: ignore[call-arg] # what type checkers insist on


def test_struct_differs_from_other_classes_with_its_fields() -> None:
    others: list[object] = [Titled(text="t"), ("t",), "t"]
    assert Named(text="t") not in others
    assert Named(text="t") in [*others, Named(text="t")]


def test_structs_are_slotted_and_do_not_print_their_records() -> None:
    sample = Sample(number=1, text="t", records=b"kilobytes")
    assert repr(sample) == "Sample(number=1, text='t', tagged=-1, items=[])"
    with pytest.raises(AttributeError):
        sample.other = 1  # type: ignore[attr-defined]


def test_struct_with_compiled_constructor_has_equal_fields() -> None:
    @struct
    class Fresh:
        """A struct without an instance."""

        number: int = field(INT32)
        text: str = field(STRING, default="t")
        items: list[str] = field(array_of(STRING), factory=list)

    made = [Fresh(number, text="u") for number in range(2 * COMPILED_AFTER)]  # type: ignore[call-arg]
    assert [each.number for each in made] == list(range(2 * COMPILED_AFTER))
    assert all((each.text, each.items) == ("u", []) for each in made)
    assert len({id(each.items) for each in made}) == len(made)


@pytest.mark.parametrize("instances", [0, 20])
def test_struct_refuses_unknown_fields(instances: int) -> None:
    @struct
    class Fresh:
        """A struct without an instance."""

        number: int = field(INT32)

    for number in range(instances):
        assert Fresh(number=number).number == number
    with pytest.raises(TypeError, match="other"):
        Fresh(number=1, other=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="number"):
        Fresh(1, number=2)  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional"):
        Fresh(1, 2)  # type: ignore[call-arg]
    assert Fresh(number=3).number == 3


@struct
class Point:
    x: int = field(INT8, default=-1)
    y: int = field(INT8, since=2, default=-1)


@struct
class Shape:
    """Fixed-width fields around a string, fields of later and earlier versions, and tagged fields out of order."""

    first: int = field(INT16)
    gone: int = field(INT16, until=1, default=5)
    ignorable: int = field(INT16, since=9, ignorable=True, default=9)
    second: int = field(INT32)
    name: str = field(STRING)
    high: str = field(STRING, since=2, tag=300, default="")
    low: Point = field(struct_of(Point), since=2, tag=1, factory=Point)
    last: int = field(INT8, since=2, default=7)
    points: list[Point] = field(array_of(Point), since=3, factory=list)


def write(value: object, version: int, *, flexible: bool) -> bytes:
    buf = bytearray()
    struct_writer(type(value), version, flexible=flexible)(buf, value)
    return bytes(buf)


def read(data: bytes, version: int, *, flexible: bool) -> tuple[Shape, int]:
    shape, end = struct_reader(Shape, version, flexible=flexible)(data, 0)
    assert isinstance(shape, Shape)
    return shape, end


def test_classic_struct_is_the_sequence_of_its_fields() -> None:
    shape = Shape(first=1, gone=2, second=3, name="ab")
    wire = bytes.fromhex("0001 0002 00000003 0002") + b"ab"
    assert write(shape, 1, flexible=False) == wire
    assert read(wire + b"!", 1, flexible=False) == (shape, len(wire))


def test_field_missing_from_a_version_is_read_as_its_default() -> None:
    shape = Shape(first=1, second=3, name="", ignorable=10, last=8)
    wire = bytes.fromhex("0001 00000003 01 08 00")
    assert write(shape, 2, flexible=True) == wire
    assert read(wire, 2, flexible=True) == (Shape(first=1, second=3, name="", last=8), len(wire))


def test_value_missing_from_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"version 2 has no gone \(= 6\)") as caught:
        write(Shape(first=1, gone=6, second=3, name=""), 2, flexible=True)
    assert caught.value.__notes__ == ["while writing a Shape v2"]


def test_flexible_struct_ends_with_its_non_default_tagged_fields() -> None:
    shape = Shape(first=1, second=3, name="ab", high="h", low=Point(x=4, y=5))
    start = bytes.fromhex("0001 00000003 03") + b"ab" + bytes.fromhex("07")
    tags = bytes.fromhex("02  01 03 04 05 00  ac02 02 02") + b"h"
    assert write(shape, 2, flexible=True) == start + tags
    assert read(start + tags, 2, flexible=True) == (shape, len(start + tags))
    assert write(Shape(first=1, second=3, name="ab"), 2, flexible=True) == start + b"\0"


def test_structs_in_arrays_follow_the_version_of_the_message() -> None:
    shape = Shape(first=0, second=0, name="", last=0, points=[Point(x=1, y=2), Point(x=3, y=4)])
    wire = bytes.fromhex("0000 00000000 01 00 03 010200 030400 00")
    assert write(shape, 3, flexible=True) == wire
    assert read(wire, 3, flexible=True) == (shape, len(wire))


def test_unknown_tagged_fields_are_skipped() -> None:
    start = bytes.fromhex("0001 00000003 01 07")
    tags = bytes.fromhex("03  00 02 ffff  01 03 04 05 00  ffffffff0f 00")
    shape, end = read(start + tags, 2, flexible=True)
    assert (shape.low, end) == (Point(x=4, y=5), len(start + tags))


@pytest.mark.parametrize("size", ["02", "04"])
def test_tagged_field_must_have_the_announced_size(size: str) -> None:
    data = bytes.fromhex("0001 00000003 01 07  01 01" + size + "04 05 00 00")
    with pytest.raises(ProtocolError, match="tagged field low takes 3 bytes where"):
        read(data, 2, flexible=True)


def test_truncated_struct_is_a_protocol_error() -> None:
    shape = Shape(first=1, second=3, name="ab", high="h", low=Point(x=4, y=5), points=[Point(x=1)])
    wire = write(shape, 3, flexible=True)
    for end in range(len(wire)):
        with pytest.raises(ProtocolError):
            read(wire[:end], 3, flexible=True)


def test_invalid_value_error_has_its_field_and_the_outer_structs() -> None:
    shape = Shape(first=1, second=3, name="ab", points=[Point(x=0, y=128)])
    with pytest.raises(ValueError, match=r"^x, y = 0, 128: .*format requires") as caught:
        write(shape, 3, flexible=True)
    assert caught.value.__notes__ == ["while writing a Point v3", "while writing a Shape v3"]


def test_invalid_value_error_names_a_single_field() -> None:
    with pytest.raises(ValueError, match=r"^last = None: required argument is not an integer"):
        write(Shape(first=1, second=3, name="ab", last=None), 2, flexible=True)  # type: ignore[arg-type]
