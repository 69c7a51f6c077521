from __future__ import annotations

import pytest

from aioproducer._core.protocol.fields import COMPILED_AFTER, field, field_specs, struct
from aioproducer._core.protocol.types import INT16, INT32, NULLABLE_STRING, RECORDS, STRING, array_of
from aioproducer._core.wire import BytesLike


@struct
class Sample:
    number: int = field(INT32)
    text: str | None = field(NULLABLE_STRING, since=2, until=5, nullable_since=3, ignorable=True)
    tagged: int = field(INT16, since=4, tag=7, default=-1)
    items: list[str] = field(array_of(STRING), factory=list)
    records: BytesLike | None = field(RECORDS, default=None)


def test_a_struct_tells_its_fields_in_their_order() -> None:
    specs = field_specs(Sample)
    assert list(specs) == ["number", "text", "tagged", "items", "records"]
    assert [spec.type.name for spec in specs.values()] == ["int32", "string", "int16", "[]string", "records"]
    assert specs["tagged"].tag == 7
    assert [name for name, spec in specs.items() if spec.ignorable] == ["text"]


def test_versions_are_inclusive_and_open_ended() -> None:
    specs = field_specs(Sample)
    assert [version for version in range(9) if specs["text"].exists_in(version)] == [2, 3, 4, 5]
    assert all(specs["number"].exists_in(version) for version in (0, 0x7FFF))


def test_a_nullable_type_is_nullable_from_the_version_that_the_field_says() -> None:
    specs = field_specs(Sample)
    assert not specs["text"].nullable_in(2)
    assert specs["text"].nullable_in(3)
    assert specs["records"].nullable_in(0)
    assert not specs["number"].nullable_in(9)


def test_left_out_fields_have_kafkas_default_or_the_one_declared() -> None:
    sample = Sample(number=3, text=None)
    assert (sample.tagged, sample.items, sample.records) == (-1, [], None)
    assert sample.items is not Sample(number=3, text=None).items
    assert Sample() == Sample(number=0, text="")  # type: ignore[call-arg] # what type checkers insist on


def test_structs_are_slotted_and_do_not_print_their_records() -> None:
    sample = Sample(number=1, text="t", records=b"kilobytes")
    assert repr(sample) == "Sample(number=1, text='t', tagged=-1, items=[])"
    with pytest.raises(AttributeError):
        sample.other = 1  # type: ignore[attr-defined]


def test_a_struct_is_the_same_with_a_compiled_constructor() -> None:
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
def test_a_struct_refuses_unknown_fields(instances: int) -> None:
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
