"""Transactions of aiokafka's producer, and the group membership of its consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from aioproducer._core.steps import Log
from aioproducer._core.transactions.transaction_types import GroupMetadata
from aioproducer._transactional import Transaction
from aioproducer.compat.aiokafka import errors
from aioproducer.compat.aiokafka.aiokafka_options import UNLIMITED_MS
from aioproducer.compat.aiokafka.translation import as_aiokafka, translating

if TYPE_CHECKING:
    from aioproducer.producer import Producer


UNLIMITED_S: Final = UNLIMITED_MS / 1000
"""Time limit for the end of a transaction, in seconds. aiokafka waits without limit."""


class UnlimitedTransaction(Transaction):
    """A transaction whose commit waits without a time limit."""

    commit_timeout_s: float | None = UNLIMITED_S


class TransactionContext:
    """A transaction: `async with` commits it, or aborts it if the body raises."""

    def __init__(self, producer: AIOKafkaTransactions) -> None:
        self._producer = producer
        self._transaction: UnlimitedTransaction | None = None

    async def __aenter__(self) -> Self:
        """Begin."""
        producer = self._producer._transactional()  # noqa: SLF001 - of this package
        with translating():
            self._transaction = await UnlimitedTransaction(producer).__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Commit, and abort if the commit fails. If the body raised, abort and re-raise its error.

        Raises: ProducerFenced in place of the body's error, as in aiokafka.
        """
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        with translating():
            await transaction.__aexit__(kind, error, traceback)


class AIOKafkaTransactions:
    """Calls that need a `transactional_id`. Without it, each call raises IllegalOperation."""

    _producer: Producer

    async def begin_transaction(self) -> None:
        """Begin a transaction after the end of the previous transaction."""
        producer = self._transactional()
        with translating():
            _ = await producer.begin_transaction()

    async def commit_transaction(self) -> None:
        """Send all records of the transaction, and commit without a time limit. Cancelling only ends the waiting.

        Raises: the error of a failed record or offset; the transaction must then be aborted. ProducerFenced: another
            producer has the same transactional id. IllegalOperation: no transaction is open.
        """
        producer = self._transactional()
        with translating():
            await producer.commit_transaction(UNLIMITED_S)

    async def abort_transaction(self) -> None:
        """Abort; unsent records fail. Cancelling only ends the waiting. Raises: as `commit_transaction`."""
        producer = self._transactional()
        with translating():
            await producer.abort_transaction(UNLIMITED_S)

    def transaction(self) -> TransactionContext:
        """Return a context manager that begins a transaction, and commits or aborts it at its exit."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group_id: str | GroupMetadata
    ) -> None:
        """Commit *offsets*, the next to be read, with the transaction.

        With the group's name alone, as in aiokafka, the coordinator does not check the consumer's membership. With
        `group_metadata_of(consumer)` the coordinator checks the membership.

        Raises: ValueError, TypeError: an argument is invalid. IllegalOperation: no transaction is open.
            IllegalGenerationError, UnknownMemberIdError: the group has rebalanced without the consumer.
        """
        producer = self._transactional()
        if not group_id or not offsets:
            with translating():
                producer._transactions().check_sending("send offsets")  # noqa: SLF001 - of this package
            raise ValueError(f"group_id={group_id!r}, offsets={offsets!r}: neither may be empty")
        with translating():
            await producer.send_offsets_to_transaction(offsets, group_id, timeout_s=UNLIMITED_S)

    def _transactional(self) -> Producer:
        if self._producer.config.transactional_id is None:
            raise as_aiokafka(errors.IllegalOperation)(
                "a producer without a transactional_id has no transactions"
            )
        return self._producer


log: Final = Log(__name__)

KNOWN: Final = ("0.11.", "0.12.", "0.13.", "0.14.")
"""Releases of aiokafka whose private attributes are known; `tests/kafka` has the newest."""


def group_metadata_of(consumer: Any) -> GroupMetadata:
    """Return the current group membership of *consumer*, an AIOKafkaConsumer with a `group_id` (KIP-447).

        group = group_metadata_of(consumer)          # before the records are fetched
        records = await consumer.getmany(timeout_ms=1000)
        ...
        await producer.send_offsets_to_transaction(offsets, group)

    Call this function before fetching the records. aiokafka rebalances in the background, so a later call may return a
    newer generation, in which another consumer owns the partitions. The group refuses offsets with the earlier
    generation.

    During a rebalance the consumer is not a member, and the group refuses the offsets. For a consumer with manually
    assigned partitions, the group checks no membership.

    The function reads private attributes of aiokafka. For an unknown release it logs a warning and returns the group's
    name alone, and the group checks no membership.

    Raises: ValueError: the consumer has no group, or is not started.
    """
    group_id = getattr(consumer, "_group_id", None)
    if group_id is None:
        raise ValueError("the consumer has no group_id, so offsets cannot be committed; give it a group_id")
    version = _version()
    if not version.startswith(KNOWN):
        log.warning("compat.group_unchecked group=%s aiokafka=%s", group_id, version)
        return GroupMetadata(group_id)
    coordinator = consumer._coordinator  # noqa: SLF001 - has no public counterpart
    if coordinator is None:
        raise ValueError("the consumer is not started, so it is no member of its group; start it")
    if not consumer._subscription.partitions_auto_assigned():  # noqa: SLF001
        return GroupMetadata(group_id)
    instance_id = consumer._group_instance_id  # noqa: SLF001
    # With a negative generation the group would check nothing.
    return GroupMetadata(group_id, max(coordinator.generation, 0), coordinator.member_id, instance_id)


def _version() -> str:
    import aiokafka  # noqa: PLC0415 - installed if the consumer exists

    return str(aiokafka.__version__)
