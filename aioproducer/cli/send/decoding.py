"""Decoding of an input into columns: values, keys, headers, partitions and timestamps."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import repeat
from typing import Any, Final, TypeAlias

from aioproducer._core.intake.checks import HIGHEST_TIMESTAMP
from aioproducer.cli.stored_records import StoredRecord, stored_record

BYTE_ORDER_MARK: Final = "\ufeff"

Header: TypeAlias = tuple[str, bytes | None]


@dataclass(slots=True)
class Columns:
    """Records in columns; a column that no record has is None."""

    rows: Sequence[int]
    """Index of the item of each record; blank items have no record."""
    values: Sequence[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[list[Header]] | None = None
    partitions: list[int | None] | None = None
    timestamps_ms: list[int | None] | None = None
    bad: Sequence[tuple[int, str]] = ()
    """Malformed items with reasons: the first malformed item, where the columns end, or all skipped items."""


Decode: TypeAlias = Callable[[Sequence[bytes]], Columns]


def whole(items: Sequence[bytes]) -> Columns:
    """Return each item as a value."""
    return Columns(range(len(items)), items)


def keyed(separator: bytes, *, skips: bool = False) -> Decode:
    """Return a decoder of items that have a key, *separator* and a value.

    The decoder stops before an item without *separator*; with *skips* the decoder leaves out such items.
    """

    def decode(items: Sequence[bytes]) -> Columns:
        rows: list[int] = []
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        bad: list[tuple[int, str]] = []
        for index, item in enumerate(items):
            key, found, value = item.partition(separator)
            if not found:
                bad.append((index, f"there is no key separator {separator.decode(errors='replace')!r}"))
                if skips:
                    continue
                break
            rows.append(index)
            keys.append(key)
            values.append(value)
        return Columns(rows, values, keys, bad=bad)

    return decode


def text_only(decode: Decode, *, nul: bool = False, skips: bool = False) -> Decode:
    """Return *decode* restricted to items that are UTF-8 and, without *nul*, have no NUL byte.

    The decoder stops before an item that violates the restriction; with *skips* the decoder leaves out such items.
    """

    def decode_text(items: Sequence[bytes]) -> Columns:
        if _text_error(b"\n".join(items), nul=nul) is None:
            return decode(items)
        bad = {
            index: why for index, item in enumerate(items) if (why := _text_error(item, nul=nul)) is not None
        }
        if not skips:
            first = min(bad)
            columns = decode(items[:first])
            columns.bad = columns.bad or [(first, bad[first])]
            return columns
        good = [index for index in range(len(items)) if index not in bad]
        columns = decode([items[index] for index in good])
        columns.rows = [good[row] for row in columns.rows]
        columns.bad = sorted([*bad.items(), *((good[index], why) for index, why in columns.bad)])
        return columns

    return decode_text


def _text_error(data: bytes, *, nul: bool) -> str | None:
    """Return the reason if *data* is not text, or None."""
    if not nul and b"\0" in data:
        return "it has a NUL byte, as binary data has; repair the input, or add --force"
    if data.isascii():
        return None
    try:
        _ = data.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8, from byte {error.start} on; convert the input with iconv, or add --force"
    return None


def with_constants(decode: Decode, key: bytes | None, headers: Sequence[Header]) -> Decode:
    """Return *decode* with a constant *key* and with *headers* before the headers of each record."""

    def decode_and_add(items: Sequence[bytes]) -> Columns:
        columns = decode(items)
        count = len(columns.values)
        if key is not None:
            columns.keys = [key] * count
        if headers:
            columns.headers = [[*headers, *own] for own in columns.headers or repeat([], count)]
        return columns

    return decode_and_add


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Paths of a record's parts in a JSON object: names joined by dots, from the outermost."""

    value: str | None = None
    """Path of the value; None for the whole line."""
    key: str | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None

    @property
    def names_parts(self) -> bool:
        """True if an option names the value, key, headers or timestamp: objects are not read as stored records."""
        return any(each is not None for each in (self.value, self.key, self.headers, self.timestamp))


def objects(fields: Fields, known: Collection[int], *, skips: bool = False) -> Decode:
    """Return a decoder of JSON items and blank lines; *known* are the topic's partitions.

    The decoder stops before a malformed item; with *skips* the decoder leaves out malformed items.

    A missing value, key or timestamp is an error; headers and a partition are optional. Null means none. Strings are
    encoded as UTF-8, other values as JSON. Objects of `tail --json` and `kcat -J` are decoded to their records, unless
    *fields* name parts.
    """
    looks_inside = fields.names_parts or fields.partition is not None
    parts_of = partial(_named_parts, fields) if fields.names_parts else _stored_parts

    def decode(items: Sequence[bytes]) -> Columns:
        rows: list[int] = []
        records: list[tuple[Any, ...]] = []
        bad: list[tuple[int, str]] = []
        for index, item in enumerate(items):
            if not (line := item.strip()):
                continue
            try:
                found = _parsed(line)
                if looks_inside and type(found) is not dict:
                    raise ValueError(f"it is not an object: {_short(found)}")  # noqa: TRY301 - handled like the other errors
                parts = parts_of(line, found)
                partition = None if fields.partition is None else _partition(found, fields.partition, known)
            except (ValueError, RecursionError) as error:
                reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
                bad.append((index, reason))
                if skips:
                    continue
                break
            rows.append(index)
            records.append((*parts, partition))
        columns = map(list, zip(*records, strict=True)) if records else ([] for _ in range(5))
        values, keys, headers, timestamps_ms, partitions = columns
        return Columns(
            rows,
            values,
            keys if fields.key is not None or keys.count(None) < len(keys) else None,
            headers if fields.headers is not None or any(headers) else None,
            partitions if fields.partition is not None else None,
            timestamps_ms if fields.timestamp is not None or timestamps_ms.count(None) < len(rows) else None,
            bad,
        )

    return decode


def _named_parts(fields: Fields, line: bytes, found: Any) -> StoredRecord:
    return StoredRecord(
        line if fields.value is None else _bytes(_find(found, fields.value, required=True)),
        None if fields.key is None else _bytes(_find(found, fields.key, required=True)),
        [] if fields.headers is None else _headers(found, fields.headers),
        None if fields.timestamp is None else _timestamp(found, fields.timestamp),
    )


def _stored_parts(line: bytes, found: Any) -> StoredRecord:
    return stored_record(found) or StoredRecord(line, None, [], None)


def _no_constant(name: str) -> None:
    raise ValueError(f"it is not JSON: {name}")


_decoder: Final = json.JSONDecoder(parse_constant=_no_constant)
"""Decoder that rejects NaN and Infinity, as other JSON readers do."""


def _parsed(line: bytes) -> Any:
    try:
        text = line.decode()
        if text.startswith(BYTE_ORDER_MARK):
            raise ValueError("it is not JSON: it begins with a byte order mark, which is to be taken away")
        return _decoder.decode(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8, from byte {error.start} on") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}, at character {error.pos + 1}") from error


def _find(found: Any, path: str, *, required: bool = False) -> Any:
    """Return the value at *path*; None for a missing value that is not *required*."""
    for name in path.split("."):
        if type(found) is not dict or name not in found:
            if required:
                raise ValueError(f"there is no field {path}")
            return None
        found = found[name]
    return found


def _bytes(found: Any) -> bytes | None:
    if found is None:
        return None
    if not isinstance(found, str):
        try:
            found = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except ValueError as error:
            raise ValueError(f"it has a number that is too large: {_short(found)}") from error
    try:
        encoded: bytes = found.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half of a surrogate pair cannot be encoded: {_short(found)}") from error
    return encoded


def _headers(found: Any, path: str) -> list[Header]:
    inner = _find(found, path)
    if inner is None:
        return []
    if type(inner) is not dict:
        raise ValueError(f"{path} is no object with headers: {_short(inner)}")
    for name in inner:
        _ = _bytes(name)  # checks that the name can be encoded
    return [(name, _bytes(each)) for name, each in inner.items()]


def _partition(found: Any, path: str, known: Collection[int]) -> int | None:
    inner = _find(found, path)
    if inner is None:
        return None
    if type(inner) is not int:
        raise ValueError(f"{path} is no partition: {_short(inner)}")
    if inner not in known:
        raise ValueError(f"{path} = {inner}: the topic has the partitions 0 to {max(known)}")
    return inner


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _timestamp(found: Any, path: str) -> int | None:
    """Return the milliseconds since 1970 of an integer, or of ISO 8601 with a zone."""
    inner = _find(found, path, required=True)
    if inner is None:
        return None
    timestamp_ms = inner
    if isinstance(inner, str):
        try:
            when = datetime.fromisoformat(inner.strip())
        except ValueError:
            when = None
        if when is not None and when.tzinfo is None:
            raise ValueError(f"{path} = {_short(inner)}: the time has no zone; add Z or +00:00")
        if when is not None:
            timestamp_ms = (when - _EPOCH) // timedelta(milliseconds=1)
    if type(timestamp_ms) is not int:
        raise ValueError(
            f"{path} is no time: {_short(inner)}; expected an integer, milliseconds since 1970, or ISO 8601 with a zone,"
            " such as 2026-11-27T03:09:55.123Z"
        )
    if not 0 <= timestamp_ms <= HIGHEST_TIMESTAMP:
        raise ValueError(f"{path} = {_short(inner)}: a timestamp is not before 1970 and fits into 64 bits")
    return timestamp_ms


def _short(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 40 else f"{text[:40]}…"
