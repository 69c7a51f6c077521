"""The transactional half of aiokafka's producer, on top of ours."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from aioproducer._core.transactions.transaction_types import GroupMetadata
from aioproducer._transactional import Transaction
from aioproducer.compat.aiokafka import errors
from aioproducer.compat.aiokafka.aiokafka_options import NEVER_MS
from aioproducer.compat.aiokafka.translation import also_theirs, translating

if TYPE_CHECKING:
    from aioproducer.producer import Producer

NEVER_S: Final = NEVER_MS / 1000
"""aiokafka waits for the end of a transaction as long as it takes."""


class PatientTransaction(Transaction):
    """A transaction whose commit waits for as long as it takes."""

    commit_timeout_s: float | None = NEVER_S


class TransactionContext:
    """A transaction: `async with` commits it, or aborts it if the body raises."""

    def __init__(self, producer: AIOKafkaTransactions) -> None:
        self._producer = producer
        self._transaction: PatientTransaction | None = None

    async def __aenter__(self) -> Self:
        """Begin."""
        ours = self._producer._transactional()  # noqa: SLF001 - our own
        with translating():
            self._transaction = await PatientTransaction(ours).__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, and abort if that fails; or abort, and let out what the body raised.

        Raises, instead of that: ProducerFenced, if it turns out then, as aiokafka does.
        """
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        with translating():
            await transaction.__aexit__(exc_type, exc_value, traceback)


class AIOKafkaTransactions:
    """What needs a `transactional_id`; without one, each call raises IllegalOperation."""

    _producer: Producer

    async def begin_transaction(self) -> None:
        """Begin a transaction, once the one before is over."""
        ours = self._transactional()
        with translating():
            _ = await ours.begin_transaction()

    async def commit_transaction(self) -> None:
        """Send what was taken, and commit, however long it takes. Cancelling only ends the waiting.

        Raises: why a record or offsets of it have failed: then nothing is committed, and it has to be aborted.
            ProducerFenced: another producer has the same transactional id. IllegalOperation: none is open.
        """
        ours = self._transactional()
        with translating():
            await ours.commit_transaction(NEVER_S)

    async def abort_transaction(self) -> None:
        """Abort: what was not sent fails. Cancelling only ends the waiting. Raises: as `commit_transaction`."""
        ours = self._transactional()
        with translating():
            await ours.abort_transaction(NEVER_S)

    def transaction(self) -> TransactionContext:
        """Return what begins a transaction when it is entered, and commits or aborts it when it is left."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group_id: str | GroupMetadata
    ) -> None:
        """Commit *offsets*, the next to be read, with the transaction.

        aiokafka takes the group's name alone, and then nobody checks whether the consumer is still a member;
        `group_metadata_of(consumer)` says who it is.

        Raises: ValueError, TypeError: an argument. IllegalOperation: none is open. IllegalGenerationError and the like:
            the group has gone on without the consumer.
        """
        ours = self._transactional()
        if not group_id or not offsets:
            with translating():
                ours._transactions().check_sending("send offsets")  # noqa: SLF001 - our own
            raise ValueError(f"group_id={group_id!r}, offsets={offsets!r}: neither may be empty")
        with translating():
            await ours.send_offsets_to_transaction(offsets, group_id, timeout_s=NEVER_S)

    def _transactional(self) -> Producer:
        if self._producer.config.transactional_id is None:
            raise also_theirs(errors.IllegalOperation)(
                "a producer without a transactional_id has no transactions"
            )
        return self._producer
