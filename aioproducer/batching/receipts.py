"""Futures of single records: the kind of waiter that `enqueue` and `send_nowait` return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from aioproducer.batching.batch import RecordFuture
from aioproducer.batching.waiters import Failure, FutureWaiters, Kind, Stretch, factory_of


class ReceiptStretch(Stretch[RecordFuture], Protocol):
    """Records whose senders each hold a Future."""

    def add(self, waiter: RecordFuture) -> None:
        """Add *waiter* for the record just appended."""


class ReceiptKind(Kind[RecordFuture], Protocol):
    """The Futures of one event loop."""

    def stretch(self) -> ReceiptStretch:
        """Return an empty stretch of this kind."""
        ...

    def waiter(self) -> RecordFuture:
        """Return a Future that a stretch adds later: a call that waits has it before its append."""
        ...

    def expire(self, waiter: RecordFuture, failure: Failure) -> None:
        """Fail *waiter* alone: its call has a deadline of its own."""
        ...


class FutureKind:
    """The Futures of one event loop as asyncio makes them."""

    __slots__ = ("waiter",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waiter: Callable[[], RecordFuture] = factory_of(asyncio.Future, {"loop": loop})

    def stretch(self) -> FutureWaiters:
        """Return an empty stretch of Futures."""
        return FutureWaiters([], self.waiter)

    def expire(self, waiter: RecordFuture, failure: Failure) -> None:
        """Fail *waiter* alone."""
        FutureWaiters([waiter]).fail(failure)


class ExpiringReceipt:
    """The waiter of one record whose call has a deadline of its own."""

    __slots__ = ("_kind", "_waiter")

    def __init__(self, kind: ReceiptKind, waiter: RecordFuture) -> None:
        self._kind = kind
        self._waiter = waiter

    def __len__(self) -> int:
        return 1

    def fail(self, failure: Failure) -> None:
        """Fail the waiter."""
        self._kind.expire(self._waiter, failure)
