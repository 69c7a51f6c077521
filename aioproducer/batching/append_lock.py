"""A fair lock for appending to a topic, and the tickets of those who wait for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Generic, TypeVar

from aioproducer.errors import ProducerError

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

    __slots__ = ("_holder", "_last_number", "_line", "held")

    def __init__(self) -> None:
        self.held: bool = False
        """Whether a call has it; if none has, none waits for it."""
        self._holder: Ticket[T] | None = None
        self._last_number = 0
        self._line: OrderedDict[Ticket[T], asyncio.Future[T | None]] = OrderedDict()
        """Who waits for it: a ticket, and its `served`. Whoever gives up leaves the middle of it."""

    @property
    def calls(self) -> int:
        """How many calls hold it or wait for it."""
        return self.held + len(self._line)

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
        if ticket.served is None and not self.held:
            self._holder = ticket
            self.held = True
            return None
        served = ticket.served = ticket.served or self._line_up(ticket)
        timer = asyncio.get_running_loop().call_at(deadline, self._give_up, ticket, served)
        try:
            return await served
        except BaseException:
            self.withdraw(ticket)
            raise
        finally:
            timer.cancel()
            ticket.served = None

    def readmit(self, tickets: Iterable[Ticket[T]]) -> None:
        """Put calls that stepped aside back in line, where their numbers belong; `acquire` waits for the lock as usual."""
        for ticket in tickets:
            ticket.served = self._line_up(ticket)
        for ticket in sorted(self._line, key=_by_number):
            self._line.move_to_end(ticket)
        if not self.held:
            self.held = True
            self.release()

    def is_first(self, ticket: Ticket[T]) -> bool:
        """Whether nobody waits who came before *ticket*: one that stepped aside may be back since."""
        return all(each.number > ticket.number for each, served in self._line.items() if not served.done())

    def withdraw(self, ticket: Ticket[T]) -> None:
        """Drop *ticket* of an ended call, and release the lock if *ticket* holds it. May be called repeatedly."""
        self._line.pop(ticket, None)
        is_orphan = self.held and self._holder is None  # an exception interrupted `readmit`
        if self._holder is ticket or is_orphan:
            self.release()

    def release(self) -> None:
        """Release the lock: make the attempts of waiting calls until one has to hold the lock itself.

        An exception of a signal handler leaves all calls in the queue; a repeated call continues with the first one.
        """
        before, self._holder = self._holder, None
        if before is not None and before in self._line and self._line[before].done():
            del self._line[before]  # granted by a call that was interrupted directly afterwards
        while self._line:
            ticket, served = next(iter(self._line.items()))
            try:
                if not served.done():  # else it was cancelled, or this was interrupted
                    served.set_result(ticket.attempt())
            except asyncio.CancelledError:  # raised by user code, because this code awaits nothing
                served.cancel()
            except (ProducerError, ValueError) as error:
                served.set_exception(error)
            except BaseException:  # perhaps of a signal handler: the call makes its attempt itself
                if not served.done():
                    served.set_result(None)
                raise
            is_granted = not served.cancelled() and served.exception() is None and served.result() is None
            if is_granted:
                self._holder = ticket
            self._line.pop(ticket, None)
            if is_granted:
                return
        self.held = False

    def _line_up(self, ticket: Ticket[T]) -> asyncio.Future[T | None]:
        served = self._line[ticket] = asyncio.get_running_loop().create_future()
        return served

    def _give_up(self, ticket: Ticket[T], served: asyncio.Future[T | None]) -> None:
        if not served.done():
            del self._line[ticket]
            served.set_exception(TimeoutError())
