"""A gate in the middle of a DataFrame's rows: a test does something while a job is half done."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
from pyspark import TaskContext
from pyspark.sql import Column, functions as fn

TIMEOUT_S = 120


class Gate:
    """Rows wait at it, in whatever process of Spark's they are, until a test opens it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)  # two processes may know the gate
        self.path = directory
        self._open = directory / "open"

    def before(self, row: int, value: Column, *, deadly: bool = False) -> Column:
        """Return *value*, a string with a number, which waits once the number is *row*.

        Behind a *deadly* gate the first attempt of a task is killed.
        """
        reached, opened = self._reached, self._open

        def pass_gate(text: str) -> str:
            if int(text) == row:
                context = TaskContext.get()
                assert context is not None
                here = opened.with_name(f"by-{os.getpid()}")
                here.write_text(str(os.getpid()), encoding="utf-8")
                here.rename(reached(context.attemptNumber()))
                wait_for(opened)
                if deadly and context.attemptNumber() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return text

        return fn.udf(pass_gate, "string", useArrow=False)(value)  # row by row, and without pandas

    def wait_until_reached(self, attempt: int = 0) -> None:
        """Return when that attempt of a task waits."""
        wait_for(self._reached(attempt))

    def process(self, attempt: int = 0) -> psutil.Process:
        """Return the process in which that attempt waits."""
        return psutil.Process(int(self._reached(attempt).read_text(encoding="utf-8")))

    def wait_until_open(self) -> None:
        """Wait, outside of a DataFrame."""
        self._reached(0).touch()
        wait_for(self._open)

    def open(self) -> None:
        """Let everything through from now on."""
        self._open.touch()

    def _reached(self, attempt: int) -> Path:
        return self.path / f"reached-by-{attempt}"


def wait_for(file: Path) -> None:
    """Wait until *file* is there."""
    deadline = time.monotonic() + TIMEOUT_S
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody made {file} in {TIMEOUT_S} s")
        time.sleep(0.02)
