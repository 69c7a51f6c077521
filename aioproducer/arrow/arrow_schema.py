"""The columns that hold the parts of a record, found and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types

from aioproducer._core.intake.checks import check_topic


def _is_text(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return _is_text(kind) or bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_null(kind)
    )


def _is_headers(kind: pa.DataType) -> bool:
    if types.is_map(kind):
        return _is_text(kind.key_type) and _is_bytes(kind.item_type)
    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return bool(types.is_null(kind))
    if sorted(part.name for part in kind.value_type) != ["key", "value"]:
        return False
    return _is_text(kind.value_type.field("key").type) and _is_bytes(kind.value_type.field("value").type)


def _is_partition(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_null(kind))


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) or types.is_int64(kind) or types.is_null(kind))


class _Role(NamedTuple):
    """What a column has to be, to be a part of a record."""

    fits: Callable[[pa.DataType], bool]
    expected: str


_BYTES: Final = _Role(
    _is_bytes, "string or binary (large, view, fixed-size and dictionary-encoded ones as well)"
)
_ROLES: Final[Mapping[str, _Role]] = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": _Role(_is_headers, "list<struct<key: string, value: binary>> or map<string, binary>"),
    "partition": _Role(_is_partition, "an integer type"),
    "timestamp": _Role(_is_timestamp, "timestamp, or int64 for milliseconds since the epoch"),
    "topic_column": _Role(_is_text, "string"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The names of the columns that hold the parts of a record; None where records have no such part."""

    value: str
    key: str | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    topic: str | None = None
    """The topic of all records: this or *topic_column*."""
    topic_column: str | None = None

    def __post_init__(self) -> None:
        """Raises: TypeError, ValueError."""
        for role in _ROLES:
            name = getattr(self, role)
            if not isinstance(name, str) and (name is not None or role == "value"):
                raise TypeError(f"{role} must be the name of a column, not {name!r}")
        if (self.topic is None) == (self.topic_column is None):
            raise ValueError(
                "give topic (one for all records) or topic_column (a column of topics): exactly one of the two"
            )
        if self.topic is not None:
            check_topic(self.topic)

    @property
    def names(self) -> list[str]:
        """The columns that are read, each once."""
        return list(dict.fromkeys(name for name in map(self._column, _ROLES) if name is not None))

    def check(self, schema: pa.Schema) -> None:
        """Let it pass if *schema* has all columns, of types that can be sent.

        Raises: ValueError for a column that is not there, or there twice; TypeError for one of another type.
        """
        for role, (fits, expected) in _ROLES.items():
            name = self._column(role)
            if name is None:
                continue
            places = schema.get_all_field_indices(name)
            if not places:
                there = ", ".join(map(repr, schema.names)) or "none"
                raise ValueError(f"{role}={name!r}: no such column; the columns are: {there}")
            if len(places) > 1:
                raise ValueError(f"{role}={name!r}: {len(places)} columns have this name; rename all but one")
            kind = schema.field(places[0]).type
            if not fits(kind):
                raise TypeError(f"{role}={name!r}: the column is {kind}, expected {expected}; cast it first")

    def _column(self, role: str) -> str | None:
        name: str | None = getattr(self, role)
        return name
