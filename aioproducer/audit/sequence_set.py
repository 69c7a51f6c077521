"""A set of sequences in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

PIECE_BITS: Final = 4_096
PIECE_BYTES: Final = PIECE_BITS // 8
FULL: Final = b"\xff" * PIECE_BYTES


class Sequences:
    """A set of integers from 0 on, of which most are there: a bit each.

    The bits are kept in pieces, so that one integer far off from the others costs 512 bytes, not all between.
    """

    def __init__(self) -> None:
        self._pieces: dict[int, bytearray] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, sequence: int) -> bool:
        """Add *sequence*; return whether it is new."""
        number, bit = divmod(sequence, PIECE_BITS)
        piece = self._pieces.get(number)
        if piece is None:
            piece = self._pieces[number] = bytearray(PIECE_BYTES)
        byte, mask = bit >> 3, 1 << (bit & 7)
        if piece[byte] & mask:
            return False
        piece[byte] |= mask
        self._count += 1
        return True

    def __contains__(self, sequence: int) -> bool:
        number, bit = divmod(sequence, PIECE_BITS)
        piece = self._pieces.get(number)
        return piece is not None and bool(piece[bit >> 3] & 1 << (bit & 7))

    def missing(self, end: int) -> Iterator[int]:
        """Yield what is not there of 0 to *end* - 1, in order."""
        for first in range(0, end, PIECE_BITS):
            piece = self._pieces.get(first // PIECE_BITS, bytes(PIECE_BYTES))
            if piece != FULL:
                for sequence in range(first, min(first + PIECE_BITS, end)):
                    bit = sequence - first
                    if not piece[bit >> 3] & 1 << (bit & 7):
                        yield sequence
