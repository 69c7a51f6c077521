"""Variable-length integers: 7 bits per byte, least significant first, the top bit says that more follow.

Three kinds, named as in Kafka's protocol guide: UNSIGNED_VARINT (lengths and tags of flexible versions,
KIP-482), and the zigzag-coded VARINT and VARLONG (record fields), which map 0, -1, 1, -2 … to 0, 1, 2, 3 …

Source: https://kafka.apache.org/protocol.html#protocol_types
"""

from __future__ import annotations

from aioproducer.errors import ProtocolError


def append_unsigned_varint(buf: bytearray, value: int) -> None:
    """Append *value*, 0 … 2**32 - 1; ValueError, and *buf* untouched, if it is not."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise ValueError(f"{value} does not fit an unsigned varint")
    while value > 0x7F:
        buf.append(value & 0x7F | 0x80)
        value >>= 7
    buf.append(value)


def append_varint(buf: bytearray, value: int) -> None:
    """Append the signed 32-bit *value*; ValueError, and *buf* untouched, if it is not."""
    append_unsigned_varint(buf, value << 1 ^ value >> 31)


def append_varlong(buf: bytearray, value: int) -> None:
    """Append the signed 64-bit *value*; ValueError, and *buf* untouched, if it is not."""
    zigzag = value << 1 ^ value >> 63
    if not 0 <= zigzag <= 0xFFFF_FFFF_FFFF_FFFF:
        raise ValueError(f"{value} does not fit a varlong")
    while zigzag > 0x7F:
        buf.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    buf.append(zigzag)


def read_unsigned_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the value at *pos* and the position after it; ProtocolError if cut or longer than 32 bits."""
    return _read(data, pos, bits=32)


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the signed value at *pos* and the position after it; ProtocolError if cut or over 32 bits."""
    zigzag, pos = _read(data, pos, bits=32)
    return zigzag >> 1 ^ -(zigzag & 1), pos


def read_varlong(data: bytes, pos: int) -> tuple[int, int]:
    """Return the signed value at *pos* and the position after it; ProtocolError if cut or over 64 bits."""
    zigzag, pos = _read(data, pos, bits=64)
    return zigzag >> 1 ^ -(zigzag & 1), pos


def unsigned_varint_size(value: int) -> int:
    """How many bytes `append_unsigned_varint` appends."""
    return (value.bit_length() + 6) // 7 or 1


def varint_size(value: int) -> int:
    """How many bytes `append_varint` appends."""
    return unsigned_varint_size(value << 1 ^ value >> 31)


def varlong_size(value: int) -> int:
    """How many bytes `append_varlong` appends."""
    return unsigned_varint_size(value << 1 ^ value >> 63)


def _read(data: bytes, pos: int, *, bits: int) -> tuple[int, int]:
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
