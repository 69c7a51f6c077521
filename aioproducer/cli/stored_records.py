"""Stored records: output of `aioproducer tail`, and objects of `tail --json` and `kcat -J` as input."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import Any, Final, NamedTuple

from aioproducer._core.intake.checks import HIGHEST_TIMESTAMP
from aioproducer._core.logfmt import escaped
from aioproducer._core.records.decode import DecodedRecord
from aioproducer._topic_client import Client
from aioproducer.cli.output import echo
from aioproducer.config import ProducerConfig

BASE64: Final = "base64"
"""Name in an object that stands for bytes: `{"base64": "/w=="}`. Text is a JSON string, so the two differ."""
TAIL_FIELDS: Final = frozenset({"topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"})
KCAT_FIELDS: Final = frozenset({"topic", "partition", "offset", "broker", "key", "payload"})
"""Names in every object of kcat. Other names are missing without timestamps or headers."""
KCAT_ALL_FIELDS: Final = KCAT_FIELDS | {
    "tstype",
    "ts",
    "headers",
    "key_schema_id",
    "value_schema_id",
    "key_error",
    "payload_error",
}
NO_TIMESTAMP: Final = -1


class StoredRecord(NamedTuple):
    """Parts of a stored record that a copy keeps."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None
    """Milliseconds since the epoch; None if the record has no timestamp."""


def to_dict(topic: str, partition: int, record: DecodedRecord) -> dict[str, Any]:
    """Return *record* as the object that `tail --json` prints."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _to_json(record.key),
        "value": _to_json(record.value),
        "headers": [[name, _to_json(value)] for name, value in record.headers],
    }


def stored_record(found: Any) -> StoredRecord | None:
    """Return the record of an object of `tail --json` or `kcat -J`; None for any other JSON value.

    Raises: ValueError: the object has the fields of a stored record and an illegal value in one of the fields.
    """
    if type(found) is not dict or "offset" not in found or "topic" not in found:
        return None
    names = found.keys()
    if names == TAIL_FIELDS:
        return StoredRecord(
            _from_json("value", found["value"]),
            _from_json("key", found["key"]),
            [_pair(each) for each in _list(found["headers"])],
            _timestamp("timestamp_ms", found["timestamp_ms"]),
        )
    if KCAT_FIELDS <= names <= KCAT_ALL_FIELDS:
        flat = _list(found.get("headers", []))
        if len(flat) % 2:
            raise ValueError("headers of kcat -J: the list has a name without a value")
        return StoredRecord(
            _kcat_bytes("payload", found),
            _kcat_bytes("key", found),
            [
                (_name(name), _text("headers", value))
                for name, value in zip(flat[::2], flat[1::2], strict=True)
            ],
            None if found.get("tstype", "unknown") == "unknown" else _timestamp("ts", found.get("ts")),
        )
    return None


def _to_json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(data).decode()}


def _from_json(field: str, found: Any) -> bytes | None:
    if type(found) is dict and found.keys() == {BASE64} and type(found[BASE64]) is str:
        try:
            return base64.b64decode(found[BASE64], validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{field} of tail --json: illegal base64") from error
    return _text(field, found)


def _kcat_bytes(field: str, found: dict[str, Any]) -> bytes | None:
    if f"{field}_error" in found or not isinstance(found[field], str | None):
        raise ValueError(
            f"{field} of kcat -J: kcat decoded it from Avro, and the stored bytes are lost; run kcat without -s"
        )
    return _text(field, found[field])


def _text(field: str, found: Any) -> bytes | None:
    if found is None:
        return None
    if type(found) is not str:
        raise ValueError(f"{field} of a stored record: expected text, {{'{BASE64}': …}} or null")
    try:
        return found.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{field} of a stored record: half of a surrogate pair cannot be encoded") from error


def _pair(found: Any) -> tuple[str, bytes | None]:
    if type(found) is not list or len(found) != len(("name", "value")):
        raise ValueError("headers of tail --json: expected a list of [name, value]")
    name, value = found
    return _name(name), _from_json("headers", value)


def _name(found: Any) -> str:
    if type(found) is not str:
        raise ValueError("headers of a stored record: a name is not a string")
    _ = _text("headers", found)
    return found


def _list(found: Any) -> list[Any]:
    if type(found) is not list:
        raise ValueError("headers of a stored record: expected a list")
    return found


def _timestamp(field: str, found: Any) -> int | None:
    if type(found) is not int or not NO_TIMESTAMP <= found <= HIGHEST_TIMESTAMP:
        raise ValueError(f"{field} of a stored record: expected milliseconds since 1970")
    return None if found == NO_TIMESTAMP else found


NONE: Final = "(none)"
INDENT: Final = "    "
MOST_CELLS: Final = 2
"""Cells of the widest character on a terminal."""


async def tail_and_show(config: ProducerConfig, topic: str, *, last: int, as_json: bool) -> None:
    """Show the *last* records of each partition of *topic*, a line each.

    Raises: ProducerError if the topic cannot be read.
    """
    width = get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
    async with Client(config) as client:
        async for partition, records in client.read(topic, last=last):
            for record in records:
                if as_json:
                    echo(json.dumps(to_dict(topic, partition, record), ensure_ascii=False))
                else:
                    echo(_line(partition, record, width))


def _line(partition: int, record: DecodedRecord, width: int | None) -> str:
    """Return a line, or several indented lines on a terminal of less *width*."""
    when = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    headers = "".join(f" {escaped(name)}={_for_people(value)}" for name, value in record.headers)
    where = f"{partition} {record.offset} {when.removesuffix('+00:00')}"
    what = f"{_for_people(record.key)}: {_for_people(record.value)}{' |' if headers else ''}{headers}"
    line = f"{where} {what}"
    if width is None or len(line) * MOST_CELLS <= width:
        return line
    from rich.cells import cell_len, chop_cells

    if cell_len(line) <= width:
        return line
    return "\n".join(
        (where, *(f"{INDENT}{part}" for part in chop_cells(what, max(width - len(INDENT), MOST_CELLS))))
    )


def _for_people(data: bytes | None) -> str:
    """Return text escaped on one line; bytes that are not UTF-8 as a bytes literal."""
    if data is None:
        return NONE
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return repr(bytes(data))
    return escaped(text)
