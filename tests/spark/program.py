"""Programs that a test starts beside its own Spark: drivers, and the daemons of a cluster."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import psutil

from tests.kafka.apache.node import end_with_us
from tests.spark.log import SparkLog
from tests.spark.session import CORES, TASK_ATTEMPTS, environment, settings

ROOT = Path(__file__).parents[2]
LOCAL = f"local[{CORES},{TASK_ATTEMPTS}]"


class ProgramFailed(RuntimeError):
    """A program failed or timed out; the message ends with its output."""


class Program:
    """A running program with its output in a file. It is killed at the end of the `with` block or of this process."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        with log.open("ab") as out:
            self.log = SparkLog(log)
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # one group for it and its JVM
            )
        self._guard = end_with_us(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"{self.log.path} has:\n{self.log.text()}")
        self.kill()
        self._guard.kill()
        self._guard.communicate()

    def kill(self) -> None:
        """Kill the program and its JVM (SIGKILL). Processes started by the JVM have to notice its end."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, timeout_s: float = 90) -> None:
        """Wait for its good end.

        Raises:
            ProgramFailed: it ended with another code than 0, or not in time.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"it still runs after {timeout_s:.0f} s") from None
        if code != 0:
            raise ProgramFailed(f"it ended with {code}")

    def descendants(self) -> list[psutil.Process]:
        """Return the processes that it has started, and they."""
        return psutil.Process(self._process.pid).children(recursive=True)


def driver(
    script: Path,
    *arguments: object,
    directory: Path,
    master: str = LOCAL,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Program:
    """Start a Python script that makes its own Spark session, as `spark-submit` would; *more* are settings of Spark."""
    directory.mkdir()
    variables = submit_environment(directory, master, more)
    return Program([sys.executable, str(script), *map(str, arguments)], directory / "driver.log", variables)


def submit_environment(
    directory: Path, master: str = LOCAL, more: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the environment of such a script; *directory* is for files of Spark."""
    options = [f"--conf={name}={value}" for name, value in {**settings(directory), **more}.items()]
    return environment(directory) | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_SUBMIT_ARGS": shlex.join([f"--master={master}", *options, "pyspark-shell"]),
    }
