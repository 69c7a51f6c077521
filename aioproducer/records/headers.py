"""Record headers (KIP-82): a varint count, then name and nullable value of each."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.records.columns import RecordHeaders
from aioproducer.records.memo import VARINTS, Memo, varint


def _encode_name(name: str) -> bytes:
    raw = name.encode()
    return varint(len(raw)) + raw


NAMES = Memo(_encode_name)
"""A header's name with its length: programs use few names, again and again."""


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


def is_shared(headers: Sequence[RecordHeaders]) -> bool:
    """Whether all records have the same headers; quick where they do not."""
    first = headers[0]
    return first is headers[-1] and headers.count(first) == len(headers)


def as_columns(headers: Sequence[RecordHeaders]) -> list[tuple[str, tuple[bytes | None, ...]]]:
    """Return the headers as (name, a value per record); [] unless all records have the same names in the same order."""
    count = len(headers)
    width = len(headers[0])
    if list(map(len, headers)).count(width) != count:
        return []
    columns = []
    for pairs in zip(*headers, strict=True):
        names, values = zip(*pairs, strict=True)
        if names.count(names[0]) != count:
            return []
        columns.append((names[0], values))
    return columns
