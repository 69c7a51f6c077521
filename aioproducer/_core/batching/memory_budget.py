"""Memory budget of queued and in-flight records (`buffer_memory`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from aioproducer._core.append_fields import MemoryFields
from aioproducer.errors import ProducerError


class MemoryBudget(MemoryFields):
    """Memory budget in bytes. Calls that wait for memory are served in their order.

    `free` and `waiters` are public: while no call waits, the append path charges the budget without a call.
    """

    __slots__ = ("granted", "limit", "waited_s")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.free: int = limit
        self.waited_s: float = 0.0
        """Total time of all finished waits, in seconds."""
        self.granted: dict[object, int] = {}
        """Bytes granted and not used yet, per owner."""
        self.waiters: deque[tuple[int, asyncio.Future[None], object]] = deque()

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self.limit - self.free

    async def take(self, size: int, deadline: float, owner: object = None) -> None:
        """Take *size* bytes for *owner* after all earlier calls have their bytes; `use` follows.

        Bytes granted to a cancelled or expired call are passed to the next waiter.

        Raises: TimeoutError once the loop's clock passes *deadline*.
        """
        owner = object() if owner is None else owner
        if not self.waiters and size <= self.free:
            self.granted[owner] = size
            self.free -= size
            return
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        granted = loop.create_future()
        waiter = (size, granted, owner)
        self.waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await granted
        except BaseException:
            self.granted.pop(owner, None)
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.give_back(size)
            else:
                with contextlib.suppress(ValueError):  # _serve() may have passed over it already
                    self.waiters.remove(waiter)
                self._serve()  # a large request that leaves may have blocked small ones
            raise
        finally:
            self.waited_s += loop.time() - began_at

    def use(self, owner: object) -> int:
        """Return the bytes taken for *owner*, which it appends with or gives back now."""
        return self.granted.pop(owner, 0)

    def forget(self, owner: object) -> None:
        """Drop the bytes that the interrupted *owner* waits for or was granted. The caller recomputes `free`."""
        self.granted.pop(owner, None)
        self.waiters = deque(each for each in self.waiters if each[2] is not owner)

    def give_back(self, size: int) -> None:
        """Return *size* bytes, and grant memory to waiting calls."""
        self.free += size
        if self.waiters:
            self._serve()

    def fail_waiters(self, error: Callable[[], ProducerError]) -> None:
        """Fail all waiting calls, each with its own instance from *error*."""
        waiters, self.waiters = self.waiters, deque()
        for _, granted, _ in waiters:
            if not granted.done():
                granted.set_exception(error())

    def _serve(self) -> None:
        while self.waiters:
            size, granted, owner = self.waiters[0]
            if size > self.free:
                return
            if not granted.done():  # a cancelled call returns its bytes itself
                if owner not in self.granted:  # else an exception interrupted this call before
                    self.granted[owner] = size
                    self.free -= size
                granted.set_result(None)
            self.waiters.popleft()
