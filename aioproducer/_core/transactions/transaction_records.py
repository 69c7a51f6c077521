"""The records of the open transaction: their outcome, and the pause before the first record."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.transactions.transaction_manager import (
    ADDED_BY_PRODUCE,
    TransactionManager,
    TransactionState as State,
)
from aioproducer.errors import (
    BufferFull,
    MetadataUnavailable,
    ProducerError,
    TransactionAborted,
    TransactionStateError,
)

HELD_S: Final = 0.02
"""Delay of a Produce that arrives before the markers, in seconds (`add.partitions.to.txn.retry.backoff.ms`)."""
STEP_S: Final = 0.0002
"""Increase of the pause after a delayed Produce, in seconds."""
PAUSE_DECAY: Final = 0.998
"""Factor on the pause after each Produce without delay. So one transaction in some hundred tries a shorter pause."""
SHORTEST_S: Final = 0.0001
LONGEST_S: Final = HELD_S / 4


class MarkersPause:
    """Estimate of the time until the markers of a transaction are written. Pure: callers pass the time.

    A coordinator answers EndTxn before the markers are written. If a Produce to the same partitions arrives before the
    markers, the broker delays the Produce for 20 ms (KIP-890, transaction version 2), ten times the duration of a
    small transaction. A pause of a fraction of a millisecond avoids the delay. The JVM client makes no pause.
    """

    def __init__(self) -> None:
        self.seconds: float = 0.0
        """Pause between the response to EndTxn and the first Produce, in seconds."""
        self._ended_at: float | None = None
        self._end_took_s: float
        self._waited_s: float | None = None
        """Time from the response to EndTxn to the first Produce, in seconds; None before the first Produce."""

    def ended(self, at: float, took_s: float) -> None:
        """Note a response to EndTxn at *at*, *took_s* after the request."""
        self._ended_at, self._end_took_s = at, took_s
        self._waited_s = None

    def wrote(self, at: float) -> None:
        """Note that a Produce is written at *at*."""
        if self._ended_at is not None and self._waited_s is None:
            self._waited_s = at - self._ended_at

    def answered(self, took_s: float) -> None:
        """Note a response to Produce after *took_s*; the first response of a transaction shows a delay."""
        waited_s = self._waited_s
        if waited_s is None:
            return
        self._ended_at = self._waited_s = None
        if took_s < max(HELD_S, 2 * self._end_took_s):  # no delay, or EndTxn was slow too
            self.seconds = self.seconds * PAUSE_DECAY if self.seconds >= SHORTEST_S else 0.0
        elif waited_s < LONGEST_S:
            waited_s = max(waited_s, self.seconds)  # some loops update their clock once a millisecond
            self.seconds = waited_s + STEP_S
        else:  # the pause does not help
            self.seconds = 0.0


NS: Final = 1_000_000_000
TIMERSPEC: Final = struct.Struct("@4l")
"""`struct itimerspec` of timerfd_settime(2): interval and value, each in seconds and nanoseconds."""


class FineTimer:
    """One-shot timer: Linux's timerfd, with a resolution of microseconds, else the event loop (whole milliseconds).

    `os` has timerfd from Python 3.13 on, so the C library is called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._libc: ctypes.CDLL
        self._descriptor: int
        self._closing: weakref.finalize[[int], FineTimer] | None = None
        # A loop with another clock, as in virtual time, needs its own timers.
        if sys.platform == "linux" and abs(loop.time() - time.monotonic()) < 1:
            self._libc = ctypes.CDLL(None)
            self._descriptor = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
            if self._descriptor != -1:
                # A loop may end without a call of `close`.
                self._closing = weakref.finalize(self, os.close, self._descriptor)
                loop.add_reader(self._descriptor, self._expired)

    def start(self, delay_s: float) -> None:
        """Call the callback after *delay_s* seconds, at least 1 ns; an earlier start is cancelled."""
        if self._closing is not None:
            seconds, ns = divmod(round(delay_s * NS), NS)  # 0 would disarm the timer
            self._libc.timerfd_settime(self._descriptor, 0, TIMERSPEC.pack(0, 0, seconds, ns), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(delay_s, self._callback)

    def close(self) -> None:
        """Cancel the timer. Repeated calls are allowed."""
        if self._handle is not None:
            self._handle.cancel()
        if self._closing is not None:
            self._loop.remove_reader(self._descriptor)
            self._closing()
            self._closing = None

    def _expired(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:  # the timer was restarted after it expired
            return
        self._callback()


PRODUCE_ADDS_NOTHING: Final = 11
"""Highest version of Produce that adds no partitions to the transaction."""
UNSENT: Final = (BatchState.OPEN, BatchState.SEALED)
NOT_IN_FLIGHT: Final = (*UNSENT, BatchState.BACKOFF)


class TransactionRecords:
    """Records and offsets of the open transaction: a failure fails the transaction, whose end waits for all outcomes."""

    def __init__(
        self,
        manager: TransactionManager,
        *,
        accumulator: Accumulator,
        updater: MetadataUpdater,
        on_fatal: Callable[[ProducerError], None],
    ) -> None:
        self._manager = manager
        self._accumulator = accumulator
        self._updater = updater
        self._on_fatal = on_fatal
        self._completion: BatchCompletion | None = None
        self._markers = MarkersPause()
        self._pause: FineTimer | None = None
        self._next_failure: asyncio.Future[None] | None = None
        self._awaiting_turn: set[asyncio.Future[None]] = set()
        self.offsets: set[asyncio.Task[ProducerError | None]] = set()
        """Tasks that commit offsets."""

    def end_through(self, completion: BatchCompletion) -> None:
        """Fail unsent batches through *completion*, which in turn calls `failing`."""
        self._completion = completion

    # --- called by the sender and by batches ---------------------------------------------------------------------

    @property
    def may_send(self) -> bool:
        """True if unwritten batches may be written."""
        return self._manager.state not in {State.ABORTING, State.FATAL}

    def fail_unsendable(self) -> None:
        """Fail batches that must not be sent any more. The sender calls `fail_unsendable` after each change."""
        state = self._manager.state
        if state is State.ABORTING:
            self._fail(NOT_IN_FLIGHT, aborted())
        elif state in {State.ABORTABLE, State.FATAL}:
            failure = Failure.of(self._manager.refusal("send"))._replace(reason=None)
            self._fail(UNSENT if state is State.ABORTABLE else NOT_IN_FLIGHT, failure)
        turns, self._awaiting_turn = self._awaiting_turn, set()
        for each in turns:
            if not each.done():
                each.set_result(None)

    def write(self, batches: Sequence[Batch]) -> int | None:
        """Note that *batches* are written; return the highest allowed version of Produce; None: any version."""
        manager = self._manager
        if not manager.is_open and manager.state is not State.FATAL:
            # After a fatal error a request may be written, because the broker refuses the request.
            raise AssertionError(f"{batches} would be written outside a transaction")
        manager.request_written()
        self._markers.wrote(asyncio.get_running_loop().time())
        return None if manager.version >= ADDED_BY_PRODUCE else PRODUCE_ADDS_NOTHING

    def answered(self, took_s: float) -> None:
        """Note a response to Produce after *took_s*."""
        self._markers.answered(took_s)

    def failing(self, failure: Failure) -> Failure:
        """Note that records fail with *failure*; return the failure with `fatal` or `abortable` set."""
        if self._has_closed:
            # Without this call a commit in progress would commit the remaining records.
            self._manager.failed(failure.error())
            return failure
        self.failed(failure.error())
        if self._manager.state is State.FATAL:
            return failure._replace(fatal=True)
        return failure._replace(abortable=True) if self._manager.is_open else failure

    def refused(self, error: BaseException) -> None:
        """Note that a record failed before it was appended, and set `fatal` or `abortable` of *error*.

        Errors of calls that must not wait leave the transaction intact, because the caller may retry.
        """
        if not isinstance(error, ProducerError) or isinstance(
            error, BufferFull | MetadataUnavailable | TransactionStateError
        ):
            return
        self.failed(error)
        if not self._has_closed:
            error.fatal = self._manager.state is State.FATAL
            error.abortable = self._manager.is_open

    # --- called by `Transactions` --------------------------------------------------------------------------------

    def ended(self, took_s: float) -> None:
        """Start the pause before the next transaction's records: EndTxn was answered after *took_s*."""
        if self._manager.version < ADDED_BY_PRODUCE:
            return  # AddPartitionsToTxn is retried until the markers are written
        loop = asyncio.get_running_loop()
        self._markers.ended(loop.time(), took_s)
        if self._markers.seconds:
            if self._pause is None:
                self._pause = FineTimer(loop, self._release)
            self._manager.held = True
            self._pause.start(self._markers.seconds)

    def close(self) -> None:
        """Close the timer of the pause."""
        if self._pause is not None:
            self._pause.close()

    def _release(self) -> None:
        self._manager.held = False
        self._accumulator.schedule.identity_changed(asyncio.get_running_loop().time())
        self._accumulator.wake()

    def failed(self, error: ProducerError) -> None:
        """Note that a record or offsets of the transaction failed with *error*."""
        before = self._manager.state
        self._manager.failed(error)
        after = self._manager.state
        if after is before:
            return
        if self._next_failure is not None:
            self._next_failure.set_result(None)
            self._next_failure = None
        if after is State.FATAL:
            self._on_fatal(self._manager.refusal("go on"))
        self._accumulator.wake()  # unsent batches fail in the sender's next run, outside of this step

    async def settle_of(self, ending: asyncio.Future[Any], limit_s: float) -> None:
        """Wait until *ending* is done or the transaction fails, for at most *limit_s*."""
        if self._next_failure is None:
            self._next_failure = asyncio.get_running_loop().create_future()
        await asyncio.wait([ending, self._next_failure], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)

    def take_offsets(self, task: asyncio.Task[ProducerError | None]) -> None:
        """Note that *task* commits offsets; the transaction is settled only after the end of *task*."""
        self.offsets.add(task)
        task.add_done_callback(self._offsets_sent)

    def _offsets_sent(self, task: asyncio.Task[ProducerError | None]) -> None:
        self.offsets.discard(task)
        self._accumulator.wake()  # the sender resumes `settled`, which checks `are_settled` again

    @property
    def are_settled(self) -> bool:
        """True if all accepted records and offsets have their outcome."""
        accumulator = self._accumulator
        return not accumulator.unfinished and not accumulator.pending_calls and not self.offsets

    async def settled(self) -> None:
        """Send all accepted records without lingering, and wait for the outcome of all records and offsets."""
        while not self.are_settled:
            if self._accumulator.unresolved:  # a flush of nothing would wake the sender in a loop
                await self._accumulator.flush()
            if not self.are_settled:  # a call still appends, or a response arrives
                turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._awaiting_turn.add(turn)
                await turn

    async def dropped(self) -> None:
        """Fail unwritten records, including those of calls that still append; wait for responses to written records."""
        failure = aborted()
        self._accumulator.close(failure)
        self._updater.fail_all(failure.error)
        try:
            await self.settled()
        finally:
            self._accumulator.reopen(failure)

    @property
    def _has_closed(self) -> bool:
        """True if the accumulator is closed for another reason than an aborted transaction."""
        closed_for = self._accumulator.closed_for
        return closed_for is not None and closed_for.kind is not TransactionAborted

    def _fail(self, states: Sequence[BatchState], failure: Failure) -> None:
        if self._completion is None:
            raise AssertionError("end_through() was not called")
        batches: list[Batch] = [each for each in self._accumulator.unresolved if each.state in states]
        for batch in batches:
            self._completion.fail(batch, failure._replace(possibly_persisted=batch.possibly_persisted))


def aborted() -> Failure:
    """Return the failure of records that were not written before the abort (KIP-654)."""
    return Failure(
        TransactionAborted, "the transaction was aborted before the record was sent", abortable=True
    )
