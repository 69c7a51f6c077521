"""The records of the open transaction: whether all have their outcome; and what fails of them fails it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.transactions.fine_timer import FineTimer
from aioproducer._core.transactions.markers_pause import MarkersPause
from aioproducer._core.transactions.reactions import ADDED_BY_PRODUCE
from aioproducer._core.transactions.transaction_manager import TransactionManager
from aioproducer._core.transactions.transaction_state import TransactionState as State
from aioproducer.errors import (
    BufferFull,
    MetadataUnavailable,
    ProducerError,
    TransactionAborted,
    TransactionStateError,
)

PRODUCE_ADDS_NOTHING: Final = 11
"""The highest version of Produce that leaves it to AddPartitionsToTxn which partitions are in the transaction."""
UNSENT: Final = (BatchState.OPEN, BatchState.SEALED)
NOT_IN_FLIGHT: Final = (*UNSENT, BatchState.BACKOFF)


class TransactionRecords:
    """What the sender and the batches tell of a transaction, and what they are told."""

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
        self._awaiting_failure: set[asyncio.Future[None]] = set()
        self._awaiting_turn: set[asyncio.Future[None]] = set()
        self.offsets: set[asyncio.Task[ProducerError | None]] = set()
        """Offsets on their way to their group."""

    def end_through(self, completion: BatchCompletion) -> None:
        """Let batches that are not to be sent end through *completion*, which tells us of failures in turn."""
        self._completion = completion

    # --- what the sender and the batches tell --------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """Whether what is not written yet may be."""
        return self._manager.state not in {State.ABORTING, State.FATAL}

    def look(self) -> None:
        """Fail what is not to be sent any more; the sender looks whenever something has changed."""
        state = self._manager.state
        if state is State.ABORTING:
            self._fail(NOT_IN_FLIGHT, aborted())
        elif state is State.ABORTABLE:
            self._fail(UNSENT, failure_of(self._manager.refusal("send")))
        elif state is State.FATAL:
            self._fail(NOT_IN_FLIGHT, failure_of(self._manager.refusal("send")))
        turns, self._awaiting_turn = self._awaiting_turn, set()
        for each in turns:
            if not each.done():
                each.set_result(None)

    def write(self, batches: Sequence[Batch]) -> int | None:
        """Take note that *batches* go out; return the highest version of Produce that may be used, if there is one."""
        manager = self._manager
        if not (manager.is_open or manager.state is State.FATAL):  # then it is refused
            raise AssertionError(f"{batches} would be written outside a transaction")
        manager.asked()
        self._markers.wrote(asyncio.get_running_loop().time())
        return None if manager.version >= ADDED_BY_PRODUCE else PRODUCE_ADDS_NOTHING

    def answered(self, took_s: float) -> None:
        """Take note that a Produce was answered within *took_s*."""
        self._markers.answered(took_s)

    def failing(self, failure: Failure) -> Failure:
        """Take note that records fail of *failure*; return it as those who wait for them are told of it."""
        if self._has_closed:
            self._manager.failed(failure.error())  # else a commit that is under way would be of what is left
            return failure  # the producer has ended, and not its transaction alone
        self.failed(failure.error())
        if self._manager.state is State.FATAL:
            return failure._replace(fatal=True)
        return failure._replace(abortable=True) if self._manager.is_open else failure

    def refused(self, error: BaseException) -> None:
        """Take note that a record failed before it was appended, and say so on *error*.

        Who may not wait, and is told so, may try again.
        """
        if not isinstance(error, ProducerError) or isinstance(
            error, BufferFull | MetadataUnavailable | TransactionStateError
        ):
            return
        self.failed(error)
        if not self._has_closed:
            error.fatal = self._manager.state is State.FATAL
            error.abortable = self._manager.is_open

    # --- what the transaction wants ------------------------------------------------------------------------------

    def ended(self, took_s: float) -> None:
        """Hold back the next transaction's records for a moment: EndTxn was answered within *took_s*."""
        if (
            self._manager.version < ADDED_BY_PRODUCE
        ):  # AddPartitionsToTxn meets the markers, and asks again soon
            return
        loop = asyncio.get_running_loop()
        self._markers.ended(loop.time(), took_s)
        if self._markers.seconds:
            if self._pause is None:
                self._pause = FineTimer(loop, self._release)
            self._manager.held = True
            self._pause.start(self._markers.seconds)

    def close(self) -> None:
        """Hold nothing back any more: the producer has ended."""
        if self._pause is not None:
            self._pause.close()

    def _release(self) -> None:
        self._manager.held = False
        self._accumulator.schedule.identity_changed(asyncio.get_running_loop().time())
        self._accumulator.wake()

    def failed(self, error: ProducerError) -> None:
        """Take note that something of the transaction has failed with *error*."""
        before = self._manager.state
        self._manager.failed(error)
        after = self._manager.state
        if after is before:
            return
        for each in self._awaiting_failure:
            if not each.done():
                each.set_result(None)
        if after is State.FATAL:
            self._on_fatal(self._manager.refusal("go on"))
        self._accumulator.wake()  # what was not sent fails in the sender's next turn, not in the middle of this one

    async def settle_of(self, ending: asyncio.Future[Any], limit_s: float) -> None:
        """Wait until *ending* is done, the transaction has failed, or *limit_s* is over."""
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting_failure.add(failed)
        try:
            await asyncio.wait([ending, failed], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._awaiting_failure.discard(failed)

    def take_offsets(self, task: asyncio.Task[ProducerError | None]) -> None:
        """Take note that *task* has offsets on their way: nothing is settled before it ends."""
        self.offsets.add(task)
        task.add_done_callback(self._offsets_sent)

    def _offsets_sent(self, task: asyncio.Task[ProducerError | None]) -> None:
        self.offsets.discard(task)
        self._accumulator.wake()  # so that the sender sees whether all is settled

    @property
    def are_settled(self) -> bool:
        """Whether everything that was taken has its outcome."""
        accumulator = self._accumulator
        return not accumulator.unfinished and not accumulator.pending_calls and not self.offsets

    async def settled(self) -> None:
        """Send everything that was taken without lingering, and wait until all of it has its outcome."""
        while not self.are_settled:
            if self._accumulator.unresolved:  # else the sender would be woken for nothing, again and again
                await self._accumulator.flush()
            if not self.are_settled:  # a call is on its way here, or an answer that nobody waits for any more
                turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._awaiting_turn.add(turn)
                await turn

    async def dropped(self) -> None:
        """Fail what was not written, calls on their way included; wait for the answers to what was."""
        failure = aborted()
        self._accumulator.close(failure)
        self._updater.fail_all(failure.error)
        try:
            await self.settled()
        finally:
            self._accumulator.reopen(failure)

    @property
    def _has_closed(self) -> bool:
        """Whether the producer takes no record any more, and not its transaction alone."""
        closed_for = self._accumulator.closed_for
        return closed_for is not None and closed_for.kind is not TransactionAborted

    def _fail(self, states: Sequence[BatchState], failure: Failure) -> None:
        if self._completion is None:
            raise AssertionError("nobody has said through what batches end")
        batches: list[Batch] = [each for each in self._accumulator.unresolved if each.state in states]
        for batch in batches:
            self._completion.fail(batch, failure._replace(possibly_persisted=batch.possibly_persisted))


def aborted() -> Failure:
    """Return the failure of what was not written when the transaction was aborted (KIP-654)."""
    return Failure(
        TransactionAborted, "the transaction was aborted before the record was sent", abortable=True
    )


def failure_of(error: ProducerError) -> Failure:
    """Return *error* for many records."""
    return Failure(
        type(error), str(error), cause=error.__cause__, abortable=error.abortable, fatal=error.fatal
    )
