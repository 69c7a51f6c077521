"""JSON values of an array, of lines and of a concatenation are read unchanged, in pieces of any size."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from aioproducer.cli.send.framing import NOTHING, JsonInput

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
OBJECT = st.dictionaries(st.text(max_size=3), JSON, max_size=3)


def values(data: bytes, size: int) -> list[Any]:
    framing = JsonInput(100_000)
    wholes = [framing.feed(data[at : at + size]) for at in range(0, len(data), size)]
    wholes += iter(framing.finish, NOTHING)
    return [json.loads(item) for whole in wholes for item in whole.items if item.strip()]


@given(st.lists(JSON), st.sampled_from([None, 0, 1, 4]), st.booleans(), st.integers(1, 40))
def test_elements_of_an_array_are_records(
    records: list[Any], indent: int | None, ascii_: bool, size: int
) -> None:
    data = json.dumps(records, indent=indent, ensure_ascii=ascii_).encode()
    assert values(data, size) == records
    assert values(data + b"\n", size) == records


@given(st.lists(OBJECT), st.sampled_from(["", " ", "\n", "\r\n", "\n\n"]), st.integers(1, 40), st.data())
def test_objects_next_to_each_other_are_records(
    records: list[Any], between: str, size: int, data: st.DataObject
) -> None:
    first = data.draw(st.sampled_from([None, 1]))
    indent = first if between.strip("\r") == "" or first is None else None
    text = between.join(json.dumps(each, indent=indent, ensure_ascii=False) for each in records)
    assert values(text.encode(), size) == records


@given(st.lists(JSON, min_size=2), st.integers(1, 40))
def test_json_lines_are_records(records: list[Any], size: int) -> None:
    text = "".join(json.dumps(each) + "\n" for each in records)
    assert values(text.encode(), size) == records
