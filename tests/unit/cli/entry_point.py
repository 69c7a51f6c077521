"""The installed command, run as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

COMMAND = (sys.executable, "-m", "aioproducer")


def run(
    *arguments: str,
    given: str = "",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with *given* as its standard input."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=given,
        cwd=cwd,
        env={**os.environ, "PYTHONASYNCIODEBUG": "", **(environment or {})},  # it would report slow callbacks
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
