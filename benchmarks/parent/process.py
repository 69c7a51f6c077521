"""Runs in child processes: command line, answer and error output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

TIMEOUT_S: Final = 180.0
SLOWING: Final = frozenset({"PYTHONASYNCIODEBUG", "PYTHONDEVMODE"})
"""Variables that tests set. The variables slow every client down and make confluent-kafka's AIOProducer hang."""


class ChildFailedError(RuntimeError):
    """A child process ended without an answer. The message is its last line of output."""


def answer_of(
    module: str, arguments: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Run `python -m MODULE ARGUMENTS` and return its last line of output. Raises: ChildFailedError.

    The child inherits the environment without `SLOWING`, and with *variables*.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={name: value for name, value in os.environ.items() if name not in SLOWING} | dict(variables),
        )
    except subprocess.TimeoutExpired:
        raise ChildFailedError(f"no answer after {TIMEOUT_S:.0f} s") from None
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise ChildFailedError(f"ended with {done.returncode}: {last_line(done.stderr)}")
    return lines[-1]


def last_line(said: str) -> str:
    """Return the last line that is not blank. In a traceback this line has the error."""
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"
