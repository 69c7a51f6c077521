"""Serializers: they make bytes of a user's keys and values.

The functions here write what Java's serializers of the same names write. All take None, and return it: a null
stays a null in the log.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias

Serialized: TypeAlias = bytes | bytearray | memoryview | None
"""Result of a serializer; None stays a null in the log."""

Serializer = Callable[[Any], Serialized | Awaitable[Serialized]]
"""Called with only the key or the value, on the event loop. A coroutine function, or a function that returns an awaitable,
is awaited in the topic's turn."""

HeaderList: TypeAlias = list[tuple[str, bytes | None]]
"""A record's headers, as long as serializers may add to them."""


class TopicSerializer(Protocol):
    """A serializer that sees more of the record than its key or value, as Java's do."""

    def serialize(self, topic: str, headers: HeaderList, value: Any, /) -> Serialized | Awaitable[Serialized]:
        """Return the key or *value* of a record for *topic* as bytes; called on the event loop.

        The method may be a coroutine function. *headers* are the record's own, and the record is sent with the headers
        that serializers append to them. The key's serializer is called first, and awaited before the value's.
        """


AnySerializer: TypeAlias = Serializer | TopicSerializer
"""What may be given as a serializer; an object that is both is asked by its `serialize`."""


def string_serializer(value: Any) -> bytes | None:
    """Encode a `str` as UTF-8, as Java's `StringSerializer` does; None stays None.

    Raises:
        TypeError: *value* is neither a `str` nor None.
        UnicodeEncodeError: *value* holds half of a surrogate pair, which UTF-8 cannot say.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise _unfit("string_serializer", "str", value)
    return value.encode()


def bytes_serializer(value: Any) -> Serialized:
    """Hand bytes on as they are, as Java's `ByteArraySerializer` does; None stays None.

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
    from uuid import UUID  # noqa: PLC0415 - with all that it imports it is a thirtieth of importing a producer

    if value is None:
        return None
    if not isinstance(value, UUID):
        raise _unfit("uuid_serializer", "uuid.UUID", value)
    return str(value).encode()


class _Number:
    """Writes a number in a fixed width, the most significant byte first."""

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
"""An `int` of 16 bits, as Java's `ShortSerializer` writes it."""

integer_serializer: Final = _Number("integer_serializer", ">i", int)
"""An `int` of 32 bits, as Java's `IntegerSerializer` writes it."""

long_serializer: Final = _Number("long_serializer", ">q", int)
"""An `int` of 64 bits, as Java's `LongSerializer` writes it."""

float_serializer: Final = _Number("float_serializer", ">f", float, int)
"""A number of 32 bits, as Java's `FloatSerializer` writes it: half of the digits of a Python float are lost."""

double_serializer: Final = _Number("double_serializer", ">d", float, int)
"""A number of 64 bits, as Java's `DoubleSerializer` writes it."""


def _unfit(serializer: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{serializer} takes {expected} or None, not {type(value).__name__}")
