"""Points in the life of a batch at which a test kills, holds, freezes or fails a process."""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

from tests.spark.gate import wait_for

VARIABLE: Final = "AIOPRODUCER_TEST_PROBE"
"""Environment variable with the directory of the probe."""


class Act(StrEnum):
    """Action at a point, taken once."""

    KILL = "kill"
    """Kill the process at the point."""
    HOLD = "hold"
    """Let the process wait until it is released or killed with all other processes."""
    FAIL = "fail"
    """Raise."""
    FREEZE = "freeze"
    """Stop the process (SIGSTOP) in its own session, so that it survives its JVM."""


class Probe:
    """Actions at points, stored as files in a directory that every process can read."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory

    def set(self, point: str, act: Act) -> None:
        """Let *act* happen when the first process comes to *point*."""
        (self.directory / f"{point}.set").write_text(act, encoding="utf-8")

    def wait_until_reached(self, point: str) -> None:
        """Return when a process has reached *point*."""
        wait_for(self.directory / f"{point}.reached")

    def frozen(self, point: str) -> psutil.Process:
        """Return the process that is frozen at *point*, or is about to be."""
        (claimed,) = self.directory.glob(f"{point}.[0-9]*")
        return psutil.Process(int(claimed.suffix[1:]))

    def wait_until_thawed(self, point: str) -> None:
        """Return when the process frozen at *point* continues."""
        wait_for(self.directory / f"{point}.thawed")

    def release(self, point: str) -> None:
        """Release the process held at *point*."""
        (self.directory / f"{point}.released").touch()

    def reached(self, point: str) -> bool:
        """True if a process has reached *point*."""
        return (self.directory / f"{point}.reached").exists()

    def pass_by(self, point: str) -> None:
        """Be at *point*."""
        claimed = self.directory / f"{point}.{os.getpid()}"
        try:
            (self.directory / f"{point}.set").rename(claimed)  # one process gets it
        except FileNotFoundError:
            return
        act = claimed.read_text(encoding="utf-8")
        (self.directory / f"{point}.reached").touch()
        if act == Act.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if act == Act.FAIL:
            raise RuntimeError(f"the test lets it fail at {point}")
        if act == Act.FREEZE:
            os.setsid()
            os.kill(os.getpid(), signal.SIGSTOP)
            (self.directory / f"{point}.thawed").touch()
            return
        wait_for(self.directory / f"{point}.released")


def at(point: str) -> None:
    """Be at *point*, if there is a test that has a probe."""
    directory = os.environ.get(VARIABLE)
    if directory is not None:
        Probe(Path(directory)).pass_by(point)
