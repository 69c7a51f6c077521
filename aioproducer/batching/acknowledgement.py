"""What `send` awaits: one record's outcome, at the price of less than a Future."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextvars import Context
from itertools import repeat
from typing import Any, ClassVar, TypeAlias

from aioproducer.types import RecordMetadata

Herald: TypeAlias = "Acknowledgement | asyncio.Future[None]"
"""What a task is woken with: something that is done, and whose `result()` raises if the task is to."""


class Acknowledgement:
    """A Future for exactly one task, which awaits it as soon as it is made.

    A Future that is resolved asks the event loop for a handle, which asyncio makes and runs in Python: with
    hundreds of tasks that each await one record, that is a quarter of all they cost. These are resolved by the
    batch, and one handle wakes all their tasks (`resolve`), in the order of the records, as theirs would.

    It has what a task asks of anything that it waits for (`asyncio.isfuture` knows it by the first slot),
    and no more: no callbacks for others, no exception that nobody retrieved. There is no `__init__`, since
    that would cost as much as all the rest.
    """

    __slots__ = ("_asyncio_future_blocking", "context", "outcome", "wakeup")

    outcome: RecordMetadata | BaseException
    """The record's metadata, or the exception to raise; unset until there is one."""
    wakeup: Callable[[Herald], object] | None
    """Lets the task go on, in its `context`; None before it waits, and once it is cancelled."""
    context: Context
    _loop: ClassVar[asyncio.AbstractEventLoop]
    """Of the task; a class for each event loop (`acknowledgement_on`) saves every record an attribute."""

    def __await__(self) -> Generator[Acknowledgement, None, RecordMetadata]:
        self.wakeup = None
        self._asyncio_future_blocking = True
        yield self
        return self.outcome  # type: ignore[return-value] # the task has asked for `result`: it is no exception

    def add_done_callback(self, wakeup: Callable[[Herald], object], *, context: Context) -> None:
        """Note how to wake the task that awaits it."""
        self.wakeup, self.context = wakeup, context

    def result(self) -> RecordMetadata:
        """Return where the record is, or raise its error."""
        outcome = self.outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def cancel(self, msg: Any = None) -> bool:
        """End the waiting, as `asyncio.Future.cancel` does; the record goes on."""
        wakeup = self.wakeup
        if wakeup is None or hasattr(self, "outcome"):
            return False
        self.wakeup = None
        self.outcome = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        asyncio.get_running_loop().call_soon(wakeup, self, context=self.context)
        return True


def acknowledgement_on(loop: asyncio.AbstractEventLoop) -> type[Acknowledgement]:
    """Return the kind for tasks of *loop*."""
    return type("Acknowledgement", (Acknowledgement,), {"__slots__": (), "_loop": loop})


def resolve(waiters: Sequence[Acknowledgement], metadata: Iterable[RecordMetadata]) -> None:
    """Tell each of *waiters* where its record is; their tasks go on in the next iteration of the event loop.

    A task only asks what wakes it whether to raise. So one Future that is done wakes all of them, which a task
    asks in C.
    """
    _set_outcomes(waiters, metadata)
    herald = asyncio.get_running_loop().create_future()
    herald.set_result(None)
    _wake_soon(zip(waiters, repeat(herald), strict=False))


def fail(waiters: Sequence[Acknowledgement], errors: Iterable[BaseException]) -> None:
    """Fail each of *waiters* with its error; their tasks go on in the next iteration of the event loop."""
    _set_outcomes(waiters, errors)
    _wake_soon(zip(waiters, waiters, strict=True))


def _set_outcomes(
    waiters: Sequence[Acknowledgement], outcomes: Iterable[RecordMetadata | BaseException]
) -> None:
    for waiter, outcome in zip(waiters, outcomes, strict=False):
        try:
            if waiter.wakeup is not None:  # else it was cancelled, and has its outcome
                waiter.outcome = outcome
        except AttributeError:  # Ctrl-C came between its append and its await: nobody waits
            waiter.wakeup = None


def _wake_soon(resolved: Iterator[tuple[Acknowledgement, Herald]]) -> None:
    asyncio.get_running_loop().call_soon(_wake, resolved)


def _wake(resolved: Iterator[tuple[Acknowledgement, Herald]]) -> None:
    try:
        for waiter, herald in resolved:
            if waiter.wakeup is not None:
                waiter.context.run(waiter.wakeup, herald)
    except BaseException:  # a task was interrupted: the others still go on, if the loop does
        _wake_soon(resolved)
        raise
