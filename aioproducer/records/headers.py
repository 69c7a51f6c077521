"""Record headers (KIP-82): a varint count, then name and nullable value of each."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.records.header_columns import HeaderColumn, HeaderColumns, RecordHeaders
from aioproducer.records.memo import VARINTS, Memo, varint


def _encode_name(name: str) -> bytes:
    raw = name.encode()
    return varint(len(raw)) + raw


NAMES = Memo(_encode_name)
"""A header's name with its length: programs use few names, again and again."""


def encode_value(value: bytes | None) -> bytes:
    """Return a header's encoded value."""
    return VARINTS[-1] if value is None else VARINTS[len(value)] + value


def encode_headers(headers: RecordHeaders) -> bytes:
    """Return the encoded headers of one record."""
    parts = [VARINTS[len(headers)]]
    for name, value in headers:
        if value is None:
            parts += NAMES[name], VARINTS[-1]
        else:
            parts += NAMES[name], VARINTS[len(value)], value
    return b"".join(parts)


def encode_each(headers: Sequence[RecordHeaders]) -> list[bytes]:
    """Return the encoded headers of each of at least one record; the same object again is not encoded again."""
    blocks = []
    last = headers[0]
    block = encode_headers(last)
    for record_headers in headers:
        if record_headers is not last:
            last, block = record_headers, encode_headers(record_headers)
        blocks.append(block)
    return blocks


def as_columns(headers: Sequence[RecordHeaders]) -> HeaderColumns | None:
    """Return the headers of at least one record as columns; None if not all have the same names in the same order."""
    if isinstance(headers, HeaderColumns):
        return headers
    first, count = headers[0], len(headers)
    if first is headers[-1] and headers.count(first) == count:  # the same for all; quick where they are not
        return HeaderColumns([HeaderColumn(name, value) for name, value in first], count)
    width = len(first)
    if list(map(len, headers)).count(width) != count:
        return None
    columns = []
    for pairs in zip(*headers, strict=True):
        names, values = zip(*pairs, strict=True)
        if names.count(names[0]) != count:
            return None
        columns.append(HeaderColumn(names[0], None, values))
    return HeaderColumns(columns, count)
