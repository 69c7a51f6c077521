"""Requests of a transaction, in versions that match its `transaction.version`, and errors of transaction calls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

from aioproducer._core.idempotence import ProducerIdentity
from aioproducer._core.net.connection_protocol import caused
from aioproducer._core.protocol.produce import InitProducerIdRequest
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    TransactionState as Described,
    TxnOffsetCommitRequest,
)
from aioproducer._core.transactions.coordinator import (
    CoordinatorRequest,
    Coordinators,
    Key,
    KeyType,
    Refusals,
)
from aioproducer._core.transactions.transaction_manager import ADDED_BY_PRODUCE, Api, TransactionManager
from aioproducer._core.transactions.transaction_types import GroupMetadata, OffsetAndMetadata, topics_of
from aioproducer.errors import (
    CommitFailed,
    ConcurrentTransactions,
    InvalidTransactionTimeout,
    ProducerClosed,
    ProducerError,
    ProducerFenced,
    RebootstrapRequired,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    TransactionOutcomeUnknown,
    TransactionTimeout,
    UnsupportedVersion,
)
from aioproducer.types import TopicPartition

BEFORE_EPOCH_BUMPS: Final = 4
"""The highest version of EndTxn and TxnOffsetCommit below transaction version 2 (KIP-890)."""
OWN_EPOCH: Final = 3
"""First version of InitProducerId with the present producer id and epoch (KIP-360)."""
TWO_PHASE_COMMIT: Final = 6
"""Version of InitProducerId with two-phase commit (KIP-939). The version is unstable, so it is used on request only."""
LAST_EPOCH: Final = 32_766
"""Highest epoch; the next epoch is 0 of another producer id."""
INCONCLUSIVE_CODES: Final = frozenset({TransactionalIdNotFound.code, TransactionalIdAuthorizationFailed.code})
"""Errors of DescribeTransactions that leave the decision to InitProducerId: an expired id, or a missing DESCRIBE permission."""


class TransactionSettings(NamedTuple):
    """Options of transactions."""

    transactional_id: str
    timeout_ms: int
    two_phase_commit: bool
    max_block_s: float


class ResumedTransaction(NamedTuple):
    """Identity of a transaction that another process began and this producer continues."""

    identity: ProducerIdentity
    version: int
    """`transaction.version` of the resumed transaction."""
    next_epoch: bool = False
    """True to request the next epoch. The request aborts the resumed transaction, and fails if a newer producer has the id."""


class Ending:
    """A commit or an abort, from the call to its outcome."""

    task: asyncio.Task[ProducerError | None]

    def __init__(self, *, commits: bool, was_prepared: bool = False) -> None:
        self.commits: bool = commits
        self.was_prepared: bool = was_prepared
        """True if another process may end the transaction, so this end is never given up."""
        self.is_out: bool = False
        """True once EndTxn is written, so that the transaction may have ended."""
        self.is_uncertain: bool = False
        """True if a response to EndTxn was lost or asked for a retry, so that the outcome is unknown."""
        self.given_up: ProducerError | None = None
        """Error with which the end was given up before EndTxn was written."""

    def written(self) -> None:
        """Note that EndTxn is written."""
        self.is_uncertain = self.is_out  # a second EndTxn follows a retriable error of the first EndTxn
        self.is_out = True

    def unanswered(self) -> None:
        """Note that the response to EndTxn was lost."""
        self.is_uncertain = True

    def give_up(self, failed: ProducerError) -> None:
        """Cancel the end before EndTxn is written; other callers that wait for the end get *failed*."""
        self.given_up = failed
        self.task.cancel()

    def error_for(self, refused: ProducerError) -> ProducerError:
        """Return *refused*, the last error, or TransactionOutcomeUnknown if the response to a commit was lost.

        After a change of the cluster no response to the commit will arrive.
        """
        ends = refused.fatal or isinstance(refused, RebootstrapRequired)
        return lost_response_error(refused) if ends and self.commits and self.is_uncertain else refused

    def raise_outcome(self) -> None:
        """Raise the error of a finished or given-up end; return if the end succeeded."""
        if self.given_up is not None:
            raise copy_of(self.given_up)
        if self.task.cancelled() and self.commits and self.is_out:
            raise TransactionOutcomeUnknown(
                "commit: the outcome is unknown, because the producer was closed before the coordinator responded"
            ) from ProducerClosed("the producer was closed, or its event loop is shutting down")
        raise_outcome(self.task)


class TransactionRequests:
    """Requests to the coordinators, sent in the order of the calls; each raises the errors of `Coordinators.request`."""

    def __init__(
        self, settings: TransactionSettings, manager: TransactionManager, coordinators: Coordinators
    ) -> None:
        self._settings = settings
        self._manager = manager
        self._coordinators = coordinators
        self._id = settings.transactional_id
        self._key = Key(KeyType.TRANSACTION, settings.transactional_id)

    @property
    def transaction_version(self) -> int:
        """`transaction.version` of the cluster."""
        return self._coordinators.transaction_version

    async def init_producer_id(self, *, fails_refused: bool) -> ProducerIdentity:
        """Return a producer id, or the next epoch of the current id. `Coordinators.request` receives *fails_refused*.

        If a transaction is open, the coordinator compares the producer id alone, and aborts even the transaction of a
        successor. DescribeTransactions therefore checks the epoch of this producer directly before InitProducerId.
        """
        is_written = False

        def written() -> None:
            nonlocal is_written
            is_written = True

        def conclusive(answer: DescribeTransactionsResponse) -> Refusals:
            codes = self._identity_refusals(answer, own, initialized=is_written)
            return [(code, about) for code, about in codes if code not in INCONCLUSIVE_CODES]

        current = self._manager.current
        own = current or ProducerIdentity(-1, -1)
        two_phase_commit = self._settings.two_phase_commit
        try:
            answer = await self._coordinators.request(
                Api.INIT_PRODUCER_ID,
                self._key,
                InitProducerIdRequest(
                    transactional_id=self._id,
                    transaction_timeout_ms=self._settings.timeout_ms,
                    producer_id=own.producer_id,
                    producer_epoch=own.epoch,
                    enable2_pc=two_phase_commit,
                ),
                lambda answer: [(answer.error_code, self._about(answer.error_code))],
                version=self._manager.version,
                at_least=TWO_PHASE_COMMIT if two_phase_commit else OWN_EPOCH if current else 0,
                at_most=TWO_PHASE_COMMIT if two_phase_commit else TWO_PHASE_COMMIT - 1,
                fails_refused=fails_refused,
                on_written=written,
                check=CoordinatorRequest(Api.DESCRIBE, self._describe, conclusive) if current else None,
            )
        except UnsupportedVersion as error:
            if not two_phase_commit:
                raise
            unsupported = UnsupportedVersion(
                f"transaction_two_phase_commit_enable: the brokers do not allow two-phase commit"
                f" ({error}); set transaction.two.phase.commit.enable=true in the brokers, and in Kafka 4.3 also"
                " unstable.api.versions.enable=true"
            )
            unsupported.abortable, unsupported.fatal = error.abortable, error.fatal
            raise unsupported from error
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def _about(self, code: int) -> str:
        """Return the option that InitProducerId refused with *code*, or an empty string."""
        return (
            f"transaction_timeout_ms = {self._settings.timeout_ms}"
            if code == InvalidTransactionTimeout.code
            else ""
        )

    async def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Add *partitions* to the transaction."""
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            topics[topic].append(partition)
        identity = self._identity
        await self._coordinators.request(
            Api.ADD_PARTITIONS,
            self._key,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
                ],
            ),
            lambda answer: [
                (each.partition_error_code, f"{topic.name}-{each.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ],
            version=self._manager.version,
            on_written=self._manager.request_written,
            on_uncertain=self._manager.request_epoch_bump,
            fails_refused=True,
        )

    async def add_offsets(self, group_id: str) -> None:
        """Add the offsets of a group to the transaction."""
        identity = self._identity
        await self._coordinators.request(
            Api.ADD_OFFSETS,
            self._key,
            AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group_id,
            ),
            lambda answer: [(answer.error_code, f"group {group_id!r}")],
            version=self._manager.version,
            on_written=self._manager.request_written,
            on_uncertain=self._manager.request_epoch_bump,
            fails_refused=True,
        )

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit *offsets* with the transaction."""
        identity = self._identity
        await self._coordinators.request(
            Api.OFFSET_COMMIT,
            Key(KeyType.GROUP, group.group_id),
            TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group.group_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=topics_of(offsets),
            ),
            lambda answer: [
                (each.error_code, f"{topic.name}-{each.partition_index}")
                for topic in answer.topics
                for each in topic.partitions
            ],
            version=self._manager.version,
            at_most=self._at_most,
            on_written=self._manager.request_written,
            on_uncertain=self._manager.request_epoch_bump,
            fails_refused=True,
        )

    async def end(self, ending: Ending) -> ProducerIdentity | None:
        """End the transaction; return the next identity if the response has one."""
        try:
            return await self._end(ending)
        except ProducerFenced:
            # In version 2, a coordinator without a request of the present transaction also returns ProducerFenced while it
            # writes the markers of the last transaction. EndTxn compares the epoch, so a retry ends no other transaction.
            if (
                ending.commits
                or self._manager.version < ADDED_BY_PRODUCE
                or not await self._has_current_identity()
            ):
                raise
        return await self._end(ending)

    async def _end(self, ending: Ending) -> ProducerIdentity | None:
        identity = self._identity

        def uncertain() -> None:
            self._manager.request_epoch_bump()
            ending.unanswered()

        answer = await self._coordinators.request(
            Api.COMMIT if ending.commits else Api.ABORT,
            self._key,
            EndTxnRequest(
                transactional_id=self._id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=ending.commits,
            ),
            lambda answer: [(answer.error_code, "")],
            version=self._manager.version,
            at_least=0 if self._manager.version < ADDED_BY_PRODUCE else BEFORE_EPOCH_BUMPS + 1,
            at_most=self._at_most,
            on_written=ending.written,
            on_uncertain=uncertain,
        )
        if self._manager.version < ADDED_BY_PRODUCE or answer.producer_id < 0:
            return None
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def _has_current_identity(self) -> bool:
        """Return True if the coordinator has this producer's id and epoch, once the last transaction's markers are written."""
        own = self._identity
        try:
            await self._coordinators.request(
                Api.DESCRIBE,
                self._key,
                self._describe,
                lambda answer: self._identity_refusals(answer, own, initialized=False),
                version=self._manager.version,
            )
        except ProducerError:
            return False
        return True

    @property
    def _describe(self) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=[self._id])

    def _identity_refusals(
        self, answer: DescribeTransactionsResponse, own: ProducerIdentity, *, initialized: bool
    ) -> list[tuple[int, str]]:
        return [
            refusal_of_identity(each, own, version=self.transaction_version, initialized=initialized)
            for each in answer.transaction_states
        ]

    @property
    def _at_most(self) -> int | None:
        return None if self._manager.version >= ADDED_BY_PRODUCE else BEFORE_EPOCH_BUMPS

    @property
    def _identity(self) -> ProducerIdentity:
        if self._manager.current is None:
            raise self._coordinators.left_cluster()
        return self._manager.current


def refusal_of_identity(
    found: Described, own: ProducerIdentity, *, version: int, initialized: bool
) -> tuple[int, str]:
    """Return the error code that *found* implies for the producer with *own*, and the subject of the error.

    0: *found* has the epoch of *own*, or the next epoch after a request with a lost response (an end in version 2, else
    InitProducerId, *initialized*). CONCURRENT_TRANSACTIONS: the epoch matches, and markers are being written.
    """
    if found.error_code:
        return found.error_code, ""
    identity, state = ProducerIdentity(found.producer_id, found.producer_epoch), found.transaction_state
    is_next = identity == own._replace(epoch=own.epoch + 1) or (
        own.epoch >= LAST_EPOCH and not identity.epoch
    )
    match state:
        case "Empty":
            is_ours = identity == own or (is_next and initialized) or identity.epoch < 0
        case "CompleteCommit" | "CompleteAbort" | "PrepareCommit" | "PrepareAbort":
            is_ours = identity == own or (is_next and version >= ADDED_BY_PRODUCE)
        case _:
            is_ours = identity == own
    if not is_ours:
        return ProducerFenced.code, f"producer id {identity.producer_id}, epoch {identity.epoch}, {state}"
    return (ConcurrentTransactions.code if state.startswith("Prepare") else 0), ""


def raise_outcome(task: asyncio.Task[ProducerError | None]) -> None:
    """Raise the error of the finished *task*; return if *task* succeeded."""
    if task.cancelled():
        raise ProducerClosed("the producer was closed, or its event loop is shutting down")
    if task.exception() is not None:
        raise crash_error(task) from task.exception()
    failed = task.result()
    if failed is not None:
        raise copy_of(failed)


def crash_error(task: asyncio.Task[Any]) -> ProducerError:
    """Return the error for a task that crashed."""
    error = ProducerError(f"{task.get_name()}: ended because of a bug in aioproducer: {task.exception()!r}")
    error.fatal = True
    return error


def copy_of(error: ProducerError) -> ProducerError:
    """Return a copy of *error* for another caller; a shared error would collect all tracebacks."""
    return caused(copy(error), error.__cause__)


def commit_error(transactional_id: str, cause: ProducerError) -> CommitFailed:
    """Return the error of a commit after a record or offsets failed with *cause*."""
    text = (
        f"the transaction of {transactional_id!r} is not committed, because a record or offset commit failed:"
        f" {type(cause).__name__}: {cause}; abort the transaction, then begin the next one"
    )
    return caused(CommitFailed(text), cause)


def timeout_error(what: str, limit_s: float, last_error: ProducerError | None) -> TransactionTimeout:
    """Return the error of a call that exceeded *limit_s* without effect at the coordinator."""
    text = f"cannot {what} within {limit_s:g} s (timeout_s, or max_block_ms without){_so_far(last_error)}"
    return caused(TransactionTimeout(text), last_error)


def unknown_outcome_error(
    what: str, limit_s: float, last_error: ProducerError | None
) -> TransactionOutcomeUnknown:
    """Return the error of a call that exceeded *limit_s* with an unknown outcome."""
    text = (
        f"{what}: no answer from the coordinator within {limit_s:g} s (timeout_s, or max_block_ms without); the"
        f" request is still pending; call the same method again to wait for the outcome{_so_far(last_error)}"
    )
    return caused(TransactionOutcomeUnknown(text), last_error)


def lost_response_error(error: ProducerError) -> TransactionOutcomeUnknown:
    """Return the error of a commit whose response was lost, and whose retry is refused with *error*."""
    unknown = TransactionOutcomeUnknown(
        "commit: the outcome is unknown, because the coordinator's response was lost and the retry was refused"
        f" ({error}); close this producer"
    )
    unknown.fatal = True
    return caused(unknown, error)


def _so_far(last_error: ProducerError | None) -> str:
    return "" if last_error is None else f"; last error: {type(last_error).__name__}: {last_error}"
