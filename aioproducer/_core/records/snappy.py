"""Snappy as Kafka's Java clients write it: raw blocks in the framing of xerial's snappy-java.

    header  82 'SNAPPY' 00, version int32 = 1, lowest compatible version int32 = 1
    block   length int32, raw snappy of at most 32 KiB           (any number of them)

Some clients (franz-go) write one raw block without framing; both are read.

Needs the package cramjam, which comes with the extra `snappy`.
"""

from __future__ import annotations

from struct import Struct

import cramjam

from aioproducer.errors import ProtocolError

_MAGIC = b"\x82SNAPPY\0"
_HEADER = _MAGIC + b"\0\0\0\1\0\0\0\1"
_LENGTH = Struct(">I")
_BLOCK_BYTES = 32 * 1024


def compress(data: bytes | bytearray | memoryview) -> bytes:
    """Return *data* in blocks, framed."""
    parts: list[bytes | memoryview] = [_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
        parts += _LENGTH.pack(len(block)), block
    return b"".join(parts)


def decompress(data: bytes, *, limit: int) -> bytes:
    """Return what *data*, framed or not, holds; ProtocolError if that is more than *limit* bytes, or not snappy."""
    if not data.startswith(_MAGIC):
        return _decompress_block(data, limit)
    parts = []
    position = len(_HEADER)
    while position < len(data):
        start = position + _LENGTH.size
        length_bytes = data[position:start]
        position = start + int.from_bytes(length_bytes)
        if len(length_bytes) < _LENGTH.size or position > len(data):
            raise ProtocolError("snappy: the data ends within a block")
        part = _decompress_block(data[start:position], limit)
        limit -= len(part)
        parts.append(part)
    return b"".join(parts)


def _decompress_block(block: bytes, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)  # what the block says of itself
        if size > limit:
            raise ProtocolError(f"snappy: a block of {size} bytes where {limit} are the limit")
        return bytes(memoryview(cramjam.snappy.decompress_raw(block)))
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"not snappy: {error}") from error
