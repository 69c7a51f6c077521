"""Runs in processes of their own: the child's command line, its answer, and what it has complained of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

PATIENCE_S: Final = 180.0
SLOWING: Final = frozenset({"PYTHONASYNCIODEBUG", "PYTHONDEVMODE"})
"""What is on in tests, costs every client time, and lets confluent-kafka's AIOProducer hang."""


class ChildFailedError(RuntimeError):
    """A run ended with no answer; the message is the last line of what it said."""


def answer_of(
    module: str, arguments: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Run `python -m MODULE ARGUMENTS`, and return the last line that it prints. Raises: ChildFailedError.

    Its environment is ours, but for what would slow it down, and with *variables*.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={name: value for name, value in os.environ.items() if name not in SLOWING} | dict(variables),
        )
    except subprocess.TimeoutExpired:
        raise ChildFailedError(f"no answer after {PATIENCE_S:.0f} s") from None
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise ChildFailedError(f"ended with {done.returncode}: {last_line(done.stderr)}")
    return lines[-1]


def last_line(said: str) -> str:
    """Return the last line that is not blank: of a traceback, the error."""
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
