"""What every test needs."""

from __future__ import annotations

import asyncio.constants
import signal
import traceback

FRAMES = 1
"""More of them tell more of a task that was left pending: for a while, where one is looked for."""


def pytest_configure() -> None:
    """Let Ctrl-C mean something: a shell has programs in the background ignore it, and those that they start.

    And let asyncio, which is being debugged, remember one frame of who made a Future or asked to be called, not all of
    pytest's: that took more time than all that is tested, and four of them still as much.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    traceback.extract_stack.__defaults__ = (None, FRAMES)
    asyncio.constants.DEBUG_STACK_DEPTH = FRAMES  # type: ignore[misc]
