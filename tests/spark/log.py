"""The log of Spark from a given time on."""

from __future__ import annotations

import time
from pathlib import Path


class SparkLog:
    """The part of a log file that is written after this object was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = path.stat().st_size

    def text(self) -> str:
        """Return the text written so far."""
        with self.path.open("rb") as log:
            log.seek(self._start)
            return log.read().decode(errors="replace")

    def wait_for(self, text: str, *, timeout_s: float = 20) -> str:
        """Wait for the first line with *text*, and return the line.

        Raises:
            TimeoutError: nobody said it in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for line in self.text().splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line.rstrip()
            time.sleep(0.02)
        raise TimeoutError(f"Spark's log has no {text!r} after {timeout_s:.0f} s")
