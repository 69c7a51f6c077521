"""The requests of a transaction, in the versions that match its transaction.version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from aioproducer._core.idempotence import ProducerIdentity
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
    ConcurrentTransactions,
    InvalidTransactionTimeout,
    ProducerError,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
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
NO_EVIDENCE: Final = frozenset({TransactionalIdNotFound.code, TransactionalIdAuthorizationFailed.code})
"""Answers of DescribeTransactions that leave the decision to InitProducerId: an expired id, or a missing DESCRIBE permission."""


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
    """`transaction.version` of that transaction."""
    next_epoch: bool = False
    """True to request the next epoch, which aborts that transaction and is refused if a newer producer has the id."""


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

    async def init_producer_id(self, *, fails_refused: bool = False) -> ProducerIdentity:
        """Return a producer id, or the next epoch of the current id; *fails_refused* as for `Coordinators.request`.

        If a transaction is open, the coordinator compares the producer id alone, and aborts that transaction even if it
        is a successor's. So DescribeTransactions is sent directly before, to check that the epoch is still ours.
        """
        asked = False

        def written() -> None:
            nonlocal asked
            asked = True

        def not_ours(answer: DescribeTransactionsResponse) -> Refusals:
            codes = self._not_ours(answer, own, asked=asked)
            return [(code, about) for code, about in codes if code not in NO_EVIDENCE]

        own = self._manager.current or ProducerIdentity(-1, -1)
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
                at_least=TWO_PHASE_COMMIT if two_phase_commit else OWN_EPOCH if own.producer_id >= 0 else 0,
                at_most=TWO_PHASE_COMMIT if two_phase_commit else TWO_PHASE_COMMIT - 1,
                fails_refused=fails_refused,
                on_written=written,
                check=None
                if own.producer_id < 0
                else CoordinatorRequest(Api.DESCRIBE, self._describe, not_ours),
            )
        except UnsupportedVersion as error:
            if not two_phase_commit:
                raise
            unsupported = UnsupportedVersion(
                f"transaction_two_phase_commit_enable: the brokers do not allow it ({error}); they take"
                " transaction.two.phase.commit.enable=true, and in Kafka 4.3 unstable.api.versions.enable=true"
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

    async def end(
        self, *, commit: bool, on_written: Callable[[], None], on_unanswered: Callable[[], None]
    ) -> ProducerIdentity | None:
        """End the transaction; return the next identity if the response has one."""
        try:
            return await self._end(commit=commit, on_written=on_written, on_unanswered=on_unanswered)
        except ProducerFenced:
            # Version 2 also answers this while the markers of our last transaction are being written and nothing of the current
            # one has reached the coordinator. EndTxn compares the epoch, so repeating it never ends a successor's.
            if commit or self._manager.version < ADDED_BY_PRODUCE or not await self._is_ours():
                raise
        return await self._end(commit=commit, on_written=on_written, on_unanswered=on_unanswered)

    async def _end(
        self, *, commit: bool, on_written: Callable[[], None], on_unanswered: Callable[[], None]
    ) -> ProducerIdentity | None:
        identity = self._identity

        def uncertain() -> None:
            self._manager.request_epoch_bump()
            on_unanswered()

        answer = await self._coordinators.request(
            Api.COMMIT if commit else Api.ABORT,
            self._key,
            EndTxnRequest(
                transactional_id=self._id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=commit,
            ),
            lambda answer: [(answer.error_code, "")],
            version=self._manager.version,
            at_least=0 if self._manager.version < ADDED_BY_PRODUCE else BEFORE_EPOCH_BUMPS + 1,
            at_most=self._at_most,
            on_written=on_written,
            on_uncertain=uncertain,
        )
        if self._manager.version < ADDED_BY_PRODUCE or answer.producer_id < 0:
            return None
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def _is_ours(self) -> bool:
        """Return True if the coordinator has our producer id and epoch, once our last markers are written."""
        own = self._identity
        try:
            await self._coordinators.request(
                Api.DESCRIBE,
                self._key,
                self._describe,
                lambda answer: self._not_ours(answer, own, asked=False),
                version=self._manager.version,
            )
        except ProducerError:
            return False
        return True

    @property
    def _describe(self) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=[self._id])

    def _not_ours(
        self, answer: DescribeTransactionsResponse, own: ProducerIdentity, *, asked: bool
    ) -> list[tuple[int, str]]:
        return [
            found_not_ours(each, own, version=self.transaction_version, asked=asked)
            for each in answer.transaction_states
        ]

    @property
    def _at_most(self) -> int | None:
        return None if self._manager.version >= ADDED_BY_PRODUCE else BEFORE_EPOCH_BUMPS

    @property
    def _identity(self) -> ProducerIdentity:
        if self._manager.current is None:
            raise self._coordinators.left_cluster() or AssertionError("a transaction without a producer id")
        return self._manager.current


def found_not_ours(found: Described, own: ProducerIdentity, *, version: int, asked: bool) -> tuple[int, str]:
    """Return the error code for the producer with *own* that follows from DescribeTransactions, and its subject.

    0: the epoch is ours, or the next one after a request with a lost answer (an end in version 2, else
    InitProducerId, *asked*). CONCURRENT_TRANSACTIONS: the epoch matches, and markers are being written.
    """
    if found.error_code:
        return found.error_code, ""
    identity, state = ProducerIdentity(found.producer_id, found.producer_epoch), found.transaction_state
    is_next = identity == own._replace(epoch=own.epoch + 1) or (
        own.epoch >= LAST_EPOCH and not identity.epoch
    )
    match state:
        case "Empty":
            is_ours = identity == own or (is_next and asked) or identity.epoch < 0
        case "CompleteCommit" | "CompleteAbort" | "PrepareCommit" | "PrepareAbort":
            is_ours = identity == own or (is_next and version >= ADDED_BY_PRODUCE)
        case _:
            is_ours = identity == own
    if not is_ours:
        return ProducerFenced.code, f"producer id {identity.producer_id}, epoch {identity.epoch}, {state}"
    return (ConcurrentTransactions.code if state.startswith("Prepare") else 0), ""
