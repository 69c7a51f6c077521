"""Settings of every run of the tests."""

from __future__ import annotations

import asyncio.constants
import gc
import signal
import traceback

FRAMES = 1
"""Frames per call in asyncio's debug output. Raise the number while you look for the origin of a pending task."""


def pytest_configure() -> None:
    """Restore SIGINT, and limit the frames that asyncio's debug mode records.

    A shell ignores SIGINT in background processes, and the processes that they start inherit this. asyncio's debug mode
    records all frames of pytest for each Future and callback, which takes longer than the tests.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    traceback.extract_stack.__defaults__ = (None, FRAMES)
    asyncio.constants.DEBUG_STACK_DEPTH = FRAMES  # type: ignore[misc]


def pytest_collection_finish() -> None:
    """Exclude modules and collected tests from garbage collections: a full collection took 0.3 s with them."""
    gc.collect()
    gc.freeze()
