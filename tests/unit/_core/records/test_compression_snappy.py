from __future__ import annotations

import cramjam
import pytest

from aioproducer._core.records.compression import Codec, compressor, decompress
from aioproducer.errors import ProtocolError
from tests.cases import for_each

FRAME = b"\x82SNAPPY\0" + b"\0\0\0\1" + b"\0\0\0\1"


def raw(data: bytes) -> bytes:
    return bytes(memoryview(cramjam.snappy.compress_raw(data)))


def test_blocks_of_32_kib_are_framed_as_xerial_does() -> None:
    data = b"a" * 32 * 1024 + b"b" * 10
    first, second = raw(data[: 32 * 1024]), raw(data[32 * 1024 :])
    assert compressor(Codec.SNAPPY, None)(data) == FRAME + (
        len(first).to_bytes(4) + first + len(second).to_bytes(4) + second
    )


def test_snappy_reads_framed_and_raw_data() -> None:
    data = b"kafka" * 20_000
    assert decompress(Codec.SNAPPY, compressor(Codec.SNAPPY, None)(data), limit=len(data)) == data
    assert decompress(Codec.SNAPPY, raw(data), limit=len(data)) == data
    assert decompress(Codec.SNAPPY, FRAME, limit=0) == b""


def test_snappy_checks_the_block_size_before_reading() -> None:
    four_gib = b"\xff\xff\xff\xff\x0f"
    for bomb in (four_gib, FRAME + len(four_gib).to_bytes(4) + four_gib):
        with pytest.raises(ProtocolError, match="a block of 4294967295 bytes"):
            decompress(Codec.SNAPPY, bomb, limit=1 << 30)


def test_snappy_limit_applies_to_all_blocks() -> None:
    data = bytes(40 * 1024)
    with pytest.raises(ProtocolError, match="a block of 8192 bytes where 8191 are the limit"):
        decompress(Codec.SNAPPY, compressor(Codec.SNAPPY, None)(data), limit=len(data) - 1)


@pytest.mark.parametrize("cut", [1, 3, 8])
def test_snappy_refuses_a_truncated_block(cut: int) -> None:
    framed = compressor(Codec.SNAPPY, None)(b"kafka" * 10)
    with pytest.raises(ProtocolError, match="ends within a block"):
        decompress(Codec.SNAPPY, framed[:-cut], limit=100)
    with pytest.raises(ProtocolError, match="ends within a block"):
        decompress(Codec.SNAPPY, framed + b"\0" * min(cut, 3), limit=100)


@for_each("data", [b"", b"\x05", b"\xff" * 11, b"\x03\x08abcd"])
def test_snappy_refuses_other_data(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not snappy"):
        decompress(Codec.SNAPPY, data, limit=100)
