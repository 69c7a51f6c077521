"""What every test needs."""

from __future__ import annotations

import signal
import traceback

FRAMES = 4


def pytest_configure() -> None:
    """Let Ctrl-C mean something: a shell has programs in the background ignore it, and those that they start.

    And let asyncio, which is being debugged, remember a few frames of who made a Future, not all of pytest's: that
    took more time than all that is tested.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    traceback.extract_stack.__defaults__ = (None, FRAMES)
