"""Compression of a batch's records: gzip, snappy, lz4 and zstd, in Kafka's formats.

The package of a codec is imported when the codec is first used, so producers without compression import no package.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from importlib import import_module
from struct import Struct
from typing import Any, TypeAlias

from aioproducer._core.extras import needs
from aioproducer.errors import ConfigError, ProtocolError

Compress: TypeAlias = Callable[[bytes | bytearray | memoryview], bytes]


class Codec(IntEnum):
    """Compression type; the value is the number of the codec in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    def __str__(self) -> str:
        """Return the name of the codec in `compression.type`."""
        return self.name.lower()


LEVELS = {
    Codec.GZIP: range(1, 10),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131_072, 23),
}
"""Levels that Kafka's configuration accepts (KIP-390); for gzip also -1, zlib's default."""

_LZ4_DEFAULT = 9
_ZSTD_DEFAULT = 3
_ZSTD_BLOCK_BYTES = 128 * 1024
"""Largest block of a zstd frame. Tables for this input size stay in the L2 cache of most CPUs."""
_ISAL_LEVELS = (1, 2)
"""Gzip levels that isal compresses if installed: isal is faster than zlib, and its output is no larger in measurements."""
_GZIP_FORMAT = 31  # zlib's number for its largest window within gzip's header and trailer
_CHUNK_BYTES = 1 << 20


def codec(name: str) -> Codec:
    """Return the codec *name* of `compression.type`. Raises: ConfigError."""
    for candidate in Codec:
        if str(candidate) == name:
            return candidate
    known = ", ".join(map(str, Codec))
    raise ConfigError(f"compression type {name!r} is unknown; known types are: {known}")


def compressor(codec: Codec, level: int | None, *, small_records: bool = False) -> Compress:
    """Return a function that compresses, and may be called from several threads concurrently.

    A *level* of None is the codec's default. Levels have the meaning of the JVM producer: for lz4, the default of 9 is
    the fast mode, and all other levels belong to the slower high-compression mode. With *small_records*, zstd up to its
    default level finds repetitions in the last 128 KiB only.

    Raises: ConfigError if the level does not exist, or the codec's package is not installed.
    """
    _check_level(codec, level)
    if codec is Codec.GZIP:
        return _gzip_compressor(-1 if level is None else level)
    if codec is Codec.SNAPPY:
        return _snappy_compressor()
    if codec is Codec.LZ4:
        return _lz4_compressor(_LZ4_DEFAULT if level is None else level)
    if codec is Codec.ZSTD:
        return _ZstdCompressor(_ZSTD_DEFAULT if level is None else level, small_records=small_records)
    return bytes


def decompress(codec: Codec, data: bytes, *, limit: int) -> bytes:
    """Return *data* decompressed. Decompression needs at most *limit* bytes and a chunk of 1 MiB of memory.

    Raises: ProtocolError if the result exceeds *limit* bytes, or if *data* is cut, has trailing bytes, or has another
    codec; ConfigError if the codec's package is not installed.
    """
    if codec is Codec.GZIP:
        return _gunzip(data, limit)
    if codec is Codec.SNAPPY:
        return _snappy_decompress(data, limit)
    if codec is Codec.LZ4:
        return _lz4_decompress(data, limit)
    if codec is Codec.ZSTD:
        return _zstd_decompress(data, limit)
    _check_size(codec, len(data), limit)
    return data


def _check_level(codec: Codec, level: int | None) -> None:
    if level is None or (codec is Codec.GZIP and level == -1):
        return
    levels = LEVELS.get(codec)
    if levels is None:
        raise ConfigError(f"compression type {codec} has no levels")
    if level not in levels:
        raise ConfigError(
            f"compression level {level} is out of range for {codec}: {levels[0]} to {levels[-1]}"
        )


def _package(codec: Codec) -> Any:
    """Return the module of *codec*."""
    what = f"compression type {codec}"
    module, missing = {
        Codec.GZIP: ("zlib", f"{what} needs a Python that was built with zlib"),
        Codec.SNAPPY: ("cramjam", needs(what, "snappy")),
        Codec.LZ4: ("lz4.frame", f"{what} needs a package: pip install lz4"),
        Codec.ZSTD: ("zstandard", f"{what} needs a package: pip install zstandard"),
    }[codec]
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(missing) from error


def _check_size(codec: Codec, size: int, limit: int) -> None:
    if size > limit:
        raise ProtocolError(f"{codec}: the records are larger than the limit of {limit} bytes")


def _check_end(codec: Codec, *, complete: bool, rest: bytes | None) -> None:
    if not complete:
        raise ProtocolError(f"{codec}: the data is truncated")
    if rest:
        raise ProtocolError(f"{codec}: {len(rest)} bytes follow the data")


def _gzip_compressor(level: int) -> Compress:
    """Return a compressor by isal if isal is installed and covers *level*, else by zlib. Gzip readers accept both outputs."""
    package = _package(Codec.GZIP)
    if level in _ISAL_LEVELS:
        with suppress(ImportError):
            package = import_module("isal.isal_zlib")
    return partial(package.compress, level=level, wbits=_GZIP_FORMAT)


def _gunzip(data: bytes, limit: int) -> bytes:
    zlib = _package(Codec.GZIP)
    inflater = zlib.decompressobj(_GZIP_FORMAT)
    try:
        plain: bytes = inflater.decompress(data, limit + 1)
    except zlib.error as error:
        raise ProtocolError(f"not gzip: {error}") from error
    _check_size(Codec.GZIP, len(plain), limit)
    _check_end(Codec.GZIP, complete=inflater.eof, rest=inflater.unused_data)
    return plain


_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
"""Frame of xerial's snappy-java, which Kafka's Java clients use: magic, version and lowest compatible version.

Each block of the frame has a length (int32) and raw snappy of at most 32 KiB. Some clients (franz-go) write a raw block
without a frame.
"""
_XERIAL_LENGTH = Struct(">I")
_XERIAL_BLOCK_BYTES = 32 * 1024


def _snappy_compressor() -> Compress:
    """Return a compressor to framed blocks."""
    compress_raw = _package(Codec.SNAPPY).snappy.compress_raw

    def compress(data: bytes | bytearray | memoryview) -> bytes:
        parts: list[bytes | memoryview] = [_XERIAL_HEADER]
        view = memoryview(data)
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = memoryview(compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            parts += _XERIAL_LENGTH.pack(len(block)), block
        return b"".join(parts)

    return compress


def _snappy_decompress(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit)
    parts = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        start = position + _XERIAL_LENGTH.size
        length_bytes = data[position:start]
        position = start + int.from_bytes(length_bytes)
        if len(length_bytes) < _XERIAL_LENGTH.size or position > len(data):
            raise ProtocolError("snappy: the data ends within a block")
        part = _snappy_block(data[start:position], limit)
        limit -= len(part)
        parts.append(part)
    return b"".join(parts)


def _snappy_block(block: bytes, limit: int) -> bytes:
    cramjam = _package(Codec.SNAPPY)
    try:
        size = cramjam.snappy.decompress_raw_len(block)  # the size that the block states
        if size > limit:
            raise ProtocolError(f"snappy: a block of {size} bytes where {limit} are the limit")
        return bytes(memoryview(cramjam.snappy.decompress_raw(block)))
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"not snappy: {error}") from error


def _lz4_compressor(level: int) -> Compress:
    """Return a compressor to frames that a broker reads: independent blocks of 64 KiB, no checksum of the content.

    Source: KIP-57. Kafka's default level selects the fast mode. In liblz4, level 3 is the first level of the slower mode.
    """
    frame = _package(Codec.LZ4)
    return partial(
        frame.compress,
        compression_level=0 if level == _LZ4_DEFAULT else max(level, frame.COMPRESSIONLEVEL_MINHC),
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )


def _lz4_decompress(data: bytes, limit: int) -> bytes:
    frame = _package(Codec.LZ4).LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    try:
        while not parts or not (frame.eof or frame.needs_input):
            parts.append(frame.decompress(b"" if parts else data, max_length=_CHUNK_BYTES))
            size += len(parts[-1])
            _check_size(Codec.LZ4, size, limit)
    except RuntimeError as error:
        raise ProtocolError(f"not lz4: {error}") from error
    _check_end(Codec.LZ4, complete=frame.eof, rest=frame.unused_data)
    return b"".join(parts)


class _ZstdCompressor:
    """Zstandard compressor with one context per thread.

    A context serves one thread at a time. Without reuse, compressing 16 KiB takes 1.5 times as long. JSON of 1 KiB in batches
    of 1 MiB needs 16 % less CPU with parameters for 128 KiB, but a repeated document of 200 KiB
    becomes five times larger.
    """

    __slots__ = ("_local", "_options", "_zstandard")

    def __init__(self, level: int, *, small_records: bool) -> None:
        self._zstandard = _package(Codec.ZSTD)
        self._options: dict[str, Any] = {"level": level}
        if small_records and level <= _ZSTD_DEFAULT:
            parameters = self._zstandard.ZstdCompressionParameters
            self._options = {
                "compression_params": parameters.from_level(level, source_size=_ZSTD_BLOCK_BYTES)
            }
        self._local = threading.local()

    def __call__(self, data: bytes | bytearray | memoryview) -> bytes:
        try:
            context = self._local.context
        except AttributeError:
            context = self._local.context = self._zstandard.ZstdCompressor(**self._options)
        compressed: bytes = context.compress(data)
        return compressed


def _zstd_decompress(data: bytes, limit: int) -> bytes:
    zstandard = _package(Codec.ZSTD)
    context = zstandard.ZstdDecompressor()
    try:
        stated = zstandard.frame_content_size(data)  # -1: the frame states no size
        _check_size(Codec.ZSTD, stated, limit)
        # Without a stated size the package allocates its whole limit at once, so the limit grows in steps.
        room = min(limit, max(_CHUNK_BYTES, 16 * len(data)))
        while True:
            try:
                plain: bytes = context.decompress(data, max_output_size=room, allow_extra_data=False)
            except zstandard.ZstdError:
                if room >= limit or stated >= 0:
                    raise
                room = min(limit, room * 16)
            else:
                return plain
    except zstandard.ZstdError as error:
        raise ProtocolError(f"not zstd of at most {limit} bytes: {error}") from error
