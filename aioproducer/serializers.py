"""Serializers, which convert keys and values to bytes.

The functions of this module write the same bytes as Java's serializers of the same names. All functions return None for
None, so a null stays a null in the log.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias

Serialized: TypeAlias = bytes | bytearray | memoryview | None
"""Result of a serializer; None stays a null in the log."""

Serializer = Callable[[Any], Serialized | Awaitable[Serialized]]
"""Callable that receives only the key or the value, on the event loop. The producer awaits the result of a coroutine
function, and any other awaitable, in the topic's turn."""

HeaderList: TypeAlias = list[tuple[str, bytes | None]]
"""Headers of a record, to which serializers may append."""


class TopicSerializer(Protocol):
    """A serializer that also receives topic and headers, as Java's serializers do."""

    def serialize(self, topic: str, headers: HeaderList, value: Any, /) -> Serialized | Awaitable[Serialized]:
        """Return the key or *value* of a record for *topic* as bytes; called on the event loop.

        The method may be a coroutine function. *headers* are the headers of the record, and serializers may append to
        them. The key's serializer is called and awaited before the value's serializer is called.
        """


AnySerializer: TypeAlias = Serializer | TopicSerializer
"""Types of a serializer. For a callable object with `serialize`, the producer calls `serialize`."""


def string_serializer(value: Any) -> bytes | None:
    """Encode a `str` as UTF-8, as Java's `StringSerializer` does; None stays None.

    Raises:
        TypeError: *value* is not a `str` or None.
        UnicodeEncodeError: *value* has a lone surrogate, which UTF-8 cannot encode.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise _unfit("string_serializer", "str", value)
    return value.encode()


def bytes_serializer(value: Any) -> Serialized:
    """Return bytes unchanged, as Java's `ByteArraySerializer` does; None stays None.

    Raises:
        TypeError: *value* is not `bytes`, `bytearray`, `memoryview` or None.
    """
    if value is None or isinstance(value, bytes | bytearray | memoryview):
        return value
    raise TypeError(
        f"bytes_serializer takes bytes, bytearray, memoryview or None, not {type(value).__name__}"
    )


def uuid_serializer(value: Any) -> bytes | None:
    """Write a `uuid.UUID` as text, as Java's `UUIDSerializer` does. Raises: TypeError."""
    from uuid import UUID  # noqa: PLC0415 - uuid and its imports take a thirtieth of the import time of a producer

    if value is None:
        return None
    if not isinstance(value, UUID):
        raise _unfit("uuid_serializer", "uuid.UUID", value)
    return str(value).encode()


class _Number:
    """Serializer of numbers in a fixed width, big-endian."""

    def __init__(self, name: str, layout: str, *kinds: type) -> None:
        self.__name__ = name
        self._pack = struct.Struct(layout).pack
        self._kinds = kinds

    def __call__(self, value: Any, /) -> bytes | None:
        """Return *value* as bytes. Raises: TypeError; ValueError for a number that is too large."""
        if value is None:
            return None
        if not isinstance(value, self._kinds) or isinstance(value, bool):
            raise _unfit(self.__name__, " or ".join(kind.__name__ for kind in self._kinds), value)
        try:
            return self._pack(value)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{self.__name__}: the number is too large ({error})") from None

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


short_serializer: Final = _Number("short_serializer", ">h", int)
"""Serializer of an `int` of 16 bits in the format of Java's `ShortSerializer`."""

integer_serializer: Final = _Number("integer_serializer", ">i", int)
"""Serializer of an `int` of 32 bits in the format of Java's `IntegerSerializer`."""

long_serializer: Final = _Number("long_serializer", ">q", int)
"""Serializer of an `int` of 64 bits in the format of Java's `LongSerializer`."""

float_serializer: Final = _Number("float_serializer", ">f", float, int)
"""Serializer of a number as a float of 32 bits in the format of Java's `FloatSerializer`, with half of the digits
of a Python float."""

double_serializer: Final = _Number("double_serializer", ">d", float, int)
"""Serializer of a number as a float of 64 bits in the format of Java's `DoubleSerializer`."""


def _unfit(serializer: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{serializer} takes {expected} or None, not {type(value).__name__}")
