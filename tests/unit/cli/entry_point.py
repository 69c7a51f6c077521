"""The installed command, run as a process of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

COMMAND = (sys.executable, "-m", "aioproducer")
ENVIRONMENT = {**os.environ, "PYTHONASYNCIODEBUG": ""}
"""Without asyncio's debug mode, which logs slow callbacks."""


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
        env={**ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def run_on_terminal(
    *arguments: str, columns: int, environment: Mapping[str, str] | None = None, outputs: str = "out err"
) -> tuple[int, str]:
    """Run the command with *outputs* on a terminal of so many columns; return its exit code and the terminal's text."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {name: value for name, value in ENVIRONMENT.items() if name not in {"COLUMNS", "NO_COLOR"}}
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=end if "out" in outputs else subprocess.DEVNULL,
        stderr=end if "err" in outputs else subprocess.DEVNULL,
        env={**variables, "TERM": "xterm", **(environment or {})},
    ) as process:
        os.close(end)
        shown = b""
        with suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(terminal, 65_536):
                shown += piece
        os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n")
    return process.returncode, text
