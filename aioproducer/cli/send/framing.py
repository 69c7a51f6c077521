"""Framing of an input: bytes cut where each record ends, in lines, JSON or length-prefixed records."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import Enum, auto
from functools import reduce
from itertools import accumulate
from typing import ClassVar, Final, NamedTuple, TypeAlias

LENGTH_BYTES: Final = 4
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""UTF-8 byte order mark, which is not part of the first record."""


class FramedRecords(NamedTuple):
    """Complete records of the input."""

    items: Sequence[bytes]
    """Contents of each record, without its delimiter or length."""
    ends: Sequence[int]
    """End of each record in `raw`."""
    raw: bytes
    lines: Sequence[int] | None = None
    """Line on which each record begins; None if records are lines or there are no lines."""


NOTHING: Final = FramedRecords((), (), b"")


class Lines:
    """Records that end with *delimiter* or with the file; a CR before LF belongs to the delimiter.

    A record larger than *limit* bytes is refused: no broker accepts it, and memory stays bounded.
    """

    unit: ClassVar[str] = "line"

    def __init__(self, limit: int, delimiter: bytes = b"\n") -> None:
        self._limit = limit
        self._delimiter = delimiter
        self._begun: list[bytes] = []
        self._tail = b""
        """Last bytes of the unfinished record, which may contain the beginning of a delimiter."""
        self._first = True

    def feed(self, data: bytes) -> FramedRecords:
        """Return the records that end in *data*."""
        delimiter = self._delimiter
        self._begun.append(data)
        if delimiter in self._tail + data:
            raw = b"".join(self._begun)
            *lines, begun = raw.split(delimiter)
            self._begun = [begun]
            ends = accumulate(len(line) + len(delimiter) for line in lines)
            whole = FramedRecords(self._items(lines), list(ends), raw[: len(raw) - len(begun)])
        else:
            whole = NOTHING
        if len(delimiter) > 1:
            self._tail = (self._tail + data if whole is NOTHING else self._begun[0])[1 - len(delimiter) :]
        if whole is NOTHING and sum(map(len, self._begun)) > self._limit:
            raise ValueError(f"it is longer than max.request.size = {self._limit:,} bytes")
        return whole

    def finish(self) -> FramedRecords:
        """Return the last record if it has no delimiter."""
        raw = b"".join(self._begun)
        self._begun = []
        if self._first and raw == BYTE_ORDER_MARK:
            return NOTHING
        return FramedRecords(self._items([raw]), [len(raw)], raw) if raw else NOTHING

    def _items(self, lines: list[bytes]) -> list[bytes]:
        if self._delimiter == b"\n":
            lines = [line.removesuffix(b"\r") for line in lines]
        if self._first:
            self._first = False
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        return lines


class LengthPrefixed:
    """Records after their length in four bytes, big endian."""

    unit: ClassVar[str] = "record"

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self._size = 0
        self._needed = LENGTH_BYTES

    def feed(self, data: bytes) -> FramedRecords:
        """Return the records that end in *data*."""
        self._begun.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return NOTHING
        raw, at = b"".join(self._begun), 0
        items: list[bytes] = []
        ends: list[int] = []
        self._needed = LENGTH_BYTES
        while len(raw) - at >= LENGTH_BYTES:
            begin = at + LENGTH_BYTES
            length = int.from_bytes(raw[at:begin], "big")
            if length > self._limit:
                if items:
                    break  # return the earlier records first; the next call raises
                raise ValueError(
                    f"its length would be {length:,} bytes, more than max.request.size = {self._limit:,}:"
                    " is this really length-prefixed?"
                )
            if begin + length > len(raw):
                self._needed = LENGTH_BYTES + length
                break
            at = begin + length
            items.append(raw[begin:at])
            ends.append(at)
        self._begun = [raw[at:]]
        self._size = len(raw) - at
        return FramedRecords(items, ends, raw[:at])

    def finish(self) -> FramedRecords:
        """Check that the last record is complete, and return no record."""
        if self._size:
            self.feed(b"")  # raises for an illegal length, the better error
            raise ValueError("the input ends in the middle of it")
        return NOTHING


_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_SKIP: Final = rb'[^"{}\[\]]*+(?:"(?:[^"\\]++|\\.)*+"[^"{}\[\]]*+)*+'
"""Everything up to the next bracket, with the strings before the bracket."""
_SKIPPED: Final = re.compile(_SKIP, re.DOTALL)
_SHALLOW: Final = re.compile(
    reduce(lambda inner, _: rb"[{\[]%b(?:%b%b)*+[}\]]" % (_SKIP, inner, _SKIP), range(3), rb"(?!)"), re.DOTALL
)
"""An object or array of at most three levels, in one call. Most records have at most three levels."""
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SCALAR: Final = re.compile(rb'[^ \t\r\n,\[\]{}"]++')
_UNSURE: Final = 7
"""Length of the longest token that may be cut, an escape such as `\\u00e4`, plus one."""
_decoder: Final = json.JSONDecoder()


class Shape(Enum):
    """Arrangement of JSON in an input."""

    LINES = auto()
    """A value per line."""
    ONE_LINE_ARRAY = auto()
    """A single array on one line."""
    VALUES = auto()
    """Values over several lines, or several in a line."""


def shape_of(head: bytes, *, ended: bool) -> Shape | None:
    """Return the shape of an input that begins with *head*; None if more bytes are needed. *ended*: no bytes follow."""
    if not ended and BYTE_ORDER_MARK.startswith(head):
        return None
    text = head.removeprefix(BYTE_ORDER_MARK).decode(errors="replace").lstrip(" \t\r\n")
    if not text:
        return Shape.LINES if ended else None
    if text[0] not in "{[":
        return Shape.LINES
    try:
        _, end = _decoder.raw_decode(text)
    except json.JSONDecodeError as error:
        return _shape_of_cut(text, error, ended=ended)
    except RecursionError:
        return Shape.LINES
    return _shape_behind(text, end, ended=ended)


def _shape_behind(text: str, end: int, *, ended: bool) -> Shape | None:
    """Return the shape of *text* whose first value is complete, up to *end*."""
    if "\n" in text[:end]:
        return Shape.VALUES
    line, newline, more = text[end:].partition("\n")
    if next_value := line.strip():
        return Shape.VALUES if next_value[0] in "{[" else Shape.LINES
    if text[0] == "{":
        return Shape.LINES if newline or ended else None
    if more.strip():
        return Shape.LINES
    return Shape.ONE_LINE_ARRAY if ended else None


def _shape_of_cut(text: str, error: json.JSONDecodeError, *, ended: bool) -> Shape | None:
    """Return the shape of *text* whose first value is incomplete or malformed."""
    rest = text[error.pos :]
    if not rest.strip() or error.msg.startswith("Unterminated string"):  # the value may continue
        if "\n" in text.rstrip():
            return Shape.VALUES
        return Shape.LINES if ended else None
    if len(rest) < _UNSURE and not ended:
        return None
    at = error.pos + 1 if rest[0] == "\n" else text.rfind("\n", 0, error.pos) + 1
    if at == 0 or (text[0] == "{" and text[at : at + 1] in {"{", "["}):
        return Shape.LINES  # the first line is damaged, and the next line begins a value
    return Shape.VALUES


class JsonInput:
    """JSON whose shape is recognized by its beginning: lines, or values in an array, over lines or next to each other.

    A first line that is an array waits for the second line: an array alone is a list of records, and arrays line by line
    are records. A record that grows beyond *limit* bytes is refused.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = b""
        self._inner: Framing | None = None

    @property
    def unit(self) -> str:
        """Word for a record."""
        return Lines.unit if self._inner is None else self._inner.unit

    def feed(self, data: bytes) -> FramedRecords:
        """Return the records that end in *data*. Raises: ValueError: malformed record."""
        if self._inner is not None:
            return self._inner.feed(data)
        self._held += data
        shape = shape_of(self._held, ended=False)
        if shape is None and len(self._held) > self._limit:
            shape = Shape.VALUES if self._held.lstrip(_LEADING).startswith(b"[") else Shape.LINES
        return NOTHING if shape is None else self._begin(shape).feed(self._take())

    def finish(self) -> FramedRecords:
        """Return the records completed by the end of the file. Raises: ValueError: the last record is cut."""
        if self._inner is not None:
            return self._inner.finish()
        inner = self._begin(shape_of(self._held, ended=True) or Shape.LINES)
        whole = inner.feed(self._take())
        return whole if whole.items else inner.finish()

    def _begin(self, shape: Shape) -> Framing:
        self._inner = Lines(self._limit) if shape is Shape.LINES else JsonValues(self._limit)
        return self._inner

    def _take(self) -> bytes:
        held, self._held = self._held, b""
        return held


_LEADING: Final = BYTE_ORDER_MARK + b" \t\r\n"


class JsonValues:
    """Values next to each other, over any lines. If the first value is an array, elements of arrays are the records.

    This class only finds brackets and strings; the decoder checks the records.
    """

    unit: ClassVar[str] = "record"

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        """Bytes behind the last record."""
        self._at = 0
        """Position of the next token in `_rest`."""
        self._counted = 0
        self._line = 1
        """Line of the position `_counted` in `_rest`."""
        self._unpacks: bool | None = None
        """True if elements of arrays are records; None until the first value begins."""
        self._in_array = False
        self._behind_element = False
        self._behind_comma = False
        self._depth = 0
        self._scanned = 0
        """Position in `_rest` up to which the brackets of the unfinished record are counted in `_depth`."""

    def feed(self, data: bytes) -> FramedRecords:
        """Return the records that end in *data*."""
        return self._records(data, ended=False)

    def finish(self) -> FramedRecords:
        """Return the last record, if complete at the end of the file. Raises: ValueError: the record or its array is cut."""
        if (whole := self._records(b"", ended=True)).items:
            return whole
        if self._at < len(self._rest):
            raise ValueError(f"the input ends in the middle of it, on line {self._line_at(self._at)}")
        if self._in_array:
            raise ValueError("the array has no end: is the input whole?")
        return whole

    def _records(self, data: bytes, *, ended: bool) -> FramedRecords:
        raw = self._rest = self._rest + data
        if self._unpacks is None and raw.startswith(BYTE_ORDER_MARK):
            self._at = max(self._at, len(BYTE_ORDER_MARK))
        items: list[bytes] = []
        ends: list[int] = []
        lines: list[int] = []
        while True:
            try:
                end = self._next_end(ended=ended)
            except ValueError:
                if items:
                    break  # return the earlier records first; the next call raises again
                raise
            if end is None:
                break
            items.append(raw[self._at : end])
            self._line, self._counted = self._line_at(self._at), self._at
            lines.append(self._line)
            ends.append(end)
            self._at, self._behind_element, self._behind_comma = end, self._in_array, False
        return self._cut(items, ends, lines) if items else NOTHING

    def _cut(self, items: list[bytes], ends: list[int], lines: list[int]) -> FramedRecords:
        raw, end = self._rest, ends[-1]
        self._line, self._counted = self._line_at(end), 0
        self._rest = raw[end:]
        self._at -= end
        self._scanned = max(0, self._scanned - end)
        return FramedRecords(items, ends, raw[:end], lines)

    def _line_at(self, position: int) -> int:
        return self._line + self._rest.count(b"\n", self._counted, position)

    def _next_end(self, *, ended: bool) -> int | None:
        """Move to the next record and return its end; None for an incomplete record."""
        raw = self._rest
        while True:
            begin = self._at
            match = _SPACE.match(raw, begin)
            self._at = begin if match is None else match.end()
            byte = raw[self._at : self._at + 1]
            if not byte:
                if len(raw) > self._limit + len(BYTE_ORDER_MARK):
                    raise ValueError(f"no value follows in {len(raw):,} bytes")
                return None
            if self._unpacks is None:
                self._unpacks = byte == b"["
            if not self._passes(byte):
                break
            self._at += 1
        end = self._end_of_value(byte, ended=ended)
        if (len(raw) if end is None else end) - self._at > self._limit:
            raise ValueError(f"it is longer than max.request.size = {self._limit:,} bytes")
        return end

    def _passes(self, byte: bytes) -> bool:
        """Return True if *byte* is a bracket of an array of records, or a comma in the array. Raises: ValueError."""
        if not self._in_array:
            self._in_array = self._unpacks is True and byte == b"["
            return self._in_array
        if byte == b"]" and not self._behind_comma:
            self._in_array = self._behind_element = False
            return True
        if not self._behind_element:
            return False
        if byte != b",":
            raise ValueError(f"expected a comma or the end of the array on line {self._line_at(self._at)}")
        self._behind_element, self._behind_comma = False, True
        return True

    def _end_of_value(self, byte: bytes, *, ended: bool) -> int | None:
        raw = self._rest
        if byte in b"{[":
            return self._end_of_brackets()
        match = (_STRING if byte == b'"' else _SCALAR).match(raw, self._at)
        if match is not None:
            whole = byte == b'"' or match.end() < len(raw) or (ended and not self._in_array)
            return match.end() if whole else None
        if byte == b'"':
            return None
        raise ValueError(f"expected a value instead of {byte.decode()!r} on line {self._line_at(self._at)}")

    def _end_of_brackets(self) -> int | None:
        raw = self._rest
        if not self._scanned and (match := _SHALLOW.match(raw, self._at)):
            return match.end()
        at = max(self._at, self._scanned)
        while True:
            match = _SKIPPED.match(raw, at)
            at = at if match is None else match.end()
            byte = raw[at : at + 1]
            if not byte or byte == b'"':
                self._scanned = at
                return None
            at += 1
            self._depth += 1 if byte in b"{[" else -1
            if self._depth == 0:
                self._scanned = 0
                return at


Framing: TypeAlias = Lines | LengthPrefixed | JsonInput | JsonValues
"""Splits one file into records, in pieces of any size; `finish` is called until it returns no record."""
