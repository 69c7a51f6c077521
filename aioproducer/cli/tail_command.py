"""`aioproducer tail`: the last records of a topic, to look at."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import Final

from aioproducer._core.escaping import escaped
from aioproducer._core.records.decode import DecodedRecord
from aioproducer._topic_client import Client
from aioproducer.cli.output import echo
from aioproducer.cli.stored_records import to_dict
from aioproducer.config import ProducerConfig

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
    """Return a line, or several with an indent on a terminal of less *width*, so that records stay apart."""
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
    """Return text in one line, escaped; bytes that are no UTF-8 as Python shows them."""
    if data is None:
        return NONE
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return repr(bytes(data))
    return escaped(text)
