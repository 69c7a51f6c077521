"""Conversion of Arrow arrays to the columns of `send_many`.

Pure functions. Arrays have the types that `Columns.check` accepts, and may be slices and have nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute as pc, types

from aioproducer._core.intake.checks import check_topic
from aioproducer._core.records.columns import (
    READS_IN_PLACE,
    BytesColumn,
    HeaderColumn,
    HeaderColumns,
    RecordHeaders,
)

_HAS_FAST_LISTS: Final = int(pa.__version__.partition(".")[0]) >= 26
"""True if `to_pylist` of bytes is fast. In earlier releases `to_pylist` takes 30 times as long as `sliced`."""

_MAX_PARTITION: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_UNITS_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


class BadValue(ValueError):
    """Raised for a column with invalid values; `position` is the index of the first invalid value in the array."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def plain(array: pa.Array) -> pa.Array:
    """Return *array*, of strings or bytes in any form, as binary or large binary, if possible without a copy."""
    kind = array.type
    if types.is_binary(kind) or types.is_large_binary(kind):
        return array
    if types.is_dictionary(kind):
        array = array.dictionary_decode()
    is_small = types.is_string(array.type) or types.is_binary(array.type)
    return array.cast(pa.binary() if is_small else pa.large_binary())


def bytes_in(array: pa.Array) -> int:
    """Return the total size of the strings or bytes in *array*, in bytes."""
    array = plain(array)
    if array.null_count or not len(array):
        return pc.sum(pc.binary_length(array)).as_py() or 0
    offsets, last = _offsets(array), len(array)
    return offsets[last] - offsets[0]


def bytes_in_headers(array: pa.Array) -> int:
    """Return the total size of all names and values in *array*, a column of headers, in bytes."""
    if array.null_count == len(array):
        return 0
    return sum(bytes_in(part) for part in _as_lists(array).flatten().flatten())


def as_bytes(array: pa.Array) -> Sequence[bytes | None]:
    """Return the strings (as UTF-8) or bytes of *array*; with the accelerator, without a copy."""
    array = plain(array)
    if READS_IN_PLACE and array.null_count < len(array):
        is_large = types.is_large_binary(array.type)
        column: Sequence[bytes | None] = BytesColumn(*array.buffers(), is_large, array.offset, len(array))
        return column
    return array.to_pylist() if _HAS_FAST_LISTS else sliced(array)


def sliced(array: pa.Array) -> list[bytes | None]:
    """Return the list of `to_pylist` for a binary or large binary *array*, sliced by offsets from the array's memory."""
    if array.null_count == len(array):
        return [None] * len(array)
    offsets = _offsets(array).tolist()
    first, last = offsets[0], offsets[-1]
    if first:
        offsets = [offset - first for offset in offsets]
    data = bytes(memoryview(array.buffers()[2])[first:last]) if last > first else b""
    return _with_nulls([data[start:stop] for start, stop in pairwise(offsets)], array)


def _offsets(array: pa.Array) -> memoryview[int]:
    """Return the offsets of *array*, which has at least one value of type binary or large binary."""
    width, code = (8, "q") if types.is_large_binary(array.type) else (4, "i")
    begin, end = width * array.offset, width * (array.offset + len(array) + 1)
    return memoryview(array.buffers()[1])[begin:end].cast(code)  # type: ignore[call-overload,no-any-return] # i or q


def as_partitions(name: str, array: pa.Array) -> list[int | None] | None:
    """Return the partitions in column *name*; None if all partitions are null. Raises: BadValue."""
    if array.null_count == len(array):
        return None
    _check_range(name, array, _MAX_PARTITION, "a partition is 0 to 2**31 - 1")
    return integers(array.cast(pa.int64()))


def as_timestamps_ms(name: str, array: pa.Array) -> list[int | None] | None:
    """Return the times in column *name* as milliseconds since the epoch; None if all times are null.

    Fractions of a millisecond are dropped. Raises: BadValue.
    """
    if array.null_count == len(array):
        return None
    unit = _unit(array)
    _check_range(
        name,
        array.cast(pa.int64()),
        _MAX_INT64 // 1_000 if unit == "s" else _MAX_INT64,
        "Kafka's timestamps are milliseconds since 1970, 0 to 2**63 - 1",
        lambda number: number * 1_000 if unit == "s" else number // _UNITS_PER_MS[unit],
    )
    return integers(in_ms(array))


def _unit(array: pa.Array) -> str:
    return array.type.unit if types.is_timestamp(array.type) else "ms"


def in_ms(array: pa.Array) -> pa.Array:
    """Return the times in *array* as int64, in whole milliseconds."""
    unit, numbers = _unit(array), array.cast(pa.int64())
    if unit == "s":
        return pc.multiply(numbers, 1_000)
    return numbers if unit == "ms" else pc.divide(numbers, _UNITS_PER_MS[unit])


def as_texts(array: pa.Array) -> tuple[list[str], list[Any]]:
    """Return the distinct strings of *array*, and per position the index of the string, or None for a null."""
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not types.is_string(array.type):
        array = array.cast(pa.large_string())
    encoded = array.dictionary_encode()
    return encoded.dictionary.to_pylist(), integers(encoded.indices.cast(pa.int64()))


def as_headers(name: str, array: pa.Array) -> Sequence[RecordHeaders] | None:
    """Return the headers in column *name*, pairs for each record; None if no record has headers. Raises: BadValue."""
    if array.null_count == len(array):
        return None
    array = _as_lists(array)
    entries = array.flatten()  # the pairs of this slice, without values under nulls
    if not len(entries):
        return None
    lengths = pc.fill_null(array.value_lengths(), 0).cast(pa.int64())
    parts = dict(zip((part.name for part in entries.type), entries.flatten(), strict=True))
    least, most = (bound.as_py() for bound in pc.min_max(lengths).values())
    if least == most and not parts["key"].null_count:
        columns = _header_columns(as_bytes(parts["key"]), as_bytes(parts["value"]), len(array), most)
        if columns is not None:
            return columns
    ends = list(accumulate(integers(lengths)))
    texts, codes = as_texts(parts["key"])
    if None in codes:
        first = codes.index(None)
        position = next(position for position, end in enumerate(ends) if end > first)
        raise BadValue(f"column {name!r}: a header has no key (null)", position)
    pairs = list(zip(map(texts.__getitem__, codes), as_bytes(parts["value"]), strict=True))
    return [tuple(pairs[start:end]) for start, end in pairwise([0, *ends])]


def _header_columns(
    names: Sequence[bytes | None], values: Sequence[bytes | None], count: int, width: int
) -> HeaderColumns | None:
    """Return the headers of *count* records with *width* headers each; None if names differ between records."""
    columns = []
    for place, name in enumerate(names[:width]):
        if name is None or names[place::width].count(name) < count:
            return None
        columns.append(HeaderColumn.holding(name.decode(), values[place::width]))
    return HeaderColumns(columns, count)


def _as_lists(array: pa.Array) -> pa.Array:
    """Return *array*, a column of headers, as lists of pairs, without a copy if *array* has lists."""
    if types.is_map(array.type):
        entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        return array.cast(pa.list_(entry))
    return array


def integers(array: pa.Array) -> list[Any]:
    """Return the numbers of the int64 *array*, and None for its nulls."""
    if not len(array):
        return []
    begin, end = 8 * array.offset, 8 * (array.offset + len(array))
    return _with_nulls(memoryview(array.buffers()[1])[begin:end].cast("q").tolist(), array)


def _with_nulls(column: list[Any], array: pa.Array) -> list[Any]:
    """Put None into *column* where *array* has a null."""
    if array.null_count:
        for position in integers(pc.indices_nonzero(array.is_null()).cast(pa.int64())):
            column[position] = None
    return column


def _check_range(
    name: str, array: pa.Array, highest: int, rule: str, in_unit_of_rule: Callable[[int], int] = int
) -> None:
    least, most = (bound.as_py() for bound in pc.min_max(array).values())
    if least >= 0 and most <= highest:
        return
    wrong = next(
        (position, number)
        for position, number in enumerate(array.to_pylist())
        if number is not None and not 0 <= number <= highest
    )
    raise BadValue(f"column {name!r}: {rule}, not {in_unit_of_rule(wrong[1])}", wrong[0])


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


_BYTES: Final = _is_bytes, "string or binary (large, view, fixed-size and dictionary-encoded ones as well)"
_ROLES: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": (_is_headers, "list<struct<key: string, value: binary>> or map<string, binary>"),
    "partition": (lambda kind: types.is_integer(kind) or types.is_null(kind), "an integer type"),
    "timestamp": (
        lambda kind: types.is_timestamp(kind) or types.is_int64(kind) or types.is_null(kind),
        "timestamp, or int64 for milliseconds since the epoch",
    ),
    "topic_column": (_is_text, "string"),
}
"""Check and description of the column types for each part of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the columns with the parts of a record; None for a part that no record has."""

    value: str
    key: str | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    topic: str | None = None
    """Topic of all records; None with *topic_column*."""
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
        """Distinct names of the columns to read."""
        names = (getattr(self, role) for role in _ROLES)
        return list(dict.fromkeys(name for name in names if name is not None))

    def check(self, schema: pa.Schema) -> None:
        """Check that *schema* has all columns, with types that can be sent.

        Raises: ValueError for a missing or duplicate column; TypeError for a column of another type.
        """
        for role, (fits, expected) in _ROLES.items():
            name = getattr(self, role)
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
