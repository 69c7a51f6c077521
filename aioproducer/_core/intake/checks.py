"""Checks of arguments, and immutable copies of them. Errors name the argument and the expected values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from aioproducer.types import Headers, HeadersInput

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
HIGHEST_PARTITION: Final = 2**31 - 1
HIGHEST_TIMESTAMP: Final = 2**63 - 1


def as_bytes(argument: str, data: object) -> bytes | None:
    """Return *data* as bytes: bytes and None unchanged, a copy of a mutable buffer. Raises: TypeError."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        try:
            return bytes(data)
        except ValueError as error:  # *data* is a released memoryview
            raise ValueError(f"{argument} cannot be read: {error}") from error
    hint = ""
    if argument in {"key", "value"}:
        hint = f"; set {argument}_serializer to send other types"
    elif isinstance(data, str):
        hint = "; add .encode()"
    raise TypeError(
        f"{argument} must be bytes, bytearray, memoryview or None, not {type(data).__name__}{hint}"
    )


def as_headers(argument: str, headers: HeadersInput) -> Headers:
    """Return a snapshot of *headers* as pairs.

    Raises: TypeError; ValueError for a name that has no UTF-8 form.
    """
    if headers == ():
        return ()
    pairs: Any = headers.items() if isinstance(headers, Mapping) else headers
    if isinstance(pairs, (str, bytes)) or not isinstance(pairs, Iterable):
        raise TypeError(f"{argument} must be pairs (name, value) or a mapping, not {type(headers).__name__}")
    return tuple(_as_header(argument, pair) for pair in pairs)


def legal_headers(headers: object) -> Headers:
    """Return *headers* without the headers that `as_headers` refuses."""
    pairs: Any = headers.items() if isinstance(headers, Mapping) else headers
    legal: list[tuple[str, bytes | None]] = []
    for pair in pairs if isinstance(pairs, Iterable) else ():
        with suppress(TypeError, ValueError):
            legal.append(_as_header("headers", pair))
    return tuple(legal)


def _as_header(argument: str, pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{argument} must be pairs (name, value), got {pair!r}")
    name, value = pair
    if not isinstance(name, str):
        raise TypeError(f"{argument}: a header's name must be str, not {type(name).__name__} ({name!r})")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{argument}: the header name {name!r} cannot be encoded as UTF-8") from error
    return name, as_bytes(f"{argument}: the value of {name!r}", value)


def exact_str(text: Any) -> Any:
    """Return a str as a plain str: a member of a `str` Enum would be formatted as "Topics.ORDERS"."""
    return str.__str__(text) if isinstance(text, str) else text


def check_topic(topic: object) -> str:
    """Return *topic* if it is a legal topic name. Raises: TypeError, ValueError."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    topic = str.__str__(topic)
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise ValueError(
            f"topic {topic!r} is not a legal name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-',"
            " but not '.' or '..'"
        )
    return topic


def check_partition(argument: str, partition: object) -> int:
    """Return *partition* if it is a possible partition number. Raises: TypeError, ValueError."""
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise TypeError(f"{argument} must be int or None, not {type(partition).__name__}")
    if not 0 <= partition <= HIGHEST_PARTITION:
        raise ValueError(f"{argument} must be 0 to 2**31 - 1, not {_shown(partition)}")
    return partition


def check_timestamp(argument: str, timestamp_ms: object) -> int:
    """Return *timestamp_ms* if it is a possible timestamp. Raises: TypeError, ValueError."""
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise TypeError(
            f"{argument} must be int (milliseconds since the epoch) or None, not {type(timestamp_ms).__name__}"
        )
    if not 0 <= timestamp_ms <= HIGHEST_TIMESTAMP:
        raise ValueError(
            f"{argument} must be milliseconds since the epoch, 0 to 2**63 - 1, not {_shown(timestamp_ms)}"
        )
    return timestamp_ms


def check_timeout(timeout_s: object) -> float | None:
    """Return *timeout_s* if it is None or a duration. Raises: TypeError, ValueError."""
    if timeout_s is None:
        return None
    if not isinstance(timeout_s, (int, float)) or isinstance(timeout_s, bool):
        raise TypeError(f"timeout_s must be seconds (int or float) or None, not {type(timeout_s).__name__}")
    if not (0 <= timeout_s <= 2**63 or timeout_s == math.inf):  # the comparison also refuses nan
        raise ValueError(f"timeout_s must be 0 or more seconds, not {_shown(timeout_s)}")
    return float(timeout_s)


def _shown(number: float) -> str:
    """Return *number* for a message; Python refuses to write out integers of thousands of digits."""
    if isinstance(number, int) and number.bit_length() > 64:
        return f"an integer of {number.bit_length():,} bits"
    return str(number)
