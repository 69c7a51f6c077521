"""Recognition of binary input, which the line and JSON formats refuse."""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 64 * 1024
"""Bytes at the beginning of each input that are searched for NUL."""

_UNPACK: Final = "unpack the archive first"
_EXPORT: Final = "export it as JSON lines first"
_UTF16: Final = ("UTF-16 text", "convert it first, with iconv -f UTF-16 -t UTF-8")
_UTF32: Final = ("UTF-32 text", "convert it first, with iconv -f UTF-32 -t UTF-8")
_BINARY: Final = "send it as length-prefixed records"
MAGIC: Final[dict[bytes, tuple[str, str]]] = {
    b"\xff\xfe\0\0": _UTF32,
    b"\0\0\xfe\xff": _UTF32,
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
    b"PK\x03\x04": ("a zip archive", _UNPACK),
    b"PK\x05\x06": ("a zip archive", _UNPACK),
    b"PK\x07\x08": ("a zip archive", _UNPACK),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", _UNPACK),
    b"Rar!\x1a\x07": ("a rar archive", _UNPACK),
    b"\x1f\x9d": ("a file of compress", _UNPACK),
    b"\xff\x06\0\0sNaPpY": ("a snappy file", _UNPACK),
    b"\x82SNAPPY\0": ("a snappy file", _UNPACK),
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
    b"GIF87a": ("a GIF image", _BINARY),
    b"GIF89a": ("a GIF image", _BINARY),
    b"\x7fELF": ("an ELF binary", _BINARY),
    b"\x80\x02": ("a Python pickle", _EXPORT),
    b"\x80\x03": ("a Python pickle", _EXPORT),
    b"\x80\x04\x95": ("a Python pickle", _EXPORT),
    b"\x80\x05\x95": ("a Python pickle", _EXPORT),
}
"""First bytes of binary files: what the file is, and a way to send it. UTF-32 precedes UTF-16, whose mark it contains."""
TAR_AT: Final = 257


class BinaryInput(ValueError):
    """An input that is no text."""


class TextCheck:
    """Checks the beginning of one input, in pieces of any size; *nul* allows NUL bytes."""

    def __init__(self, *, nul: bool = False) -> None:
        self._nul = nul
        self._held = b""
        self._known = False
        self._left = HEAD_BYTES

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that are checked; the first ones are held while they may be part of a magic number.

        Raises: BinaryInput.
        """
        if not self._known:
            data = self._held + data
            if any(magic.startswith(data) and magic != data for magic in MAGIC):
                self._held = data
                return b""
            self._held, self._known = b"", True
            self._check_magic(data)
        if self._left > 0:
            self._check_nul(data)
        return data

    def finish(self) -> bytes:
        """Return the bytes still held. Raises: BinaryInput."""
        data, self._held, self._known = self._held, b"", True
        self._check_magic(data)
        self._check_nul(data)
        return data

    def _check_magic(self, data: bytes) -> None:
        found = next((each for magic, each in MAGIC.items() if data.startswith(magic)), None)
        if found is None and data[TAR_AT : TAR_AT + 5] == b"ustar":
            found = ("a tar archive", _UNPACK)
        if found is not None:
            kind, advice = found
            raise BinaryInput(f"it is {kind}, which --format lines and json refuse; {advice}, or add --force")

    def _check_nul(self, data: bytes) -> None:
        at = -1 if self._nul else data.find(b"\0", 0, self._left)
        if at >= 0:
            raise BinaryInput(
                "it is binary data or UTF-16 text, for it has NUL bytes; convert it, name --delimiter '\\0' or"
                " --format length-prefixed if it fits, or add --force"
            )
        self._left -= len(data)
