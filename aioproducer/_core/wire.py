"""Primitive types of Kafka's protocol: integers, varints and lengths; and CRC-32C.

Integers are big-endian. The lengths of strings, bytes and arrays have two forms: the classic form with a fixed width, where
-1 means null, and, in flexible versions (KIP-482), the compact form, an unsigned varint of the length plus one, where 0
means null.

Varints have 7 bits per byte, least significant first; the top bit marks that more bytes follow. Varints have two kinds:
UNSIGNED_VARINT of Kafka's protocol guide (lengths and tags of flexible versions), and the zigzag-coded VARLONG (record
fields; also the VARINT of the guide), which maps 0, -1, 1, -2 … to 0, 1, 2, 3 …

`append_*` write to the end of a buffer. `read_*` return a value and the position after the value, and
raise only ProtocolError, for bytes without a valid value. `read_tags` sets the tagged fields on an instance.
A `Memo` keeps encoded numbers and names.

Source: https://kafka.apache.org/protocol.html#protocol_types
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from struct import Struct, error as StructError  # noqa: N812 - a class with a lower-case name
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from aioproducer.errors import ProtocolError

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c  # noqa: PLC0414 - a re-export, the only import of the package

K = TypeVar("K")
T = TypeVar("T")

BytesLike: TypeAlias = bytes | bytearray | memoryview

Writer: TypeAlias = Callable[[bytearray, Any], None]
"""Function that appends a value to a buffer."""

Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Function that returns the value at a position and the position after the value; raises only ProtocolError."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")


def past_the_end(need: int, data: bytes, pos: int) -> ProtocolError:
    """Return the error for *data* with fewer than *need* bytes at *pos*."""
    return ProtocolError(f"{need} bytes expected at byte {pos}, {max(len(data) - pos, 0)} left")


def read_int16(data: bytes, pos: int) -> tuple[int, int]:
    """Read a signed 16-bit integer."""
    try:
        (value,) = _INT16.unpack_from(data, pos)
    except StructError:
        raise past_the_end(2, data, pos) from None
    return value, pos + 2


def read_int32(data: bytes, pos: int) -> tuple[int, int]:
    """Read a signed 32-bit integer."""
    try:
        (value,) = _INT32.unpack_from(data, pos)
    except StructError:
        raise past_the_end(4, data, pos) from None
    return value, pos + 4


# Varints


def append_unsigned_varint(buf: bytearray, value: int) -> None:
    """Append *value*, 0 … 2**32 - 1. Raises: ValueError, before *buf* is changed."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise ValueError(f"{value} does not fit an unsigned varint")
    while value > 0x7F:
        buf.append(value & 0x7F | 0x80)
        value >>= 7
    buf.append(value)


def append_varlong(buf: bytearray, value: int) -> None:
    """Append the signed 64-bit *value*. Raises: ValueError, before *buf* is changed."""
    zigzag = value << 1 ^ value >> 63
    if not 0 <= zigzag <= 0xFFFF_FFFF_FFFF_FFFF:
        raise ValueError(f"{value} does not fit a varlong")
    while zigzag > 0x7F:
        buf.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    buf.append(zigzag)


def read_unsigned_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the value at *pos* and the position after the value. Raises: ProtocolError for a cut or too long varint."""
    return _read_varint(data, pos, bits=32)


def read_varlong(data: bytes, pos: int) -> tuple[int, int]:
    """Return the signed value at *pos* and the position after the value. Raises: ProtocolError for a cut or too long varint."""
    zigzag, pos = _read_varint(data, pos, bits=64)
    return zigzag >> 1 ^ -(zigzag & 1), pos


def unsigned_varint_size(value: int) -> int:
    """Return the number of bytes appended by `append_unsigned_varint`."""
    return (value.bit_length() + 6) // 7 or 1


def varlong_size(value: int) -> int:
    """Return the number of bytes appended by `append_varlong`."""
    return unsigned_varint_size(value << 1 ^ value >> 63)


def _read_varint(data: bytes, pos: int, *, bits: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while (byte := data[pos]) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
            pos += 1
            if shift >= bits:
                raise ProtocolError(f"a varint goes on past {bits} bits")
    except IndexError:
        raise ProtocolError("the data ends within a varint") from None
    value |= byte << shift
    if value >> bits:
        raise ProtocolError(f"a varint has more than {bits} bits")
    return value, pos + 1


# Lengths: -1 stands for null in the functions of classic and of compact lengths.


MEMO_ENTRIES: Final = 4096
"""Number of entries at which a memo is emptied: records may have any number of lengths and names."""


class Memo(dict[K, T], Generic[K, T]):
    """Dict of results of *make* by argument: `map(memo.__getitem__, keys)` stays within C for known keys.

    Threads may share a memo: two threads may make the same entry, with the same outcome.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[K], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> T:
        made = self._make(key)
        if len(self) >= MEMO_ENTRIES:
            self.clear()
        self[key] = made
        return made


def varint(number: int) -> bytes:
    """Return *number* as a zigzag varint or varlong, which differ only in their maximum length."""
    buf = bytearray()
    append_varlong(buf, number)
    return bytes(buf)


VARINTS = Memo(varint)


@lru_cache(maxsize=256)  # prefixes have at most one byte
def varints_after(prefix: bytes) -> Memo[int, bytes]:
    """Return a memo of varints directly behind *prefix*."""
    return Memo(lambda number: prefix + varint(number))


def field_size(length: int) -> int:
    """Return the encoded size of a nullable field of *length* bytes, its length included; a null has length -1."""
    return varlong_size(length) + max(length, 0)


FIELD_SIZES = Memo(field_size)


def append_compact_length(buf: bytearray, length: int) -> None:
    """Append the length of a compact field; -1 means null."""
    if length < 0x7F:
        buf.append(length + 1)
    else:
        append_unsigned_varint(buf, length + 1)


def read_compact_length(data: bytes, pos: int) -> tuple[int, int]:
    """Read the length of a compact field, checked against the bytes left; -1 means null."""
    try:
        length = data[pos] - 1
    except IndexError:
        raise past_the_end(1, data, pos) from None
    if length < 0x7F:
        pos += 1
    else:
        length, pos = read_unsigned_varint(data, pos)
        length -= 1
    if length > len(data) - pos:
        raise past_the_end(length, data, pos)
    return length, pos


def append_length(buf: bytearray, length: int) -> None:
    """Append the int32 length of bytes or an array; -1 is null."""
    buf += _INT32.pack(length)


def read_length(data: bytes, pos: int) -> tuple[int, int]:
    """Read the int32 length of bytes or an array, checked against the bytes left; -1 is null."""
    length, pos = read_int32(data, pos)
    if not -1 <= length <= len(data) - pos:
        raise _bad_length(length, data, pos)
    return length, pos


def append_short_length(buf: bytearray, length: int) -> None:
    """Append the int16 length of a string; -1 is null."""
    buf += _INT16.pack(length)


def read_short_length(data: bytes, pos: int) -> tuple[int, int]:
    """Read the int16 length of a string, checked against the bytes left; -1 is null."""
    length, pos = read_int16(data, pos)
    if not -1 <= length <= len(data) - pos:
        raise _bad_length(length, data, pos)
    return length, pos


def _bad_length(length: int, data: bytes, pos: int) -> ProtocolError:
    return (
        ProtocolError(f"a length of {length} at byte {pos}")
        if length < -1
        else past_the_end(length, data, pos)
    )


# Tagged fields (KIP-482)


MOST_TAGS: Final = 1_000
"""Maximum number of tagged fields of one struct; Kafka's messages have up to ten."""


def read_tags(data: bytes, pos: int, known: Mapping[int, tuple[str, Reader]], instance: Any) -> int:
    """Set the *known* tagged fields at *pos* on *instance*, skip other fields, and return the position after all fields."""
    try:
        if not data[pos]:
            return pos + 1  # most structs have no tagged fields
    except IndexError:
        raise past_the_end(1, data, pos) from None
    count, pos = read_unsigned_varint(data, pos)
    if count > MOST_TAGS:
        raise ProtocolError(f"{count} tagged fields before byte {pos}; {MOST_TAGS} are possible")
    for _ in range(count):
        tag, pos = read_unsigned_varint(data, pos)
        size, pos = read_unsigned_varint(data, pos)
        if size > len(data) - pos:
            raise past_the_end(size, data, pos)
        if tag in known:
            name, read_value = known[tag]
            value, end = read_value(data, pos)
            if end != pos + size:
                raise ProtocolError(
                    f"the tagged field {name} takes {end - pos} bytes where {size} were announced"
                )
            setattr(instance, name, value)
        pos += size
    return pos


def _extension() -> Any:
    """Return the compiled module of the package `crc32c`, or the package if it has another structure.

    The package imports argparse and the metadata of all distributions for its own version, which costs a quarter of the
    import time of a producer.
    """
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            extension = spec.loader.create_module(spec)
            if extension is not None:
                spec.loader.exec_module(extension)
                return extension
    import crc32c  # noqa: PLC0415 - a slow import, only as a fallback

    return crc32c


if not TYPE_CHECKING:
    crc32c = _extension().crc32c
