"""Upper bounds of encoded sizes: what memory is reserved for, and what a batch is filled up to.

A record is `length attributes timestamp_delta offset_delta key value header_count (name value)*`. Its exact
size depends on where in the batch it ends up; these bounds do not, and are never more than a few bytes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import accumulate, repeat
from operator import add
from typing import Final, cast

from aioproducer._core.acceleration import fastest
from aioproducer._core.records.headers import NAMES, HeaderColumns, RecordHeaders, as_columns
from aioproducer._core.wire.primitives import Memo

BATCH_OVERHEAD = 61
"""The header of a batch."""

SMALL_PAYLOAD = 8000
"""Below this many bytes of key, value and headers, a record's lengths are varints of two bytes at most (up to 8,191)."""

RECORD_OVERHEAD = 14
"""What a small record has besides its payload, at most.

    length 2 + attributes 1 + timestamp delta 3 + offset delta 3 + key length 2 + value length 2 + header count 1

Holds if the payload is below `SMALL_PAYLOAD`, the record is one of the first 2**20 (1,048,576) of its batch, and its
timestamp is less than 2**20 ms (17 minutes) from the batch's first. Without the last two it may be up to 9 bytes more.
"""

BOUND_SPARE = RECORD_OVERHEAD - 7
"""Largest difference between the upper bound of a small record and its exact size, which has at least 7 bytes of overhead."""

HEADER_OVERHEAD = 3
"""What a header of a small record has besides name and value: a value length of 2, and a share of a longer header count.

(The length of the name is not in it: names are measured with theirs.)
"""

HEADER_SIZES: Memo[str, int] = Memo(lambda name: len(NAMES[name]) + HEADER_OVERHEAD)
"""What a header of that name takes in a small record, besides the bytes of its value."""

LARGE_RECORD_OVERHEAD = 36
"""The same for any record, at any timestamp and place.

    length 5 + attributes 1 + timestamp delta 10 + offset delta 5 + key length 5 + value length 5 + header count 5
"""

LARGE_HEADER_OVERHEAD = 5


def record_size_bound(value: bytes | None, key: bytes | None, headers: RecordHeaders) -> int:
    """Return a number of bytes that the encoded record does not exceed.

    Certain for payloads from `SMALL_PAYLOAD` on; for smaller ones see `RECORD_OVERHEAD`.

    Raises: UnicodeEncodeError (a ValueError) if the name of a header holds lone surrogates.
    """
    payload = (len(value) if value else 0) + (len(key) if key else 0)
    if headers:
        payload += _headers_payload(headers)
    return _bound(payload, len(headers))


def python_sizes(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[RecordHeaders] | None,
) -> list[int]:
    """Return the `record_size_bound` of each record; the columns are of equal length."""
    if not values:
        return []
    fields = [values] if keys is None else [values, keys]
    share = 0  # of the payload, what all records have: most often that is all there is of some fields ...
    varying: list[list[int]] = []  # ... and what each has besides
    header_counts: Iterable[int] = repeat(0)
    columns = as_columns(headers) if headers else None
    if columns is not None:
        fields += [header.values for header in columns.columns if header.values is not None]
        share = _shared_payload(columns)
        header_counts = repeat(len(columns.columns))
    elif headers:
        varying.append(list(map(_headers_payload, headers)))
        header_counts = map(len, headers)
    for lengths in map(_lengths, fields):
        if lengths[0] == lengths[-1] and lengths.count(lengths[0]) == len(lengths):
            share += lengths[0]
        else:
            varying.append(lengths)
    if not varying:
        return [_bound(share, next(iter(header_counts)))] * len(values)
    payloads = reduce(lambda left, right: list(map(add, left, right)), varying)
    if max(payloads) + share < SMALL_PAYLOAD:
        overhead = share + RECORD_OVERHEAD
        return [payload + overhead for payload in payloads]
    return [_bound(payload + share, count) for payload, count in zip(payloads, header_counts)]  # noqa: B905 - endless counts


sizes: Final = fastest("sizes", python_sizes)


def python_running_totals(sizes: Sequence[int]) -> Sequence[int]:
    """Return 0 and the total of the first one, two, … of *sizes*."""
    return list(accumulate(sizes, initial=0))


running_totals: Final = fastest("running_totals", python_running_totals)


def _bound(payload: int, header_count: int) -> int:
    if payload < SMALL_PAYLOAD:
        return payload + RECORD_OVERHEAD
    return payload + LARGE_RECORD_OVERHEAD + (LARGE_HEADER_OVERHEAD - HEADER_OVERHEAD) * header_count


def _lengths(column: Sequence[bytes | None]) -> list[int]:
    try:
        return list(map(len, cast("Sequence[bytes]", column)))
    except TypeError:  # there are nulls
        return [len(data or b"") for data in column]


def _headers_payload(headers: RecordHeaders) -> int:
    payload = 0
    for name, value in headers:
        payload += HEADER_SIZES[name] + (len(value) if value else 0)
    return payload


def _shared_payload(columns: HeaderColumns) -> int:
    """Return what the headers take in every record, besides the values in which they differ."""
    return sum([HEADER_SIZES[name] + len(value or b"") for name, value, _ in columns.columns])
