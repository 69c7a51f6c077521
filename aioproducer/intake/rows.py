"""The arguments of `send_many`, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from typing import Any, Final, TypeVar

from aioproducer.batching.rows import Rows
from aioproducer.clock import wall_ms
from aioproducer.intake.checks import as_bytes, as_headers, check_partition, check_timestamp, check_topic
from aioproducer.types import Headers, HeadersInput

T = TypeVar("T")

_BYTES: Final = {bytes, type(None)}


def check_rows(
    topic: str,
    values: Iterable[Any],
    *,
    keys: Iterable[Any] | None,
    headers: Iterable[HeadersInput] | None,
    common_headers: HeadersInput,
    timestamps_ms: Iterable[int | None] | None,
    partition: int | None,
    partitions: Iterable[int | None] | None,
    serialized_later: tuple[bool, bool],
) -> Rows:
    """Return the arguments of `send_many` as rows; *serialized_later* says so of values and of keys.

    Raises: TypeError, ValueError, naming the argument and, in a column, the position.
    """
    if partition is not None and partitions is not None:
        raise ValueError("give partition (one for all) or partitions (a column), not both")
    value_column = _column("values", values)
    count = len(value_column)
    values_later, keys_later = serialized_later
    now = wall_ms()
    return Rows(
        topic=check_topic(topic),
        positions=range(count),
        values=value_column if values_later else _bytes_column("values", value_column),
        keys=_keys(keys, count, later=keys_later),
        headers=_headers(headers, common_headers, count),
        timestamps_ms=now
        if timestamps_ms is None
        else [
            now if each is None else check_timestamp(f"timestamps_ms[{index}]", each)
            for index, each in enumerate(_column("timestamps_ms", timestamps_ms, count))
        ],
        partitions=(None if partition is None else check_partition("partition", partition))
        if partitions is None
        else [
            None if each is None else check_partition(f"partitions[{index}]", each)
            for index, each in enumerate(_column("partitions", partitions, count))
        ],
    )


def _keys(keys: Iterable[Any] | None, count: int, *, later: bool) -> Sequence[Any] | None:
    if keys is None:
        return None
    column = _column("keys", keys, count)
    return column if later else _bytes_column("keys", column)


def _headers(
    headers: Iterable[HeadersInput] | None, common_headers: HeadersInput, count: int
) -> Sequence[Headers] | None:
    common = as_headers("common_headers", common_headers)
    if headers is None:
        return [common] * count if common else None
    own = [
        as_headers(f"headers[{index}]", each) for index, each in enumerate(_column("headers", headers, count))
    ]
    return [common + each for each in own] if common else own


def _column(argument: str, column: Iterable[T], count: int | None = None) -> Sequence[T]:
    """Return *column* as a sequence of *count*, which is the number of values."""
    no_columns = (str, bytes, bytearray, memoryview, Mapping, AbstractSet)  # the last one has no order
    if isinstance(column, no_columns) or not isinstance(column, Iterable):
        raise TypeError(f"{argument} must be a column, one item per record, not {type(column).__name__}")
    items = column if type(column) is tuple else list(column)  # ours: a list may be changed while we wait
    if count is not None and len(items) != count:
        raise ValueError(
            f"{argument} has {len(items):,} items, values has {count:,}: columns must be of equal length"
        )
    return items


def _bytes_column(argument: str, column: Sequence[Any]) -> Sequence[bytes | None]:
    if set(map(type, column)) <= _BYTES:
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
