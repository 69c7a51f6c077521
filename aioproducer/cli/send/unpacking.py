"""Decompression of input: gzip, zstd, bzip2, xz and lz4 are recognised by their first bytes."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any, Final

PIECE_BYTES: Final = 1024 * 1024
"""Largest piece of decompressed bytes, because a small file may decompress to a large file."""
ZSTD_STEP: Final = 1024
"""Compressed bytes per call of zstd, which has no limit for its output."""


class Decompressing:
    """A decompressor of the standard library's interface, for one stream or several in a row."""

    def __init__(
        self,
        name: str,
        new: Callable[[], Any],
        errors: type[Exception] | tuple[type[Exception], ...],
        step: int | None = None,
    ) -> None:
        """*step* is the number of compressed bytes per call of a decompressor that has no limit for its output."""
        self._name = name
        self._new = new
        self._errors = errors
        self._step = step
        self._stream = new()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed bytes of *data*. Raises: ValueError: damaged file."""
        step = self._step or max(len(data), 1)
        for start in range(0, len(data), step):
            yield from self._decompressed(data[start : start + step])

    def _decompressed(self, data: bytes) -> Iterator[bytes]:
        limit = (PIECE_BYTES,) if self._step is None else ()
        while True:
            if self._stream.eof:
                if not (data := data.lstrip(b"\0")):
                    return  # padding between and behind streams
                self._stream = self._new()
            stream = self._stream
            try:
                piece = stream.decompress(data, *limit)
            except self._errors as error:
                raise ValueError(f"the {self._name} file is damaged: {error}") from error
            # zlib returns unread bytes, and other decompressors keep unread bytes
            data = (stream.unused_data if stream.eof else getattr(stream, "unconsumed_tail", None)) or b""
            if piece:
                yield piece
            if not data and (stream.eof or getattr(stream, "needs_input", True)):
                return

    def finish(self) -> None:
        """Check that the last stream has ended. Raises: ValueError."""
        if not self._stream.eof:
            raise ValueError(f"the {self._name} file ends too early: is it whole?")


def _unpacking(begin: bytes) -> Decompressing | None:
    """Return the decompressor of a file that begins with *begin*; rarely needed packages are imported here."""
    name = next((name for magic, name in MAGIC.items() if begin.startswith(magic)), "")
    match name:
        case "gzip":
            return Decompressing(name, partial(zlib.decompressobj, wbits=31), zlib.error)
        case "zstd":
            from zstandard import ZstdDecompressor, ZstdError

            return Decompressing(name, ZstdDecompressor().decompressobj, ZstdError, ZSTD_STEP)
        case "bzip2":
            from bz2 import BZ2Decompressor

            return Decompressing(name, BZ2Decompressor, (OSError, ValueError))
        case "xz":
            from lzma import FORMAT_XZ, LZMADecompressor, LZMAError

            return Decompressing(name, partial(LZMADecompressor, FORMAT_XZ), LZMAError)
        case "lz4":
            from lz4.frame import LZ4FrameDecompressor

            return Decompressing(name, LZ4FrameDecompressor, RuntimeError)
    return None


MAGIC: Final[dict[bytes, str]] = {
    b"\x1f\x8b\x08": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    **{
        b"BZh%d%b" % (level, block): "bzip2"
        for level in range(1, 10)
        for block in (b"1AY&SY", b"\x17rE8P\x90")
    },
}
"""Formats by their first bytes. Lines of text and lengths of ordinary records begin with other bytes."""


async def unpacked(pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield *pieces*, decompressed if they begin with the magic number of a compressed file.

    Raises: ValueError: damaged file.
    """
    begun, unpacking, known = b"", None, False
    async for piece in pieces:
        data = piece
        if not known:
            begun += data
            if any(magic.startswith(begun) and magic != begun for magic in MAGIC):
                continue  # more bytes are needed for the magic number
            data, known, unpacking = begun, True, _unpacking(begun)
        if unpacking is None:
            yield data
            continue
        for inner in unpacking.feed(data):
            yield inner
    if not known and begun:
        yield begun
    if unpacking is not None:
        unpacking.finish()


STEP_BYTES: Final = 64 * 1024
"""Compressed bytes that are read at a time: within a step, the position is an estimate."""


class Meter:
    """Map from sizes of decompressed input to bytes of the stored files."""

    def __init__(self) -> None:
        self._stored = 0
        self._passed = 0
        self._steps = deque([(0, 0)])
        """Decompressed and stored bytes at the end of each step that is not acknowledged, and of the previous step."""

    async def counted(self, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield and count the *pieces* of a stored file."""
        step = None
        async with aclosing(pieces):
            async for piece in pieces:
                if step is None:
                    step = STEP_BYTES if piece.startswith(tuple(MAGIC)) else max(len(piece), 1)
                for start in range(0, len(piece), step):
                    part = piece[start : start + step]
                    self._stored += len(part)
                    yield part

    def passed(self, size: int) -> None:
        """Count *size* decompressed bytes, which the last read produced."""
        self._passed += size
        if self._steps[-1][1] == self._stored and len(self._steps) > 1:
            _ = self._steps.pop()
        self._steps.append((self._passed, self._stored))

    def position(self, size: int) -> float:
        """Return the stored bytes that hold the first *size* decompressed bytes; *size* never decreases."""
        while len(self._steps) > 2 and self._steps[1][0] <= size:
            _ = self._steps.popleft()
        (begin, stored), (end, stored_end) = self._steps[0], self._steps[min(1, len(self._steps) - 1)]
        share = min(1.0, (size - begin) / (end - begin)) if end > begin else 0.0
        return stored + (stored_end - stored) * share
