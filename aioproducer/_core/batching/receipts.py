"""Futures of single records: the kind of waiter that `enqueue` and `send_nowait` return."""

from __future__ import annotations

import asyncio
import sys
import traceback
from asyncio import base_futures, format_helpers
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Protocol

from aioproducer._core.acceleration import fastest
from aioproducer._core.batching.batch import RecordFuture
from aioproducer._core.batching.waiters import (
    Failure,
    FutureWaiters,
    Kind,
    TaskWaker,
    reference_to,
)
from aioproducer._core.clock import ready_handles
from aioproducer.types import RecordMetadata


class ReceiptKind(Kind[RecordFuture], Protocol):
    """Kind of the Futures of one event loop. A waiting call creates its Future before the append."""

    def expire(self, waiter: RecordFuture, failure: Failure) -> None:
        """Fail only *waiter*, at the deadline of its call."""
        ...


class FutureKind:
    """Kind of the `asyncio.Future` objects of one event loop."""

    __slots__ = ("waiter",)

    stretch = FutureWaiters

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waiter: Callable[[], RecordFuture] = partial(asyncio.Future, loop=loop)

    def expire(self, waiter: RecordFuture, failure: Failure) -> None:
        """Fail only *waiter*."""
        FutureWaiters([waiter]).fail(failure)


def python_receipts(waker: TaskWaker, tools: tuple[Any, ...]) -> ReceiptKind:  # noqa: ARG001 - used by the twin in C
    return FutureKind(waker.loop)


_receipts: Final = fastest("receipts", python_receipts)


def receipts_on(waker: TaskWaker) -> ReceiptKind:
    """Return the kind of the Futures of the event loop of *waker*."""
    loop = waker.loop
    tools = (
        reference_to(loop),
        asyncio.Future,
        RecordMetadata,
        asyncio.CancelledError,
        asyncio.InvalidStateError,
        copy_context,
        Context,
        base_futures._future_repr,  # type: ignore[attr-defined] # noqa: SLF001 - the repr of asyncio's Futures
        _ready,
        _report,
        _stack if loop.get_debug() else None,
    )
    return _receipts(waker, tools)


def _ready(loop: asyncio.AbstractEventLoop | None) -> deque[asyncio.Handle] | None:
    """Return the queue of the loop's handles; None if the loop has another queue, or is in debug mode.

    In debug mode `call_soon` checks each callback and the thread.
    """
    return None if loop is None or loop.get_debug() else ready_handles(loop)


def _report(
    callback: Callable[..., object], receipt: RecordFuture, context: Context, error: BaseException
) -> None:
    """Pass *error* of a done callback to the exception handler of the event loop, as a Handle does."""
    loop = receipt.get_loop()
    source = format_helpers._format_callback_source(callback, (receipt,))  # noqa: SLF001 - asyncio's text
    loop.call_exception_handler(
        {
            "message": f"Exception in callback {source}",
            "exception": error,
            "handle": asyncio.Handle(callback, (receipt,), loop, context),
        }
    )


def _stack() -> traceback.StackSummary:
    """Return the stack of the call that creates a receipt."""
    return format_helpers.extract_stack(sys._getframe(1))  # noqa: SLF001 - asyncio's own way to get a stack
