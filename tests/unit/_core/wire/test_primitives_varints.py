from __future__ import annotations

from collections.abc import Callable

import pytest

from aioproducer._core.wire.primitives import (
    append_unsigned_varint,
    append_varint,
    append_varlong,
    read_unsigned_varint,
    read_varint,
    read_varlong,
    unsigned_varint_size,
    varint_size,
    varlong_size,
)
from aioproducer.errors import ProtocolError

Append = Callable[[bytearray, int], None]
Read = Callable[[bytes, int], tuple[int, int]]
Size = Callable[[int], int]

UNSIGNED = (append_unsigned_varint, read_unsigned_varint, unsigned_varint_size)
VARINT = (append_varint, read_varint, varint_size)
VARLONG = (append_varlong, read_varlong, varlong_size)

KNOWN = [
    (UNSIGNED, 0, "00"),
    (UNSIGNED, 1, "01"),
    (UNSIGNED, 127, "7f"),
    (UNSIGNED, 128, "8001"),
    (UNSIGNED, 16_383, "ff7f"),
    (UNSIGNED, 16_384, "808001"),
    (UNSIGNED, 2**32 - 1, "ffffffff0f"),
    (VARINT, 0, "00"),
    (VARINT, -1, "01"),
    (VARINT, 1, "02"),
    (VARINT, 63, "7e"),
    (VARINT, -64, "7f"),
    (VARINT, 64, "8001"),
    (VARINT, -65, "8101"),
    (VARINT, 2**31 - 1, "feffffff0f"),
    (VARINT, -(2**31), "ffffffff0f"),
    (VARLONG, 0, "00"),
    (VARLONG, -1, "01"),
    (VARLONG, 64, "8001"),
    (VARLONG, 2**63 - 1, "feffffffffffffffff01"),
    (VARLONG, -(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("functions", "value", "wire"), KNOWN)
def test_known_values_are_written_sized_and_read(
    functions: tuple[Append, Read, Size], value: int, wire: str
) -> None:
    append, read, size = functions
    buf = bytearray(b"before")
    append(buf, value)
    assert buf.hex() == b"before".hex() + wire
    assert size(value) == len(wire) // 2
    assert read(bytes.fromhex("aa" + wire + "bb"), 1) == (value, 1 + len(wire) // 2)


@pytest.mark.parametrize(
    ("append", "value"),
    [
        (append_unsigned_varint, -1),
        (append_unsigned_varint, 2**32),
        (append_varint, 2**31),
        (append_varint, -(2**31) - 1),
        (append_varlong, 2**63),
        (append_varlong, -(2**63) - 1),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_nothing_written(append: Append, value: int) -> None:
    buf = bytearray(b"before")
    with pytest.raises(ValueError, match="does not fit"):
        append(buf, value)
    assert buf == b"before"


@pytest.mark.parametrize("read", [read_unsigned_varint, read_varint, read_varlong])
@pytest.mark.parametrize("wire", ["", "80", "ffff"])
def test_a_cut_varint_is_a_protocol_error(read: Read, wire: str) -> None:
    with pytest.raises(ProtocolError, match="ends within"):
        read(bytes.fromhex(wire), 0)


@pytest.mark.parametrize(
    ("read", "wire"),
    [
        (read_unsigned_varint, "ffffffff1f"),  # 33 bits
        (read_unsigned_varint, "808080808000"),  # a sixth byte
        (read_varint, "ffffffffff01"),
        (read_varlong, "ffffffffffffffffff02"),  # 65 bits
        (read_varlong, "8080808080808080808000"),  # an eleventh byte
    ],
)
def test_an_overlong_varint_is_a_protocol_error(read: Read, wire: str) -> None:
    with pytest.raises(ProtocolError, match="bits"):
        read(bytes.fromhex(wire), 0)
