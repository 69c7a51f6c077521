"""Whose turn it is to append to a topic: first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Generic, TypeVar

T = TypeVar("T")

_by_number = attrgetter("number")


class Place(Generic[T]):
    """Where a call stands. It may step aside, and be let in again in front of those that came after it."""

    __slots__ = ("attempt", "number", "served")

    def __init__(self, number: int, attempt: Callable[[], T | None]) -> None:
        self.number: int = number
        self.attempt: Callable[[], T | None] = attempt
        self.served: asyncio.Future[T | None] | None = None
        """Done once it need not wait any more; None while it does not wait in line."""


class Line(Generic[T]):
    """A fair lock whose holder, when it leaves, does what it can for those behind it.

    An `asyncio.Lock` wakes one waiter per turn of the event loop. A few hundred tasks that had to wait once,
    for metadata at the start, would then stay in line for good: each comes back before the last one is served.
    """

    __slots__ = ("_held", "_last_number", "_waiters", "length")

    def __init__(self) -> None:
        self.length: int = 0
        """How many calls are in line, the one whose turn it is included."""
        self._held = False
        self._last_number = 0
        self._waiters: deque[Place[T]] = deque()

    def place(self, attempt: Callable[[], T | None]) -> Place[T]:
        """Return the place of a call that comes now, for `enter`.

        Whoever leaves may make its *attempt* for it, which must not wait.
        """
        self._last_number += 1
        return Place(self._last_number, attempt)

    async def enter(self, place: Place[T], deadline: float) -> T | None:
        """Wait until it is our turn, and return None: `leave` has to be called then.

        Or return what our attempt returned, if somebody made it for us and it was not None: then
        it is not our turn, and need not be. What the attempt raised, this raises.

        Raises: TimeoutError once the loop's clock passes *deadline*. Late or cancelled, we are in line no more.
        """
        loop = asyncio.get_running_loop()
        if place.served is None:
            self.length += 1
            if not self._held:
                self._held = True
                return None
            place.served = loop.create_future()
            self._waiters.append(place)
        timer = loop.call_at(deadline, _give_up, place.served)
        try:
            return await place.served
        except BaseException:
            self.withdraw(place)
            raise
        finally:
            timer.cancel()
            place.served = None

    def let_in(self, places: Iterable[Place[T]]) -> None:
        """Put calls that stepped aside back in line, where they would stand; `enter` waits for their turn as usual."""
        loop = asyncio.get_running_loop()
        for place in places:
            self.length += 1
            place.served = loop.create_future()
            self._waiters.append(place)
        self._waiters = deque(sorted(self._waiters, key=_by_number))
        if not self._held:
            self._held = True
            self._serve()

    def comes_first(self, place: Place[T]) -> bool:
        """Whether nobody waits who came before *place*: one that stepped aside may have been let in since."""
        waiting = (each for each in self._waiters if each.served is not None and not each.served.done())
        return all(each.number > place.number for each in waiting)

    def withdraw(self, place: Place[T]) -> None:
        """Forget *place*, whose call has ended; if it is its turn by now, that ends, too."""
        served = place.served
        if served is None:
            return
        if served.cancel() or served.cancelled() or served.exception() is not None:
            self.length -= 1
        elif served.result() is None:  # our turn came in the moment in which we were cancelled
            self.leave()

    def leave(self) -> None:
        """End our turn: make the attempts of those who wait, until one has to have its turn itself."""
        self.length -= 1
        self._serve()

    def _serve(self) -> None:
        while self._waiters:
            place = self._waiters.popleft()
            served = place.served
            if served is None or served.done():  # cancelled, or late
                continue
            try:
                outcome = place.attempt()
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
