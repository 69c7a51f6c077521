"""A fair (FIFO) lock for appending to a topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Generic, TypeVar

T = TypeVar("T")

_by_number = attrgetter("number")


class Ticket(Generic[T]):
    """A call's number in the line. It may step aside, and come back in front of those that came after it."""

    __slots__ = ("attempt", "number", "served")

    def __init__(self, number: int, attempt: Callable[[], T | None]) -> None:
        self.number: int = number
        self.attempt: Callable[[], T | None] = attempt
        self.served: asyncio.Future[T | None] | None = None
        """Done once it need not wait any more; None while it does not wait in line."""


class AppendLock(Generic[T]):
    """A fair lock whose holder, on release, does what it can for those behind it.

    An `asyncio.Lock` wakes one waiter per iteration of the event loop. A few hundred tasks that had to wait once,
    for metadata at the start, would then stay in line for good: each comes back before the last one is served.
    """

    __slots__ = ("_held", "_last_number", "_waiters", "calls")

    def __init__(self) -> None:
        self.calls: int = 0
        """How many calls hold it or wait for it."""
        self._held = False
        self._last_number = 0
        self._waiters: deque[Ticket[T]] = deque()

    def ticket(self, attempt: Callable[[], T | None]) -> Ticket[T]:
        """Return the ticket of a call that comes now, for `acquire`.

        Whoever leaves may make its *attempt* for it, which must not wait.
        """
        self._last_number += 1
        return Ticket(self._last_number, attempt)

    async def acquire(self, ticket: Ticket[T], deadline: float) -> T | None:
        """Wait for the lock, and return None: `release` has to be called then.

        Or return what our attempt returned, if somebody made it for us and it was not None: then
        we do not hold the lock, and need not. What the attempt raised, this raises.

        Raises: TimeoutError once the loop's clock passes *deadline*. Late or cancelled, we are in line no more.
        """
        loop = asyncio.get_running_loop()
        if ticket.served is None:
            self.calls += 1
            if not self._held:
                self._held = True
                return None
            ticket.served = loop.create_future()
            self._waiters.append(ticket)
        timer = loop.call_at(deadline, _give_up, ticket.served)
        try:
            return await ticket.served
        except BaseException:
            self.withdraw(ticket)
            raise
        finally:
            timer.cancel()
            ticket.served = None

    def readmit(self, tickets: Iterable[Ticket[T]]) -> None:
        """Put calls that stepped aside back in line, where their numbers belong; `acquire` waits for the lock as usual."""
        loop = asyncio.get_running_loop()
        for ticket in tickets:
            self.calls += 1
            ticket.served = loop.create_future()
            self._waiters.append(ticket)
        self._waiters = deque(sorted(self._waiters, key=_by_number))
        if not self._held:
            self._held = True
            self._serve()

    def is_first(self, ticket: Ticket[T]) -> bool:
        """Whether nobody waits who came before *ticket*: one that stepped aside may be back since."""
        waiting = (each for each in self._waiters if each.served is not None and not each.served.done())
        return all(each.number > ticket.number for each in waiting)

    def withdraw(self, ticket: Ticket[T]) -> None:
        """Forget *ticket*, whose call has ended; if it holds the lock by now, release it."""
        served = ticket.served
        if served is None:
            return
        if served.cancel() or served.cancelled() or served.exception() is not None:
            self.calls -= 1
        elif served.result() is None:  # granted in the moment in which we were cancelled
            self.release()

    def release(self) -> None:
        """Give the lock up: make the attempts of those who wait, until one has to hold it itself."""
        self.calls -= 1
        self._serve()

    def _serve(self) -> None:
        while self._waiters:
            ticket = self._waiters.popleft()
            served = ticket.served
            if served is None or served.done():  # cancelled, or late
                continue
            try:
                outcome = ticket.attempt()
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
            self.calls -= 1
        self._held = False


def _give_up(served: asyncio.Future[T | None]) -> None:
    if not served.done():
        served.set_exception(TimeoutError())
