"""`send_many` calls that append in order, for callers that split a long column into several calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aioproducer.batching.append_lock import AppendLock, QueuedCall
from aioproducer.errors import BufferTimeout


class Convoy:
    """Ordered calls: each appends its records after all records of the earlier calls.

    Chunks of calls outside the convoy may come in between. Calls for different topics do not wait for each other.
    """

    def __init__(self) -> None:
        self._locks: dict[str, AppendLock] = {}

    @asynccontextmanager
    async def in_order(self, topic: str, deadline: float) -> AsyncIterator[None]:
        """Wait for the earlier calls, at most until *deadline* (loop clock). Raises: BufferTimeout."""
        lock = self._locks.setdefault(topic, AppendLock())
        try:
            await self._enter(lock, topic, deadline)
            try:
                yield
            finally:
                lock.release()
        finally:
            # Another call may have put one of its own in its place, before we noticed that our time was up.
            if not lock.held and self._locks.get(topic) is lock:
                del self._locks[topic]

    async def passed(self, topic: str) -> None:
        """Wait until the present calls for *topic* have appended their records or failed."""
        async with self.in_order(topic, math.inf):
            pass

    @staticmethod
    async def _enter(lock: AppendLock, topic: str, deadline: float) -> None:
        began_at = asyncio.get_running_loop().time()
        try:
            await lock.acquire(QueuedCall(), deadline)
        except TimeoutError:
            waited_s = asyncio.get_running_loop().time() - began_at
            raise BufferTimeout(
                f"waited {waited_s:.3f} s for the records of an earlier call for {topic!r} to be appended;"
                " max_block_ms or the call's timeout_s ran out"
            ) from None
