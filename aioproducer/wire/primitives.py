"""The primitive types of Kafka's protocol: integers (big-endian), and strings and bytes with their length before them.

Strings, bytes and array counts come in two forms: the classic one with a fixed-width length where -1 means
null, and, in flexible versions (KIP-482), the compact one whose unsigned varint is the length plus one, 0 for null.

`append_*` write to the end of a buffer. `read_*` return a value and the position after it, and raise
ProtocolError, never anything else, for bytes that do not hold such a value.

Source: https://kafka.apache.org/protocol.html#protocol_types
"""

from __future__ import annotations

from struct import Struct, error as StructError  # noqa: N812 - a class, whatever its name looks like
from typing import TypeAlias

from aioproducer.errors import ProtocolError
from aioproducer.wire.varint import append_unsigned_varint, read_unsigned_varint

BytesLike: TypeAlias = bytes | bytearray | memoryview

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_LONGEST_STRING = 0x7FFF
"""In bytes of UTF-8; compact strings could be longer, but Kafka keeps the limit for them too."""


def past_the_end(need: int, data: bytes, pos: int) -> ProtocolError:
    """Return the error for *need* bytes at *pos* that are not all there."""
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


# Lengths: -1 stands for null in what these read and append, whatever the form on the wire.


def append_compact_length(buf: bytearray, length: int) -> None:
    """Append the length of something compact; -1 is null."""
    if length < 0x7F:
        buf.append(length + 1)
    else:
        append_unsigned_varint(buf, length + 1)


def read_compact_length(data: bytes, pos: int) -> tuple[int, int]:
    """Read the length of something compact, checked against the bytes left; -1 is null."""
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


def _bad_length(length: int, data: bytes, pos: int) -> ProtocolError:
    return (
        ProtocolError(f"a length of {length} at byte {pos}")
        if length < -1
        else past_the_end(length, data, pos)
    )


# Strings


def append_string(buf: bytearray, value: str) -> None:
    """Append a STRING of at most 32,767 bytes of UTF-8."""
    raw = _utf8(value)
    buf += _INT16.pack(len(raw))
    buf += raw


def append_nullable_string(buf: bytearray, value: str | None) -> None:
    """Append a NULLABLE_STRING."""
    if value is None:
        buf += b"\xff\xff"
    else:
        append_string(buf, value)


def append_compact_string(buf: bytearray, value: str) -> None:
    """Append a COMPACT_STRING of at most 32,767 bytes of UTF-8, as of the classic one."""
    raw = _utf8(value)
    append_compact_length(buf, len(raw))
    buf += raw


def append_compact_nullable_string(buf: bytearray, value: str | None) -> None:
    """Append a COMPACT_NULLABLE_STRING."""
    if value is None:
        buf.append(0)
    else:
        append_compact_string(buf, value)


def read_string(data: bytes, pos: int) -> tuple[str, int]:
    """Read a STRING."""
    length, pos = _read_string_length(data, pos)
    return _text(data, pos, length)


def read_nullable_string(data: bytes, pos: int) -> tuple[str | None, int]:
    """Read a NULLABLE_STRING."""
    length, pos = _read_string_length(data, pos)
    return (None, pos) if length < 0 else _text(data, pos, length)


def read_compact_string(data: bytes, pos: int) -> tuple[str, int]:
    """Read a COMPACT_STRING."""
    length, pos = read_compact_length(data, pos)
    return _text(data, pos, length)


def read_compact_nullable_string(data: bytes, pos: int) -> tuple[str | None, int]:
    """Read a COMPACT_NULLABLE_STRING."""
    length, pos = read_compact_length(data, pos)
    return (None, pos) if length < 0 else _text(data, pos, length)


def _utf8(value: str) -> bytes:
    try:
        raw = value.encode()
    except AttributeError:
        raise TypeError(f"{value!r} where the protocol has a string") from None
    if len(raw) > _LONGEST_STRING:
        raise ValueError(f"a string of {len(raw)} bytes does not fit the protocol's {_LONGEST_STRING}")
    return raw


def _read_string_length(data: bytes, pos: int) -> tuple[int, int]:
    length, pos = read_int16(data, pos)
    if not -1 <= length <= len(data) - pos:
        raise _bad_length(length, data, pos)
    return length, pos


def _text(data: bytes, pos: int, length: int) -> tuple[str, int]:
    if length < 0:
        raise ProtocolError(f"a null before byte {pos}, where the protocol has none")
    end = pos + length
    try:
        return data[pos:end].decode(), end
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the string at byte {pos} is not UTF-8: {error.reason}") from error


# Bytes


def append_bytes(buf: bytearray, value: BytesLike) -> None:
    """Append BYTES, of at most 2 GiB."""
    append_length(buf, len(value))
    buf += value


def append_compact_bytes(buf: bytearray, value: BytesLike) -> None:
    """Append COMPACT_BYTES."""
    append_compact_length(buf, len(value))
    buf += value


def read_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    """Read BYTES."""
    value, end = read_nullable_bytes(data, pos)
    if value is None:
        raise ProtocolError(f"null at byte {pos}, where the protocol has bytes")
    return value, end


def read_compact_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    """Read COMPACT_BYTES."""
    value, end = read_compact_nullable_bytes(data, pos)
    if value is None:
        raise ProtocolError(f"null at byte {pos}, where the protocol has bytes")
    return value, end


def append_nullable_bytes(buf: bytearray, value: BytesLike | None) -> None:
    """Append NULLABLE_BYTES, of at most 2 GiB."""
    if value is None:
        buf += b"\xff\xff\xff\xff"
    else:
        buf += _INT32.pack(len(value))
        buf += value


def append_compact_nullable_bytes(buf: bytearray, value: BytesLike | None) -> None:
    """Append COMPACT_NULLABLE_BYTES."""
    if value is None:
        buf.append(0)
    else:
        append_compact_length(buf, len(value))
        buf += value


def read_nullable_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    """Read NULLABLE_BYTES."""
    length, pos = read_length(data, pos)
    return (None, pos) if length < 0 else (data[pos : pos + length], pos + length)


def read_compact_nullable_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    """Read COMPACT_NULLABLE_BYTES."""
    length, pos = read_compact_length(data, pos)
    return (None, pos) if length < 0 else (data[pos : pos + length], pos + length)
