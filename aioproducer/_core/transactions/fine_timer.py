"""A timer that counts in microseconds: event loops wait for whole milliseconds, and the next one at that."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Final

CLOCK_MONOTONIC: Final = 1
NS: Final = 1_000_000_000


class _Timerspec(ctypes.Structure):
    """`struct itimerspec` of timerfd_settime(2)."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class FineTimer:
    """Calls back once, some time after each `start`: by Linux's timerfd, else by the event loop's own timers.

    Python has timerfd from 3.13 on, C libraries have long had it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._libc: ctypes.CDLL
        self._closing: weakref.finalize[[int], FineTimer]
        self._descriptor = -1
        # A loop that keeps a time of its own, as in tests, has timers of its own.
        if sys.platform == "linux" and abs(loop.time() - time.monotonic()) < 1:
            self._libc = ctypes.CDLL(None)
            self._descriptor = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor >= 0:
            self._closing = weakref.finalize(
                self, os.close, self._descriptor
            )  # a loop may end without a `close`
            loop.add_reader(self._descriptor, self._expired)

    def start(self, delay_s: float) -> None:
        """Call back in *delay_s* seconds, and not when an earlier start has said."""
        if self._descriptor >= 0:
            seconds, ns = divmod(max(1, round(delay_s * NS)), NS)  # 0 would stop it
            self._libc.timerfd_settime(self._descriptor, 0, ctypes.byref(_Timerspec(0, 0, seconds, ns)), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(delay_s, self._callback)

    def close(self) -> None:
        """Call back no more. Twice is fine."""
        if self._handle is not None:
            self._handle.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._closing()
            self._descriptor = -1

    def _expired(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:  # started again since the loop has seen it expire
            return
        self._callback()
