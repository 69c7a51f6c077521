"""A process that can start no thread, for a while."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from unittest import mock

from aioproducer._core.net import in_flight
from aioproducer._core.sender import requests


def refuse(_: object) -> None:
    """Stand in for `Thread.start`. Raises: RuntimeError."""
    raise RuntimeError("can't start new thread")


def threads_are_short() -> bool:
    """Return True during `no_threads`."""
    return threading.Thread.start is refuse


async def no_threads(s: float) -> None:
    """Let no thread start for *s* seconds, in which all compression and metadata would go to a thread."""
    if threads_are_short():
        return
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(threading.Thread, "start", refuse))
        stack.enter_context(mock.patch.object(requests, "COMPRESS_OFF_LOOP_BYTES", 1))
        stack.enter_context(mock.patch.object(in_flight, "DECODE_OFF_LOOP_BYTES", 1))
        await asyncio.sleep(s)
