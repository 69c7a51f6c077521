"""What turns a user's keys and values into bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Serializer = Callable[[Any], bytes | bytearray | memoryview | None]
"""Called with the key or the value alone, on the event loop; None stays a null in the log."""


def string_serializer(value: Any) -> bytes | None:
    """Encode a `str` as UTF-8, as Java's `StringSerializer` does; None stays None.

    Raises:
        TypeError: *value* is neither a `str` nor None.
        UnicodeEncodeError: *value* holds half of a surrogate pair, which UTF-8 cannot say.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"string_serializer takes str or None, not {type(value).__name__}")
    return value.encode()


def bytes_serializer(value: Any) -> bytes | bytearray | memoryview | None:
    """Hand bytes on as they are, as Java's `ByteArraySerializer` does; None stays None.

    Raises:
        TypeError: *value* is not `bytes`, `bytearray`, `memoryview` or None.
    """
    if value is None or isinstance(value, bytes | bytearray | memoryview):
        return value
    raise TypeError(
        f"bytes_serializer takes bytes, bytearray, memoryview or None, not {type(value).__name__}"
    )
