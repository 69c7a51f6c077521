"""`send_many` calls that append in order, for callers that split a long column into several calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aioproducer._core.batching.append_lock import AppendLock, QueuedCall
from aioproducer.errors import BufferTimeout


class Convoy:
    """Calls of one topic that append one after the other. Chunks of calls outside the convoy may come in between."""

    def __init__(self) -> None:
        self._locks: dict[str, AppendLock] = {}

    @asynccontextmanager
    async def in_order(self, topic: str, deadline: float) -> AsyncIterator[None]:
        """Wait for the earlier calls, at most until *deadline* (loop clock). Raises: BufferTimeout."""
        lock = self._locks.setdefault(topic, AppendLock())
        try:
            began_at = asyncio.get_running_loop().time()
            try:
                await lock.acquire(QueuedCall(), deadline)
            except TimeoutError:
                waited_s = asyncio.get_running_loop().time() - began_at
                raise BufferTimeout(
                    f"waited {waited_s:.3f} s for the records of an earlier call for {topic!r} to be appended;"
                    " max_block_ms or the call's timeout_s ran out"
                ) from None
            try:
                yield
            finally:
                lock.release()
        finally:
            # A later call may have created another lock since the deadline of this call.
            if not lock.held and self._locks.get(topic) is lock:
                del self._locks[topic]

    async def passed(self, topic: str) -> None:
        """Wait until the present calls for *topic* have appended their records or failed."""
        async with self.in_order(topic, math.inf):
            pass
