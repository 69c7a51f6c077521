"""Whose turn it is to append to a topic: first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Line(Generic[T]):
    """A fair lock whose holder, when it leaves, does what it can for those behind it.

    An `asyncio.Lock` wakes one waiter per turn of the event loop. A few hundred tasks that had to wait once,
    for metadata at the start, would then stay in line for good: each comes back before the last one is served.
    """

    __slots__ = ("_held", "_waiters", "length")

    def __init__(self) -> None:
        self.length: int = 0
        """How many calls are in line, the one whose turn it is included."""
        self._held = False
        self._waiters: deque[tuple[asyncio.Future[T | None], Callable[[], T | None]]] = deque()

    async def enter(self, deadline: float, attempt: Callable[[], T | None]) -> T | None:
        """Wait until it is our turn, and return None: `leave` has to be called then.

        Or return what *attempt* returned, if somebody who left made it for us and it was not None: then
        it is not our turn, and need not be. It must not wait; what it raises, this raises.

        Raises: TimeoutError once the loop's clock passes *deadline*. Late or cancelled, we are in line no more.
        """
        self.length += 1
        if not self._held:
            self._held = True
            return None
        loop = asyncio.get_running_loop()
        served: asyncio.Future[T | None] = loop.create_future()
        self._waiters.append((served, attempt))
        timer = loop.call_at(deadline, _give_up, served)
        try:
            return await served
        except BaseException:
            if served.cancelled() or served.exception() is not None:
                self.length -= 1
            elif served.result() is None:  # our turn came in the moment in which we were cancelled
                self.leave()
            raise
        finally:
            timer.cancel()

    def leave(self) -> None:
        """End our turn: make the attempts of those who wait, until one has to have its turn itself."""
        self.length -= 1
        while self._waiters:
            served, attempt = self._waiters.popleft()
            if served.done():  # cancelled, or late
                continue
            try:
                outcome = attempt()
            except (
                asyncio.CancelledError
            ):  # raised by a user's code, not by a cancellation: nothing waits here
                served.cancel()
                continue
            except BaseException as error:  # noqa: BLE001 - it is the waiter's, whatever it is, and not ours
                served.set_exception(error)
                continue
            served.set_result(outcome)
            if outcome is None:
                return
            self.length -= 1
        self._held = False


def _give_up(served: asyncio.Future[T | None]) -> None:
    if not served.done():
        served.set_exception(TimeoutError())
