"""Position in the stored files of `aioproducer send`, which may be compressed."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from aioproducer.cli.send.unpacking import MAGIC

STEP_BYTES: Final = 64 * 1024
"""Compressed bytes that are read at a time: within a step, the position is an estimate."""


class Meter:
    """Map from sizes of decompressed input to bytes of the stored files."""

    def __init__(self) -> None:
        self._stored = 0
        self._passed = 0
        self._steps = deque([(0, 0)])
        """Decompressed and stored bytes at the end of each step that is not acknowledged, and of the one before."""

    async def counted(self, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield the *pieces* of a stored file, and count them."""
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
