"""Tables of encoded numbers and names that fill themselves as they are used."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

from aioproducer.wire.primitives import append_varlong, varlong_size

K = TypeVar("K")
T = TypeVar("T")

MEMO_ENTRIES = 4096
"""A memo that has grown to this is emptied: what users send may be of any length, and memory is finite."""


class Memo(dict[K, T], Generic[K, T]):
    """`memo[key]` is what *make* returns for the key, made once.

    A dict with `__missing__`, because `map(memo.__getitem__, keys)` then stays within C for all keys seen
    before. Safe to share between threads: two may make the same entry, with the same outcome.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[K], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> T:
        made = self._make(key)
        if len(self) >= MEMO_ENTRIES:
            self.clear()
        self[key] = made
        return made


def varint(number: int) -> bytes:
    """Return *number* as a zigzag varint (or varlong: these differ only in how long they may become)."""
    buf = bytearray()
    append_varlong(buf, number)
    return bytes(buf)


VARINTS = Memo(varint)


@lru_cache(maxsize=256)  # asked only for prefixes of at most one byte
def varints_after(prefix: bytes) -> Memo[int, bytes]:
    """Return a memo of varints that stand right behind *prefix*."""
    return Memo(lambda number: prefix + varint(number))


def field_size(length: int) -> int:
    """Return the encoded size of a nullable field of *length* bytes: its length as a varint, then itself.

    A null is a length of -1, without bytes.
    """
    return varlong_size(length) + max(length, 0)


FIELD_SIZES = Memo(field_size)
