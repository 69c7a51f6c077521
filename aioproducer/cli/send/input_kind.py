"""Recognition of input in another format, which the line and JSON formats refuse."""

from __future__ import annotations

import codecs
import re
from typing import Final

from aioproducer.cli.send.framing import Shape, shape_of
from aioproducer.cli.send.unpacking import MAGIC as COMPRESSED

HEAD_BYTES: Final = 64 * 1024
"""Bytes at the beginning of each input that are checked before any record is sent."""
JSON_BYTES: Final = 1024 * 1024
"""Bytes of a first line up to which the line format looks for the end of a JSON array."""

_UNPACK: Final = "unpack the archive first"
_EXPORT: Final = "export it as JSON lines first"
_UTF16: Final = ("UTF-16 text", "convert it first, with iconv -f UTF-16 -t UTF-8")
_UTF32: Final = ("UTF-32 text", "convert it first, with iconv -f UTF-32 -t UTF-8")
_TWICE: Final = ("compressed twice", "unpack it once first")
_BINARY: Final = "send it as length-prefixed records"
MAGIC: Final[dict[bytes, tuple[str, str]]] = {
    **dict.fromkeys((b"\xff\xfe\0\0", b"\0\0\xfe\xff"), _UTF32),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), _UTF16),
    **{b"PK%c%c" % (kind, kind + 1): ("a zip archive", _UNPACK) for kind in (3, 5, 7)},
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", _UNPACK),
    b"Rar!\x1a\x07": ("a rar archive", _UNPACK),
    b"\x1f\x9d": ("a file of compress", _UNPACK),
    **dict.fromkeys((b"\xff\x06\0\0sNaPpY", b"\x82SNAPPY\0"), ("a snappy file", _UNPACK)),
    b"\x02\x21\x4c\x18": ("a legacy lz4 file", _UNPACK),
    b"PAR1\x15": ("a Parquet file", _EXPORT),
    b"Obj\x01": ("an Avro file", _EXPORT),
    b"ARROW1\0\0": ("an Arrow file", _EXPORT),
    b"\xff\xff\xff\xff": ("an Arrow stream", _EXPORT),
    **{b"ORC%c" % byte: ("an ORC file", _EXPORT) for byte in range(32) if byte not in b"\t\n\r"},
    b"SEQ\x06": ("a Hadoop sequence file", _EXPORT),
    b"SQLite format 3\0": ("an SQLite database", _EXPORT),
    b"\x89HDF\r\n\x1a\n": ("an HDF5 file", _EXPORT),
    b"\xd0\xcf\x11\xe0": ("an Office document", _EXPORT),
    b"%PDF-": ("a PDF document", _BINARY),
    b"\x89PNG\r\n": ("a PNG image", _BINARY),
    b"\xff\xd8\xff": ("a JPEG image", _BINARY),
    **dict.fromkeys((b"GIF87a", b"GIF89a"), ("a GIF image", _BINARY)),
    b"\x7fELF": ("an ELF binary", _BINARY),
    **{b"\x80%c" % protocol: ("a Python pickle", _EXPORT) for protocol in range(2, 6)},
    **dict.fromkeys(COMPRESSED, _TWICE),
}
"""Format and advice by the first bytes of a file. UTF-32 precedes UTF-16, because the mark of UTF-32 begins with that
of UTF-16."""
TAR_AT: Final = 257


_RECORDS_IN_ARRAY: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*\{")


class BinaryInput(ValueError):
    """An input that is not text, or whose format differs from the named format."""


class TextCheck:
    """Checks the beginning of one input, in pieces of any size.

    *nul* allows NUL bytes, *utf8* refuses other encodings. *by_lines*: records end with LF, so that lone CRs and JSON other
    than JSON Lines are refused.
    """

    def __init__(self, *, nul: bool = False, utf8: bool = False, by_lines: bool = False) -> None:
        self._nul = nul
        self._held = b""
        self._known = False
        self._left = HEAD_BYTES
        self._decoder = codecs.getincrementaldecoder("utf-8")() if utf8 else None
        self._lines = 1
        self._by_lines = by_lines
        self._returns = b""
        """The head from its first CR on, while no LF was seen."""
        self._json: bytes | None = b"" if by_lines else None
        """Bytes held until the shape of JSON is known; then None."""

    def feed(self, data: bytes, *, ended: bool = False) -> bytes:
        """Return the checked bytes. The first bytes are held until a magic number is recognized or excluded.

        Raises: BinaryInput.
        """
        if not self._known:
            data = self._held + data
            if not ended and any(magic.startswith(data) and magic != data for magic in MAGIC):
                self._held = data
                return b""
            self._held, self._known = b"", True
            self._check_magic(data)
        self._check_head(data, ended=ended)
        return self._check_json(data, ended=ended)

    def finish(self) -> bytes:
        """Return the bytes still held. Raises: BinaryInput."""
        return self.feed(b"", ended=True)

    def _check_magic(self, data: bytes) -> None:
        found = next((each for magic, each in MAGIC.items() if data.startswith(magic)), None)
        if found is None and data[TAR_AT : TAR_AT + 5] == b"ustar":
            found = ("a tar archive", _UNPACK)
        if found is not None:
            kind, advice = found
            raise BinaryInput(f"it is {kind}, which --format lines and json refuse; {advice}, or add --force")

    def _check_head(self, data: bytes, *, ended: bool) -> None:
        if self._left <= 0:
            return
        data = data[: self._left]
        self._left -= len(data)
        if not self._nul and b"\0" in data:
            raise BinaryInput(
                "it is binary data or UTF-16 text, for it has NUL bytes; convert it, name --delimiter '\\0' or"
                " --format length-prefixed if it fits, or add --force"
            )
        self._check_utf8(data, ended=ended)
        if self._by_lines:
            self._check_line_ends(data, ended=ended or self._left == 0)

    def _check_utf8(self, data: bytes, *, ended: bool) -> None:
        if self._decoder is None:
            return
        pending, _ = self._decoder.getstate()
        try:
            _ = self._decoder.decode(data, ended)
        except UnicodeDecodeError as error:
            line = self._lines + data.count(b"\n", 0, max(0, error.start - len(pending)))
            raise BinaryInput(
                f"it is not UTF-8, from line {line} on; convert it, such as with iconv -f ISO-8859-1 -t UTF-8, or add --force"
            ) from error
        self._lines += data.count(b"\n")

    def _check_line_ends(self, data: bytes, *, ended: bool) -> None:
        if b"\n" in data:
            self._by_lines = False  # lines end with LF
        elif self._returns or b"\r" in data:
            self._returns += data[0 if self._returns else data.find(b"\r") :]
        if ended and self._by_lines and self._returns.strip(b"\r"):
            raise BinaryInput("its lines end with CR, not LF; add --delimiter '\\r', or --force")

    def _check_json(self, data: bytes, *, ended: bool) -> bytes:
        if self._json is None:
            return data
        self._json += data
        if not self._json.strip():
            self._json = b""
            return data
        shape = shape_of(self._json, ended=ended)
        no_line_yet = self._by_lines and self._returns and not ended
        if (shape is None or no_line_yet) and len(self._json) < JSON_BYTES:
            return b""
        held, self._json = self._json, None
        if shape is Shape.VALUES:
            raise BinaryInput(
                "it is JSON over several lines, or several values in a line, which --format lines would cut;"
                " add --format json, or --force"
            )
        if shape is Shape.ONE_LINE_ARRAY and _RECORDS_IN_ARRAY.match(held):
            raise BinaryInput(
                "it is one JSON array, which --format lines would send as one record; add --format json to send its"
                " elements, or --force"
            )
        return held
