"""The transactional half of aiokafka's producer, on top of ours."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from aioproducer._core.steps import Log
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


log: Final = Log(__name__)

KNOWN: Final = ("0.11.", "0.12.", "0.13.", "0.14.")
"""The releases of aiokafka whose coordinator was looked at; `tests/kafka` has the newest."""


def group_metadata_of(consumer: Any) -> GroupMetadata:
    """Return who *consumer*, an AIOKafkaConsumer with a `group_id`, is in its group now.

        group = group_metadata_of(consumer)          # before the records are fetched
        records = await consumer.getmany(timeout_ms=1000)
        ...
        await producer.send_offsets_to_transaction(offsets, group)

    Take it before the records: aiokafka rebalances in the background, and who asks afterwards may be told of a
    generation in which the records are another's. With one of before, the group refuses the offsets.

    While the consumer is not a member, since the group is just being rebalanced, what is returned is refused by the
    group, too. A consumer that was assigned its partitions by hand is no member, and nobody is checked.

    It reads what aiokafka does not publish. Of a release that is not known it reads nothing: then this is the group's
    name alone, a warning is logged, and nobody checks whether the consumer still is a member.

    Raises: ValueError: the consumer has no group, or is not started.
    """
    group_id = getattr(consumer, "_group_id", None)
    if group_id is None:
        raise ValueError(
            "the consumer has no group_id, so there is no group whose offsets could be committed"
        )
    version = _version()
    if not version.startswith(KNOWN):
        log.warning("compat.group_unchecked group=%s aiokafka=%s", group_id, version)
        return GroupMetadata(group_id)
    coordinator = consumer._coordinator  # noqa: SLF001 - what this is here for
    if coordinator is None:
        raise ValueError("the consumer is not started, so that nobody knows who it is in its group")
    if not consumer._subscription.partitions_auto_assigned():  # noqa: SLF001
        return GroupMetadata(group_id)
    instance_id = consumer._group_instance_id  # noqa: SLF001
    # Below 0 the group would check nothing.
    return GroupMetadata(group_id, max(coordinator.generation, 0), coordinator.member_id, instance_id)


def _version() -> str:
    import aiokafka  # noqa: PLC0415 - who has its consumer has it

    return str(aiokafka.__version__)
