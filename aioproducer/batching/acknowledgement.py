"""What `send` awaits: one record's outcome, at the price of less than a Future."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import Context
from typing import Any

from aioproducer.types import RecordMetadata


class Acknowledgement:
    """A Future for exactly one task, which awaits it as soon as it is made.

    A Future that is resolved asks the event loop for a handle, which asyncio makes and runs in Python: with
    hundreds of tasks that each await one record, that is a quarter of all they cost. These are resolved by the
    batch, and one handle wakes all their tasks (`settle`), in the order of the records, as theirs would.

    It has what a task asks of anything that it waits for (`asyncio.isfuture` knows it by the first slot),
    and no more: no callbacks for others, no exception that nobody retrieved. There is no `__init__`, since
    that would cost as much as all the rest.
    """

    __slots__ = ("_asyncio_future_blocking", "context", "outcome", "wakeup")

    outcome: RecordMetadata | BaseException
    """The record's metadata, or the exception to raise; unset until there is one."""
    wakeup: Callable[[Acknowledgement], object] | None
    """Lets the task go on, in its `context`; None before it waits, and once it is cancelled."""
    context: Context

    get_loop = staticmethod(asyncio.get_running_loop)  # there is no other one that it could be awaited on

    def __await__(self) -> Generator[Acknowledgement, None, RecordMetadata]:
        self.wakeup = None
        self._asyncio_future_blocking = True
        yield self
        return self.outcome  # type: ignore[return-value] # the task has asked for `result`: it is no exception

    def add_done_callback(self, wakeup: Callable[[Acknowledgement], object], *, context: Context) -> None:
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


def settle(waiters: Iterable[Acknowledgement], outcomes: Iterable[RecordMetadata | BaseException]) -> None:
    """Give each of *waiters* its outcome, and let their tasks go on in the next turn of the event loop.

    Those that were cancelled are passed over.
    """
    for each, outcome in zip(waiters, outcomes, strict=False):
        if each.wakeup is not None:
            each.outcome = outcome
    _wake_soon(iter(waiters))


def _wake_soon(settled: Iterator[Acknowledgement]) -> None:
    asyncio.get_running_loop().call_soon(_wake, settled)


def _wake(settled: Iterator[Acknowledgement]) -> None:
    try:
        for each in settled:
            if each.wakeup is not None:
                each.context.run(each.wakeup, each)
    except BaseException:  # a task was interrupted: the others still go on, if the loop does
        _wake_soon(settled)
        raise
