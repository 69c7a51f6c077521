"""Checks of the arguments of `send_many`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from itertools import chain
from typing import Any, Final, TypeVar

from aioproducer._core.acceleration import fastest
from aioproducer._core.batching.bulk import Rows
from aioproducer._core.clock import wall_ms
from aioproducer._core.intake.checks import (
    HIGHEST_PARTITION,
    HIGHEST_TIMESTAMP,
    as_bytes,
    as_headers,
    check_partition,
    check_timestamp,
    check_topic,
)
from aioproducer._core.records.columns import READS_IN_PLACE, BytesColumn, HeaderColumn, HeaderColumns
from aioproducer.types import Headers, HeadersInput

T = TypeVar("T")

_NONE: Final = type(None)
_BYTES: Final = {bytes, _NONE}
_IMMUTABLE: Final = frozenset((tuple, BytesColumn))
_LISTS: Final = {list, tuple}
_PLAIN: Final = {dict, list, tuple}


def check_rows(
    topic: str,
    values: Iterable[Any],
    *,
    serialized_later: tuple[bool, bool],
    keys: Iterable[Any] | None = None,
    headers: Iterable[HeadersInput] | None = None,
    common_headers: HeadersInput = (),
    timestamps_ms: Iterable[int | None] | None = None,
    partition: int | None = None,
    partitions: Iterable[int | None] | None = None,
) -> Rows:
    """Return the arguments of `send_many` as rows; *serialized_later* has one flag for values and one for keys.

    Raises: TypeError, ValueError that name the argument and, in a column, the position.
    """
    if partition is not None and partitions is not None:
        raise ValueError("give partition (one for all) or partitions (a column), not both")
    value_column = _column("values", values)
    count = len(value_column)
    values_later, keys_later = serialized_later
    key_column = None if keys is None else _column("keys", keys, count)
    now = wall_ms()
    return Rows(
        topic=check_topic(topic),
        positions=range(count),
        values=value_column if values_later else _bytes_column("values", value_column),
        keys=key_column if key_column is None or keys_later else _bytes_column("keys", key_column),
        headers=_headers(headers, common_headers, count),
        timestamps_ms=now
        if timestamps_ms is None
        else [
            now if each is None else each
            for each in _integers("timestamps_ms", timestamps_ms, count, check_timestamp, HIGHEST_TIMESTAMP)
        ],
        partitions=(None if partition is None else check_partition("partition", partition))
        if partitions is None
        else _integers("partitions", partitions, count, check_partition, HIGHEST_PARTITION),
    )


def _integers(
    argument: str,
    numbers: Iterable[int | None],
    count: int,
    check: Callable[[str, object], int],
    highest: int,
) -> Sequence[int | None]:
    """Return *numbers* as a column of 0 to *highest*, or None; *check* raises the error for any other item."""
    column = _column(argument, numbers, count)
    kinds = set(map(type, column))
    given: Any = [number for number in column if number is not None] if _NONE in kinds else column
    if kinds - {_NONE} == {int} and min(given) >= 0 and max(given) <= highest:
        return column
    return [
        None if number is None else check(f"{argument}[{index}]", number)
        for index, number in enumerate(column)
    ]


def _headers(
    headers: Iterable[HeadersInput] | None, common_headers: HeadersInput, count: int
) -> Sequence[Headers] | None:
    common = as_headers("common_headers", common_headers)
    if headers is None:
        return [common] * count if common else None
    if isinstance(headers, HeaderColumns) and len(headers) == count:
        return headers.behind(common)  # a HeaderColumns was checked when it was created
    column = _column("headers", headers, count)
    uniform = uniform_headers(column)
    if uniform is not None:
        return HeaderColumns([HeaderColumn.holding(*each) for each in uniform], count).behind(common)
    flat = _names_and_values(column)
    if flat is not None and _are_plain(*flat):
        each_as_pairs: Any = column  # an existing tuple stays the same object
        if column and type(column[0]) is dict:
            each_as_pairs = map(dict.items, each_as_pairs)
        own = [tuple(map(tuple, pairs)) for pairs in each_as_pairs]
    else:  # some headers are invalid, or have mutable bytes
        own = [as_headers(f"headers[{index}]", each) for index, each in enumerate(column)]
    return [common + each for each in own] if common else own


def python_uniform_headers(headers: Sequence[Any]) -> list[tuple[str, Sequence[bytes | None]]] | None:
    """Return name and values of each header if all records have the same names and need no conversion; else None."""
    widths = set(map(len, headers)) if set(map(type, headers)) <= _PLAIN else set()
    flat = _names_and_values(headers) if len(widths) == 1 else None
    if flat is None:
        return None
    names, values = flat
    if not set(map(type, names)) <= {str} or not set(map(type, values)) <= _BYTES:
        return None
    count, [width] = len(headers), widths
    uniform: list[tuple[str, Sequence[bytes | None]]] = []
    for place in range(width):
        name = names[place]
        if not _is_utf_8(name) or names[place::width].count(name) < count:
            return None
        uniform.append((name, tuple(values[place::width])))
    return uniform


uniform_headers: Final = fastest("uniform_headers", python_uniform_headers)


def _names_and_values(headers: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """Return all names and all values, record by record; None unless all *headers* are dicts, or all are lists of pairs."""
    kinds = set(map(type, headers))
    if kinds == {dict}:
        return list(chain.from_iterable(headers)), list(chain.from_iterable(map(dict.values, headers)))
    if not kinds <= _LISTS:
        return None
    pairs = list(chain.from_iterable(headers))
    if not set(map(type, pairs)) <= _LISTS or not set(map(len, pairs)) <= {2}:
        return None
    flat = list(chain.from_iterable(pairs))
    return flat[0::2], flat[1::2]


def _are_plain(names: list[Any], values: list[Any]) -> bool:
    """Return True if `as_headers` would accept all *names* and *values* without a copy."""
    if not set(map(type, names)) <= {str} or not set(map(type, values)) <= _BYTES:
        return False
    return all(map(_is_utf_8, set(names)))


def _is_utf_8(name: object) -> bool:
    try:
        str.encode(name)  # type: ignore[arg-type] # other types are refused
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _column(argument: str, column: Iterable[T], count: int | None = None) -> Sequence[T]:
    """Return *column* as a sequence of *count* items."""
    no_columns = (str, bytes, bytearray, memoryview, Mapping, AbstractSet)  # a set has no order
    if isinstance(column, no_columns) or not isinstance(column, Iterable):
        raise TypeError(f"{argument} must be a column, one item per record, not {type(column).__name__}")
    # Mutable columns are copied, because the caller may change a list while the call waits. mypy does not narrow
    # the type by `_IMMUTABLE`.
    items: Sequence[T] = column if type(column) in _IMMUTABLE else list(column)  # type: ignore[assignment]
    if count is not None and len(items) != count:
        raise ValueError(
            f"{argument} has {len(items):,} items, values has {count:,}: columns must be of equal length"
        )
    return items


def _bytes_column(argument: str, column: Sequence[Any]) -> Sequence[bytes | None]:
    if (READS_IN_PLACE and type(column) is BytesColumn) or set(map(type, column)) <= _BYTES:
        return column
    checked = []
    for index, data in enumerate(column):
        if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
            singular = argument.removesuffix("s")
            raise TypeError(
                f"{argument}[{index}] must be bytes, bytearray, memoryview or None, not {type(data).__name__};"
                f" set {singular}_serializer to send other types"
            )
        checked.append(as_bytes(f"{argument}[{index}]", data))
    return checked
