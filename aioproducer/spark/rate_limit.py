"""The rate limit of a job, `maxBytesPerSecond`, and the share of one task."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Final, NamedTuple

from aioproducer.errors import ConfigError
from aioproducer.spark.delivery import DeliveryError

MAX_BYTES_PER_SECOND: Final = "maxBytesPerSecond"
MAX_CONCURRENT_TASKS: Final = "maxConcurrentTasks"
OPTIONS: Final = (MAX_BYTES_PER_SECOND, MAX_CONCURRENT_TASKS)

CATCH_UP_S: Final = 1.0
"""Maximum delay in seconds that a task catches up: a stalled task then sends at most one second's bytes in a burst."""
PIECES_PER_S: Final = 4
"""Minimum number of pieces in a second's bytes: larger pieces would reach the brokers in bursts."""


class RateLimit(NamedTuple):
    """The rate limit of a job, which the driver passes to the tasks."""

    bytes_per_s: int
    tasks: int
    """Number of tasks that share the limit."""
    host: str | None = None
    """The driver's host, if *tasks* is the number of the host's cores; None if the user has given *tasks*."""

    def of_task(self) -> float:
        """Return the bytes per second of one task. Raises: ConfigError: the task runs on another host than the driver."""
        if self.host is not None and self.host != socket.gethostname():
            raise ConfigError(
                f"{MAX_BYTES_PER_SECOND}: this task runs on another host than the driver, so the number of tasks"
                f" that share the limit is unknown; set {MAX_CONCURRENT_TASKS} to the number of tasks that Spark"
                " runs at a time: executors × cores of each, or the number of partitions if that is smaller"
            )
        return self.bytes_per_s / self.tasks


class RateLimiter:
    """A clock of bytes, which delays each append until the bytes fit into the rate.

    A task waits for the duration of bytes before their append: *n* bytes take at least *n* / *bytes_per_s* seconds, even
    in a task that sends a single piece.
    """

    def __init__(
        self,
        bytes_per_s: float,
        *,
        within_s: float = inf,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """*within_s* is the maximum duration of the task's transaction."""
        self._bytes_per_s = bytes_per_s
        self._within_s = within_s
        self._read = self._waited = 0
        self._clock = clock
        self._sleep = sleep
        self._due = clock()
        self.piece_bytes: Final = max(int(bytes_per_s / PIECES_PER_S), 1)
        """Maximum size of a piece in bytes; a piece of one row may be larger."""

    def expect(self, size: int) -> None:
        """Count *size* more bytes that the task will append.

        Raises: DeliveryError: the bytes counted so far take longer than the task's transaction may last.
        """
        self._read += size
        if self._read > self._bytes_per_s * self._within_s:
            raise DeliveryError(
                f"{MAX_BYTES_PER_SECOND}: this task has {self._read:,} bytes or more, which take"
                f" {self._read / self._bytes_per_s:,.0f} s at its share of {self._bytes_per_s:,.0f} bytes per second, and its"
                f" transaction may last {self._within_s:,.0f} s (of kafka.transaction.timeout.ms); raise"
                f" {MAX_BYTES_PER_SECOND}, or write smaller batches or more tasks"
            )

    def wait(self, size: int) -> None:
        """Block the calling thread until *size* bytes may be appended.

        Raises: the DeliveryError of `expect`, for bytes that `expect` has not counted.
        """
        self._waited += size
        if self._waited > self._read:
            self.expect(self._waited - self._read)
        self._due = max(self._due, self._clock() - CATCH_UP_S) + size / self._bytes_per_s
        while (delay_s := self._due - self._clock()) > 0:
            self._sleep(delay_s)


def rate_limit(options: Mapping[str, str]) -> RateLimit | None:
    """Return the limit in *options*, a mapping of names to values; None without a limit. Raises: ConfigError."""
    numbers = {name: _positive(name, options[name]) for name in OPTIONS if name in options}
    if MAX_BYTES_PER_SECOND not in numbers:
        if numbers:
            raise ConfigError(f"{MAX_CONCURRENT_TASKS} has no effect without {MAX_BYTES_PER_SECOND}")
        return None
    tasks = numbers.get(MAX_CONCURRENT_TASKS)
    if tasks is None:
        return RateLimit(numbers[MAX_BYTES_PER_SECOND], _cores(), socket.gethostname())
    return RateLimit(numbers[MAX_BYTES_PER_SECOND], tasks)


def _positive(name: str, value: str) -> int:
    text = value.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 18 and int(text)):
        raise ConfigError(f"{name} = {value!r}: expected a positive whole number, such as 10000000")
    return int(text)


def _cores() -> int:
    """Return the number of cores that this process may use: the number of tasks that `local[*]` runs at a time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
