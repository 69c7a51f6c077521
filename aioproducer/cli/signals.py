"""How a command hears that it is to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_ASK_FOR_THE_END: Final = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C, `kill`, and a terminal that was closed; not every system has the last one."""


@contextmanager
def on_signals(interrupt: Callable[[], object]) -> Iterator[None]:
    """Call *interrupt* in the event loop for each signal that asks the process to end."""
    loop = asyncio.get_running_loop()

    def ring(*_: object) -> None:
        loop.call_soon_threadsafe(interrupt)

    numbers = [getattr(signal, name) for name in _ASK_FOR_THE_END if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores
    before = {number: signal.signal(number, ring) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
