"""Upper bounds of encoded sizes: what memory is reserved for, and what a batch is filled up to.

A record is `length attributes timestamp_delta offset_delta key value header_count (name value)*`. Its exact
size depends on where in the batch it ends up; these bounds do not, and are never more than a few bytes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import add
from typing import cast

from aioproducer.records.columns import RecordHeaders
from aioproducer.records.headers import NAMES, as_columns, is_shared

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

HEADER_OVERHEAD = 3
"""What a header of a small record has besides name and value: a value length of 2, and a share of a longer header count.

(The length of the name is not in it: names are measured with theirs.)
"""

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


def sizes(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[RecordHeaders] | None,
) -> list[int]:
    """Return the `record_size_bound` of each record; the columns are of equal length."""
    payloads = _lengths(values)
    if keys is not None:
        payloads = list(map(add, payloads, _lengths(keys)))
    if headers:
        payloads = _add_headers(payloads, headers)
    if max(payloads, default=0) < SMALL_PAYLOAD:
        return [payload + RECORD_OVERHEAD for payload in payloads]
    return list(map(_bound, payloads, repeat(0) if headers is None else map(len, headers)))


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
        payload += len(NAMES[name]) + (len(value) if value else 0) + HEADER_OVERHEAD
    return payload


def _add_headers(payloads: list[int], headers: Sequence[RecordHeaders]) -> list[int]:
    if is_shared(headers):
        share = _headers_payload(headers[0])
        return [payload + share for payload in payloads]
    columns = as_columns(headers)
    if not columns:
        return list(map(add, payloads, map(_headers_payload, headers)))
    share = sum([len(NAMES[name]) + HEADER_OVERHEAD for name, _ in columns])
    for _, values in columns:
        payloads = list(map(add, payloads, _lengths(values)))
    return [payload + share for payload in payloads]
