"""Waits for log lines of a producer, the only sign of some internal steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

WITHIN_S = 10.0


class Logged(logging.Handler):
    """Notes lines of the logger `aioproducer`, of all levels."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._seen = 0
        self._news = asyncio.Event()

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Self]:
        """Listen as long as the body runs."""
        logger, noted = logging.getLogger("aioproducer"), cls()
        before = logger.level
        logger.addHandler(noted)
        logger.setLevel(logging.DEBUG)
        try:
            yield noted
        finally:
            logger.removeHandler(noted)
            logger.setLevel(before)

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line."""
        self.lines.append(record.getMessage())
        self._news.set()

    async def next(self, *starts: str) -> str:
        """Wait for the next line that begins with one of *starts*, behind the one that was returned before."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                while self._seen < len(self.lines):
                    line = self.lines[self._seen]
                    self._seen += 1
                    if line.startswith(starts):
                        return line
                self._news.clear()
                await self._news.wait()
