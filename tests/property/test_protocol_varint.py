from __future__ import annotations

from hypothesis import given, strategies as st

from aioproducer._core.wire import (
    append_unsigned_varint,
    append_varlong,
    read_unsigned_varint,
    read_varlong,
    unsigned_varint_size,
    varlong_size,
)
from aioproducer.errors import ProtocolError

KINDS = {
    "unsigned": (append_unsigned_varint, read_unsigned_varint, unsigned_varint_size, (0, 2**32 - 1)),
    "varlong": (append_varlong, read_varlong, varlong_size, (-(2**63), 2**63 - 1)),
}


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_varint_is_read_back_and_has_its_size(kind: str, data: st.DataObject) -> None:
    append, read, size, bounds = KINDS[kind]
    value = data.draw(st.integers(*bounds))
    buf = bytearray()
    append(buf, value)
    assert len(buf) == size(value)
    assert read(bytes(buf), 0) == (value, len(buf))


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=12))
def test_random_bytes_are_a_varint_or_a_protocol_error(kind: str, data: bytes) -> None:
    _, read, _, (lowest, highest) = KINDS[kind]
    try:
        value, end = read(data, 0)
    except ProtocolError:
        return
    assert lowest <= value <= highest
    assert 1 <= end <= len(data)
