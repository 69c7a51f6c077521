"""Framing of an input: bytes cut where each record ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar, Final, NamedTuple, Protocol

LENGTH_BYTES: Final = 4
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""UTF-8's mark at the beginning of a file, which is no part of the first record."""


class Whole(NamedTuple):
    """Whole records, as they stand in the input."""

    items: Sequence[bytes]
    """What is in each: without its line break, or its length."""
    ends: Sequence[int]
    """Where each ends in `raw`."""
    raw: bytes
    lines: Sequence[int] | None = None
    """Line on which each begins; None where a record is a line, or where there are none."""


NOTHING: Final = Whole((), (), b"")


class Framing(Protocol):
    """Takes one file apart, in pieces of any size."""

    @property
    def unit(self) -> str:
        """What people call a record: "line" or "record"."""

    def feed(self, data: bytes) -> Whole:
        """Return the records that are whole with *data*. Raises: ValueError: the next one cannot be."""

    def finish(self) -> Whole:
        """Return what is left at the end of the file, until nothing is left. Raises: ValueError: that is no record."""


class Lines:
    """Records that end with *delimiter* or with the file; a CR before LF is no part of the record.

    A record that grows beyond *limit* bytes is refused: no broker would accept it, and memory is bounded.
    """

    unit: ClassVar[str] = "line"

    def __init__(self, limit: int, delimiter: bytes = b"\n") -> None:
        self._limit = limit
        self._delimiter = delimiter
        self._begun: list[bytes] = []
        self._tail = b""
        """Last bytes of the unfinished record: a delimiter may begin there."""
        self._first = True

    def feed(self, data: bytes) -> Whole:
        """Return the records that end in *data*."""
        delimiter = self._delimiter
        self._begun.append(data)
        if delimiter in self._tail + data:
            raw = b"".join(self._begun)
            *lines, begun = raw.split(delimiter)
            self._begun = [begun]
            ends = accumulate(len(line) + len(delimiter) for line in lines)
            whole = Whole(self._items(lines), list(ends), raw[: len(raw) - len(begun)])
        else:
            whole = NOTHING
        if len(delimiter) > 1:
            self._tail = (self._tail + data if whole is NOTHING else self._begun[0])[1 - len(delimiter) :]
        if whole is NOTHING and sum(map(len, self._begun)) > self._limit:
            raise ValueError(f"it is longer than max.request.size = {self._limit:,} bytes")
        return whole

    def finish(self) -> Whole:
        """Return the last record, if no delimiter ended it."""
        raw = b"".join(self._begun)
        self._begun = []
        if self._first and raw == BYTE_ORDER_MARK:
            return NOTHING
        return Whole(self._items([raw]), [len(raw)], raw) if raw else NOTHING

    def _items(self, lines: list[bytes]) -> list[bytes]:
        if self._delimiter == b"\n":
            lines = [line.removesuffix(b"\r") for line in lines]
        if self._first:
            self._first = False
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        return lines


class LengthPrefixed:
    """Four bytes, big endian, say how many bytes of record follow."""

    unit: ClassVar[str] = "record"

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self._size = 0
        self._needed = LENGTH_BYTES

    def feed(self, data: bytes) -> Whole:
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
                    break  # first those before it; the next call comes here again
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
        return Whole(items, ends, raw[:at])

    def finish(self) -> Whole:
        """Return nothing: the last record has to be whole."""
        if self._size:
            self.feed(b"")  # a length that cannot be is the better complaint
            raise ValueError("the input ends in the middle of it")
        return NOTHING
