"""Strategies for messages, made from the declarations themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.fields import WireType, field_specs
from aioproducer._core.protocol.schema import Message
from aioproducer._core.protocol.types import NULLABLE_TEXT

MESSAGES: list[tuple[type[Message], int]] = [
    (cls, version)
    for request in REQUESTS.values()
    for cls in (request, request.RESPONSE)
    for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1)
]
"""Every message there is, in every version."""


def message_id(value: object) -> str:
    """Name a parameter for pytest."""
    return value.__name__ if isinstance(value, type) else f"v{value}"


def instances(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Return instances of a message or struct, with anything in the fields that *version* has."""
    fields = {
        name: _values(spec.type, version, nullable=spec.nullable_in(version))
        for name, spec in field_specs(cls).items()
        if spec.exists_in(version)
    }
    return st.builds(cls, **fields)


def _values(wire_type: WireType[Any], version: int, *, nullable: bool) -> st.SearchStrategy[Any]:
    values = _not_null(wire_type, version)
    return st.none() | values if nullable else values


PRINTABLE = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=150)


def _not_null(wire_type: Any, version: int) -> st.SearchStrategy[Any]:
    if wire_type is NULLABLE_TEXT:  # read escaped, so only printable text is read as it was written
        return PRINTABLE
    match wire_type.name:
        case "bool":
            return st.booleans()
        case "int8" | "int16" | "int32" | "int64":
            bits = int(wire_type.name.removeprefix("int"))
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        case "uuid":
            return st.binary(min_size=16, max_size=16)
        case "string":
            return st.text(max_size=150)
        case "records" | "bytes":
            return st.binary(max_size=300)
        case name if name.startswith("[]"):
            items = _not_null(wire_type.item, version)
            fixed_width = bool(wire_type.item.code)
            return st.lists(items, max_size=12).map(tuple) if fixed_width else st.lists(items, max_size=2)
        case _:
            return instances(wire_type.cls, version)
