"""One broker process: its properties file, its log, its life and its certain end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar

LOG_FORMAT = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.showShortLogName=true",
)


class BrokerFailed(RuntimeError):
    """A broker process did not do what it was told; the message ends with the tail of its log."""


class Node:
    """A broker that can be formatted once, then started and ended any number of times, on one port and directory."""

    MAIN: ClassVar = "kafka.Kafka"
    STARTED: ClassVar = re.compile(r"Kafka Server started|\[Kafka ?Server (id=)?\d+\],? started")
    """Log line of a broker that serves: with KRaft, and with ZooKeeper before and since Kafka 1.0."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        java: Sequence[str | Path],
        properties: Mapping[str, str | int],
    ) -> None:
        self.node_id = node_id
        self.log_path = directory / f"node-{node_id}.log"
        self.data_path = directory / f"node-{node_id}"
        self.java = java
        self._properties_path = directory / f"node-{node_id}.properties"
        self.configure(properties)
        self._process: subprocess.Popen[str] | None = None

    def configure(self, properties: Mapping[str, str | int]) -> None:
        """Write the properties for the next start."""
        lines = (f"{name}={value}\n" for name, value in {"log.dirs": self.data_path, **properties}.items())
        self._properties_path.write_text("".join(lines), encoding="utf-8")

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def format(self, cluster_id: str, *, standalone: bool, options: Sequence[str] = ()) -> None:
        """Prepare the log directory (about a second); *standalone* for the one node that is the controller."""
        command = [*self.java, "kafka.tools.StorageTool", "format"]
        command += [f"--cluster-id={cluster_id}", "--config", self._properties_path]
        command += ["--standalone"] if standalone else []
        command += options
        done = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.log_path.write_text(done.stdout, encoding="utf-8")
        if done.returncode != 0:
            raise self._failure("could not be formatted")

    def start(self) -> None:
        """Start the process; `wait_started` tells when it serves."""
        if self.running:
            raise BrokerFailed(f"broker {self.node_id} is running already")
        self._started: Future[None] = Future()
        self._process = subprocess.Popen(
            [*self.java, *LOG_FORMAT, self.MAIN, self._properties_path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a Ctrl-C is for the tests; they end their brokers in their own order
        )
        self._guard = end_with_us(self._process.pid)
        self._reader = threading.Thread(target=self._follow, args=[self._process], daemon=True)
        self._reader.start()

    def wait_started(self, deadline: float) -> None:
        """Wait until the broker serves, at most until *deadline* (`time.monotonic`).

        Raises:
            BrokerFailed: it ended, or the deadline passed.
        """
        try:
            self._started.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise self._failure("did not start in time") from None
        except EOFError:
            raise self._failure("ended while starting") from None

    def end(self, how: signal.Signals, timeout_s: float = 30) -> None:
        """End the process: SIGTERM lets it hand over its partitions, SIGKILL does not. Nothing if it is not running."""
        if self._process is None:
            return
        if self.running:
            os.killpg(self._process.pid, how)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise self._failure(f"did not end within {timeout_s:.0f} s of {how.name}; killed") from None
        finally:
            self._guard.kill()
            self._guard.communicate()
            self._reader.join()
            self._process = None

    def signal(self, which: signal.Signals) -> None:
        """Send the process a signal that does not end it."""
        if self._process is None:
            raise BrokerFailed(f"broker {self.node_id} is not running")
        os.killpg(self._process.pid, which)

    def log_tail(self, lines: int) -> str:
        """Return the last *lines* lines of the log."""
        if not self.log_path.exists():
            return ""
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _follow(self, process: subprocess.Popen[str]) -> None:
        """Copy what the broker says into its log file (a thread); notice that it serves, or that it ended first."""
        assert process.stdout is not None
        with process.stdout as said, self.log_path.open("a", encoding="utf-8", buffering=1) as log:
            for line in said:
                log.write(line)
                if self.STARTED.search(line) and not self._started.done():
                    self._started.set_result(None)
        if not self._started.done():
            self._started.set_exception(EOFError())

    def _failure(self, what: str) -> BrokerFailed:
        return BrokerFailed(f"broker {self.node_id} {what}; its log ends with:\n{self.log_tail(40)}")


def end_with_us(pid: int) -> subprocess.Popen[bytes]:
    """Start a guard that kills process group *pid* once this process is gone, however it went (SIGKILL included).

    The guard waits for the end of its standard input, which the kernel closes with us.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -9 "-$1"', "guard", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
