"""The transactions of a producer: begin, records and offsets, end.

An end in progress continues until the coordinator has answered, even if its callers are cancelled. All other work ends
with its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from math import inf
from time import time_ns
from typing import Any, Final

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.net.connection_protocol import caused
from aioproducer._core.steps import Log
from aioproducer._core.transactions.coordinator import Coordinators
from aioproducer._core.transactions.transaction_manager import (
    ADDED_BY_PRODUCE,
    TransactionManager,
    TransactionState as State,
)
from aioproducer._core.transactions.transaction_records import TransactionRecords
from aioproducer._core.transactions.transaction_requests import (
    Ending,
    ResumedTransaction,
    TransactionRequests,
    TransactionSettings,
    commit_error,
    copy_of,
    crash_error,
    raise_outcome,
    timeout_error,
    unknown_outcome_error,
)
from aioproducer._core.transactions.transaction_types import (
    GroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    group_refused,
)
from aioproducer.errors import (
    CommitFailed,
    ProducerError,
    RebootstrapRequired,
    TransactionAborted,
    UnsupportedVersion,
)
from aioproducer.types import TopicPartition

log: Final = Log(__name__)

ENDED_ELSEWHERE: Final = {State.PREPARED, State.PREPARING, State.COMMITTING}
"""States in which a close aborts no transaction."""


class Transactions:
    """Implementation of the producer's transactional calls.

    The parts depend on each other and on other layers, so they are created in three steps: `manager` immediately (for the
    accumulator), `records` in `watch` (for the completion and the sender), `coordinators` in `open`.
    """

    records: TransactionRecords
    coordinators: Coordinators

    def __init__(self, settings: TransactionSettings, *, on_moved: Callable[[bool], None]) -> None:
        """*on_moved* receives True if the open transaction accepts records."""
        self.settings: Final = settings
        self.manager: Final = TransactionManager(
            settings.transactional_id, on_wanted=self._partitions_wanted, on_moved=on_moved
        )
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._adding: asyncio.Task[None] | None = None
        self._ending: Ending | None = None
        """End of the last transaction, until a call has returned its outcome."""
        self._renewing: asyncio.Task[ProducerError | None] | None = None
        """Task that gets a producer id in the background: after `initialize_later`, or for a new cluster."""
        self.number: int = 0
        """Number of the open transaction, or of the last transaction."""
        self.is_undecided: bool = False
        """True until the user commits, aborts or prepares the transaction with `number`."""
        self._began_at_ms = 0
        self._is_stopping = False

    def watch(
        self, accumulator: Accumulator, updater: MetadataUpdater, *, on_fatal: Callable[[ProducerError], None]
    ) -> TransactionRecords:
        """Follow the records in *accumulator*; *on_fatal* receives a fatal error of the cluster."""
        self.records = TransactionRecords(
            self.manager, accumulator=accumulator, updater=updater, on_fatal=on_fatal
        )
        return self.records

    def open(
        self, completion: BatchCompletion, coordinators: Coordinators, *, on_admitted: Callable[[], None]
    ) -> None:
        """Set `coordinators`, and the completion of `records`; *on_admitted* is called once waiting batches may be sent."""
        self.records.end_through(completion)
        self.coordinators = coordinators
        self._requests = TransactionRequests(self.settings, self.manager, coordinators)
        self._on_admitted = on_admitted

    def _partitions_wanted(self) -> None:
        """Add the partitions that batches wait for."""
        if self._adding is None or self._adding.done():
            self._adding = self._spawn(self._add_partitions(), "add partitions")

    @property
    def is_outcome_pending(self) -> bool:
        """True while no call has returned the outcome of the last end."""
        return self._ending is not None

    @property
    def has_failed(self) -> bool:
        """True if the open transaction can only be aborted."""
        return self.manager.state is State.ABORTABLE

    # --- calls of the user ---------------------------------------------------------------------------------------

    async def initialize(self, resumed: ResumedTransaction | None = None, timeout_s: float = inf) -> None:
        """Get a producer id. The coordinator fences the earlier producer of the transactional id, and aborts its transaction.

        *resumed* has the identity of another process whose transaction this producer continues.

        Raises: TransactionTimeout after *timeout_s* seconds, at most `max_block_ms`; the coordinator's refusal;
            AuthenticationFailed if brokers refuse the login.
        """
        self.manager.initialize()
        if resumed is not None:
            if not resumed.next_epoch:
                self.manager.initialized(resumed.identity, resumed.version)
                return
            self.manager.assign(*resumed.identity)
        task = self._spawn(self._initialize(fails_refused=True), "initialize")
        limit_s = max(0.0, min(self.settings.max_block_s, timeout_s))
        try:
            await asyncio.wait([task], timeout=limit_s)
        finally:
            if not task.done():
                task.cancel()
        if not task.done():
            raise timeout_error("initialize", limit_s, self.coordinators.last_error)
        raise_outcome(task)

    def initialize_later(self) -> None:
        """Get a producer id in the background; `begin` waits for the id, and raises the coordinator's refusal."""
        self.manager.initialize()
        self._renewing = self._spawn(self._initialize(), "initialize")

    async def begin(self) -> None:
        """Open a transaction after the end of the last transaction."""
        ending, limit_s = self._ending, self.settings.max_block_s
        if ending is not None and not ending.task.done():
            await self._outcome(ending, limit_s, "begin a transaction")
        if self._renewing is not None:
            await self._renewed(self._renewing, limit_s)
        if self.manager.state is State.READY:  # in another state, `begin` of the manager raises
            # The outcome is reset before the transition: an interrupted begin must keep no earlier outcome.
            self._ending = None
            self.number += 1
            self.is_undecided = True
            self._began_at_ms = time_ns() // 1_000_000
        self.manager.begin()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        timeout_s: float | None,
    ) -> None:
        """Commit *offsets* of *group* with the transaction."""
        self.check_sending("send offsets")
        if not offsets:
            return
        task = self._spawn(self._send_offsets(offsets, group), "send offsets")
        self.records.take_offsets(task)
        limit_s = self._limit(timeout_s)
        try:
            await asyncio.wait([task], timeout=limit_s)
        except asyncio.CancelledError:
            task.add_done_callback(self._offsets_given_up)
            raise
        if not task.done():
            # No await may come before `failed`, because a cancelled caller must not commit without its offsets.
            error = timeout_error("send offsets", limit_s, self.coordinators.last_error)
            self.records.failed(error)
            task.cancel()
            raise error
        if task.cancelled() and not self._is_stopping:
            raise TransactionAborted("the transaction was aborted before its offsets were committed")
        raise_outcome(task)

    def _offsets_given_up(self, task: asyncio.Task[ProducerError | None]) -> None:
        """Fail the transaction if *task*, which no caller awaits any more, sent no offsets."""
        try:
            raise_outcome(task)
        except ProducerError as error:  # only an UnsupportedVersion has not failed the transaction before
            self.records.failed(caused(CommitFailed(f"the offsets were not sent: {error}"), error))

    async def commit(self, timeout_s: float | None) -> None:
        """Commit once all accepted records are acknowledged."""
        limit_s, ending = self._limit(timeout_s), self._ending
        if ending is None or not ending.commits:
            if self.has_failed:
                raise copy_of(self._commit_failed())
            was_prepared = self._state() is State.PREPARED
            self.manager.commit()
            self.is_undecided = False
            ending = self._ending = Ending(commits=True, was_prepared=was_prepared)
            ending.task = self._spawn(self._commit(ending), "commit")
        await self.records.settle_of(ending.task, limit_s)
        state = self._state()
        waits = state is not State.INITIALIZING and not ending.is_out
        if waits and not ending.task.done() and ending.given_up is None and not ending.was_prepared:
            # No await may come before `failed`, because a cancelled caller must not leave a commit without a task.
            error = (
                timeout_error("commit", limit_s, self.coordinators.last_error)
                if state is State.COMMITTING
                else self._commit_failed()
            )
            self.records.failed(error)
            ending.give_up(self._commit_failed())
            if self._ending is ending:  # else another task has called `abort` after the failure
                self._ending = None
            raise copy_of(error)
        self._raise_outcome(ending, limit_s, "commit")

    async def abort(self, timeout_s: float | None, *, closing: bool = False) -> None:
        """Abort the transaction: unwritten records fail, records in flight are awaited. *closing*: `close` calls `abort`."""
        limit_s, ending = self._limit(timeout_s), self._ending
        if ending is None or ending.commits:
            self.manager.abort()
            self.is_undecided = self.is_undecided and closing
            commit, ending = ending, Ending(commits=False)
            self._ending = ending
            ending.task = self._spawn(self._abort(ending, commit), "abort")
        await self._outcome(ending, limit_s, "abort")

    async def prepare(self, timeout_s: float | None) -> None:
        """Accept no more records, and wait until all accepted records are acknowledged."""
        limit_s = self._limit(timeout_s)
        if self.manager.state is State.PREPARED:
            return
        if self.manager.state is not State.PREPARING:
            if self.has_failed:
                raise copy_of(self._commit_failed())
            self.manager.prepare()
            self.is_undecided = False
        task = self._spawn(self._prepare(), "prepare")
        await asyncio.wait([task], timeout=limit_s)
        if task.done():
            raise_outcome(task)
            return
        task.cancel()
        if self._state() is not State.PREPARING:  # another call ends the transaction
            raise self.manager.refusal("prepare")
        error = timeout_error("prepare", limit_s, self.coordinators.last_error)
        self.records.failed(error)
        raise error

    def prepared(self) -> PreparedTransaction:
        """Return the identity of the open transaction, so that another process can end the transaction."""
        identity = self.manager.current
        if identity is None:
            raise AssertionError("no producer id")
        return PreparedTransaction(
            self.settings.transactional_id,
            *identity,
            transaction_version=max(self.manager.version, 1),
            began_at_ms=self._began_at_ms,
            timeout_ms=-1 if self.settings.two_phase_commit else self.settings.timeout_ms,
        )

    async def close(self, timeout_s: float) -> None:
        """Abort an open transaction unless it is prepared; wait for an end in progress. Raises nothing."""
        until = self._loop.time() + timeout_s
        try:
            if self._ending is not None:
                await asyncio.wait([self._ending.task], timeout=timeout_s)
            if self.manager.is_open and self.manager.state not in ENDED_ELSEWHERE:
                await self.abort(max(0.0, until - self._loop.time()), closing=True)
        except ProducerError as error:
            log.warning(
                "transaction.left_open transactional_id=%s error=%s: %s",
                self.settings.transactional_id, type(error).__name__, error,
            )  # fmt: skip

    def leave_cluster(self, error: ProducerError) -> None:
        """Fail the open transaction, which the new cluster lacks, and get a producer id for the next transaction."""
        self.coordinators.leave_cluster(error)
        failed = self.coordinators.left_cluster()
        state, ending = self.manager.state, self._ending
        if state is State.PREPARED:
            failed.abortable, failed.fatal = False, True
        if ending is None or not ending.is_out:  # a commit in flight has an unknown outcome
            self.records.failed(failed)
        self.manager.leave_cluster()
        if state is State.READY:
            self.initialize_later()

    def give_up(self, error: ProducerError) -> None:
        """Cancel all tasks, because the sender has ended and no record will get an outcome."""
        self.manager.failed_fatally(error)
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Cancel all tasks, and wait until the tasks have ended."""
        self._is_stopping = True
        while self._tasks:  # tasks may have started meanwhile
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        self.records.close()

    def check_sending(self, what: str) -> None:
        """Raise the error for *what*, unless a transaction accepts records."""
        if self.manager.state is not State.IN_TRANSACTION:
            raise self.manager.refusal(what)

    def _state(self) -> State:
        """Return the state; another task may have changed it during an await."""
        return self.manager.state

    # --- implementation ------------------------------------------------------------------------------------------

    async def _renewed(self, task: asyncio.Task[ProducerError | None], limit_s: float) -> None:
        """Wait for the producer id that *task* gets."""
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            raise timeout_error("begin a transaction", limit_s, self.coordinators.last_error)
        self._renewing = None
        if not task.cancelled() and task.exception() is None and (refused := task.result()) is not None:
            refused.fatal = True
            self.records.failed(refused)
        raise_outcome(task)

    async def _initialize(self, *, fails_refused: bool = False) -> ProducerError | None:
        """Get a producer id, or the next epoch of the current id; `Coordinators.request` receives *fails_refused*."""
        while True:
            try:
                identity = await self._requests.init_producer_id(fails_refused=fails_refused)
            except RebootstrapRequired:
                continue  # the cluster changed, and the new cluster assigns a new producer id
            except ProducerError as error:
                return error
            self.manager.initialized(identity, self._requests.transaction_version)
            return None

    async def _add_partitions(self) -> None:
        while wanted := self.manager.wanted():
            try:
                await self._requests.add_partitions(wanted)
            except ProducerError as error:
                self.records.failed(error)
                return
            self.manager.added(wanted)
            self._on_admitted()

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> ProducerError | None:
        manager = self.manager
        try:
            if manager.version < ADDED_BY_PRODUCE and group.group_id not in manager.groups:
                await self._requests.add_offsets(group.group_id)
                manager.groups.add(group.group_id)
            await self._requests.commit_offsets(offsets, group)
        except ProducerError as refusal:
            if isinstance(refusal, UnsupportedVersion) and not refusal.fatal:
                lacking = UnsupportedVersion(
                    f"send_offsets: the coordinator of group {group.group_id!r} is older than Kafka 2.5 and lacks"
                    " group metadata; pass the group id"
                )
                return caused(lacking, refusal)  # nothing was written, so the transaction continues
            failure = refusal
            if group_refused(refusal):
                why = f"group {group.group_id!r} has removed this consumer: {refusal}"
                failure = caused(CommitFailed(why), refusal)
            self.records.failed(failure)
            return failure
        return None

    async def _prepare(self) -> ProducerError | None:
        await self.records.settled()
        if self._state() is State.PREPARING:
            self.manager.settled()
        if self._state() is State.PREPARED:
            return None
        return self._commit_failed() if self.has_failed else self.manager.refusal("prepare")

    async def _commit(self, ending: Ending) -> ProducerError | None:
        await self.records.settled()
        if self.manager.state is not State.COMMITTING:
            return self._commit_failed()
        return await self._end(ending)

    async def _abort(self, ending: Ending, commit: Ending | None) -> ProducerError | None:
        for task in (self._adding, *self.records.offsets):
            if task is not None:
                task.cancel()
        await self.records.dropped()
        if commit is not None:  # the task of the commit ends before the next transaction
            await asyncio.wait([commit.task])
        if self._state() is not State.ABORTING:
            return self.manager.refusal("abort")
        return await self._end(ending)

    async def _end(self, ending: Ending) -> ProducerError | None:
        """End the transaction at the coordinator if necessary; return the error of an end that did not succeed."""
        manager, new = self.manager, None
        if manager.must_be_ended(commit=ending.commits):
            began = self._loop.time()
            try:
                new = await self._requests.end(ending)
            except ProducerError as refused:
                error = ending.error_for(refused)
                self.records.failed(error)
                if manager.state is State.ABORTABLE:
                    return self._commit_failed()
                if manager.state is not State.ABORTING:
                    return error
                manager.request_epoch_bump()  # no transaction to abort is left: the next transaction takes another epoch
            self.records.ended(self._loop.time() - began)
        if manager.ended(new, self._requests.transaction_version):
            failed = await self._initialize()
            if failed is not None:  # the ended transaction keeps its outcome
                failed.fatal = True
                self.records.failed(failed)
                return None if ending.commits else failed
        return None

    def _commit_failed(self) -> ProducerError:
        """Return the error of the failed commit."""
        cause = self.manager.cause
        if cause is None or self.manager.state is State.FATAL:
            return self.manager.refusal("commit")
        if isinstance(cause, CommitFailed):
            return cause
        self.manager.cause = commit_error(self.settings.transactional_id, cause)
        return self.manager.cause

    # --- failures and waiting ------------------------------------------------------------------------------------

    def _limit(self, timeout_s: float | None) -> float:
        return self.settings.max_block_s if timeout_s is None else timeout_s

    async def _outcome(self, ending: Ending, limit_s: float, what: str) -> None:
        """Wait for *ending*, which continues without its callers; raise its error."""
        await asyncio.wait([ending.task], timeout=limit_s)
        self._raise_outcome(ending, limit_s, what)

    def _raise_outcome(self, ending: Ending, limit_s: float, what: str) -> None:
        if not ending.task.done() and ending.given_up is None:
            error = unknown_outcome_error if ending.is_out or ending.was_prepared else timeout_error
            raise error(what, limit_s, self.coordinators.last_error)
        if self._ending is ending:
            self._ending = None
        ending.raise_outcome()

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = self._loop.create_task(work, name=f"aioproducer: {name}")
        # The callback is set before `add`: `stop` would loop forever over an ended task without the callback.
        task.add_done_callback(self._ended)
        self._tasks.add(task)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:  # a bug: calls would wait forever
            log.error("task.crashed task=%s", task.get_name(), exc_info=task.exception())
            self.records.failed(crash_error(task))
