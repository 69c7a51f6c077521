"""Transactions as users see them (KIP-98, KIP-447, KIP-890): records of many partitions that become visible together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from aioproducer._core.intake.checks import check_timeout
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.steps import Log
from aioproducer._lifecycle import Lifecycle, State
from aioproducer.errors import (
    CommitFailed,
    ConfigError,
    ProducerError,
    TransactionStateError,
)

if TYPE_CHECKING:
    from aioproducer._core.metrics import TransactionCall
    from aioproducer._core.transactions.producer_transactions import Transactions
    from aioproducer._core.transactions.transaction_types import PreparedTransaction
    from aioproducer._engine import Engine

log: Final = Log(__name__)


class Transaction:
    """A transaction: `async with` commits it, or aborts it if the body raises.

    async with producer.transaction() as transaction:
        await producer.send("out", b"value")
        await transaction.send_offsets({("in", 0): 42}, group)
    """

    commit_timeout_s: float | None = None
    """How long leaving the block waits for the commit; None: `max_block_ms`."""

    def __init__(self, producer: Transactional) -> None:
        self._producer = producer
        self._number: int | None = None
        self._is_handed_out = False
        """Whether somebody else may end it, since `prepare` has returned."""

    def __repr__(self) -> str:
        return f"<Transaction of {self._producer.config.transactional_id!r}>"

    async def __aenter__(self) -> Self:
        """Begin."""
        await self._begin()
        return self

    async def _begin(self) -> None:
        transactions = self._producer._transactions()  # noqa: SLF001 - our own
        with self._producer._timed("begin_s"):  # noqa: SLF001 - our own
            await transactions.begin()
        self._number = transactions.number

    async def send_offsets(
        self, offsets: Mapping[Any, Any], group: object, *, timeout_s: float | None = None
    ) -> None:
        """Do as `Producer.send_offsets_to_transaction`."""
        self._check_current("send offsets")
        await self._producer.send_offsets_to_transaction(offsets, group, timeout_s=timeout_s)

    async def prepare(self, timeout_s: float | None = None) -> PreparedTransaction:
        """Wait until everything is acknowledged, and leave the transaction open: it can be ended elsewhere.

        From then on the producer takes no record; only commit, abort and close are left, and neither leaving the block
        nor closing the producer ends the transaction. Cancelling only ends the waiting.

        Raises: CommitFailed if anything of it failed; TransactionTimeout after *timeout_s* (None: `max_block_ms`).
        """
        self._check_current("prepare")
        transactions = self._producer._transactions()  # noqa: SLF001 - our own
        await transactions.prepare(_timeout(timeout_s))
        self._is_handed_out = True
        return transactions.prepared()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit, or abort if the body raised; leave it alone if the body has ended it, or has got it prepared."""
        engine = self._producer._engine  # noqa: SLF001 - our own
        if engine is None or engine.transactions is None or engine.transactions.number != self._number:
            return
        transactions = engine.transactions
        if error is None:
            # Also if it cannot be any more, since the producer has failed or was closed: else it would seem committed.
            if transactions.is_undecided or transactions.has_failed:
                await self._commit(transactions)
        elif transactions.can_be_aborted and not self._is_handed_out:
            await self._abort(transactions, error)

    async def _commit(self, transactions: Transactions) -> None:
        try:
            await self._producer.commit_transaction(self.commit_timeout_s)
        except ProducerError as failure:
            if not failure.abortable:
                raise
            try:
                await self._producer._abort(transactions, None)  # noqa: SLF001 - our own
            except ProducerError as late:  # the next begin waits for it; that nothing is committed is certain
                if late.fatal:
                    raise
                _left_open(self._producer, late)
            if isinstance(failure, CommitFailed):
                raise
            failed = CommitFailed(f"the transaction was aborted: {failure}")
            raise failed from failure

    async def _abort(self, transactions: Transactions, error: BaseException) -> None:
        cancelled = not isinstance(error, Exception)
        limit_s = self._producer.config.request_timeout_ms / 1000 if cancelled else None
        try:
            await _shielded(self._producer._abort(transactions, limit_s))  # noqa: SLF001 - our own
        except ProducerError as failure:
            if failure.fatal and not cancelled:
                raise
            _left_open(self._producer, failure)

    def _check_current(self, what: str) -> None:
        transactions = self._producer._transactions()  # noqa: SLF001 - our own
        if self._number is None:
            raise TransactionStateError(
                f"cannot {what}: this transaction has not begun; use it in `async with`"
            )
        if transactions.number != self._number:
            raise TransactionStateError(f"cannot {what}: this transaction is over")


class Transactional(Lifecycle):
    """The transactional half of `Producer`."""

    def transaction(self) -> Transaction:
        """Return a transaction, which `async with` begins, and commits or aborts.

        Raises, on leaving the block: CommitFailed after it has aborted, if anything of it failed;
        TransactionOutcomeUnknown if the coordinator did not answer in time (`commit_transaction` waits on); a fatal
        error; else what the body raised. A body that was cancelled: it aborts, for at most `request_timeout_ms`.
        """
        return Transaction(self)

    async def begin_transaction(self) -> Transaction:
        """Begin a transaction, once the one before has its outcome. Nothing is sent for that.

        Raises: TransactionStateError: one is open. CommitFailed: the last commit, which nobody waited for, has failed;
            `abort_transaction` mends it. A fatal error.
        """
        transaction = Transaction(self)
        await transaction._begin()  # noqa: SLF001 - our own
        return transaction

    async def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group: object, *, timeout_s: float | None = None
    ) -> None:
        """Commit *offsets* of a consumer group with the transaction: what was read and what was written go together.

        Args:
            offsets: (topic, partition), or objects with these names, to the next offset to read, (offset, metadata),
                or objects with `offset`, `metadata` and `leader_epoch`.
            group: its name, a GroupMetadata, an object with the same names, or what confluent-kafka's
                `consumer_group_metadata()` returns. With a name alone nobody checks whether the consumer is still
                a member of the group (KIP-447).
            timeout_s: None is `max_block_ms`.

        Raises: TypeError, ValueError: an argument. CommitFailed: the group went on without us. TransactionTimeout.
            TransactionStateError: no transaction is open. Cancelling only ends the waiting.
        """
        from aioproducer._core.transactions.transaction_types import GroupMetadata, offsets_of  # noqa: PLC0415

        transactions = self._transactions()
        with self._timed("send_offsets_s"):
            await transactions.send_offsets(offsets_of(offsets), GroupMetadata.of(group), _timeout(timeout_s))

    async def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Send what was taken, and commit once all of it is acknowledged.

        Returns when the coordinator has recorded the commit and the done callbacks of the transaction's records have
        run; consumers that read committed records see them some milliseconds later. Cancelling stops only the
        waiting: the commit continues, and the next begin waits for it.

        Raises:
            CommitFailed: a record or offsets failed, awaited or not; nothing is committed. `abort_transaction` mends it.
            TransactionTimeout: not everything was acknowledged after *timeout_s* (None: `max_block_ms`); likewise.
            TransactionOutcomeUnknown: the coordinator was asked, and has not answered; call this again to wait on.
            TransactionStateError: no transaction is open.
            ProducerError: a fatal one.
        """
        transactions = self._transactions(ending=True)
        with self._timed("commit_s"):
            await transactions.commit(_timeout(timeout_s))

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Abort: records that were not written fail with TransactionAborted; requests in flight are awaited.

        Returns after the done callbacks of the transaction's records have run. Cancelling stops only the waiting: the
        abort continues, and the next begin waits for it.

        Raises: TransactionTimeout, TransactionOutcomeUnknown: call this again to wait on. TransactionStateError: no
            transaction is open. A fatal error.
        """
        await self._abort(self._transactions(), _timeout(timeout_s))

    async def _abort(self, transactions: Transactions, timeout_s: float | None) -> None:
        with self._timed("abort_s"):
            await transactions.abort(timeout_s)

    def _timed(self, call: TransactionCall) -> AbstractContextManager[None]:
        if self._engine is None:
            raise AssertionError("a transaction without an engine")
        return self._engine.metrics.timed(call)

    async def _go_on(self, prepared: PreparedTransaction, *, anew: bool = False) -> None:
        """Start, under the producer id and epoch of *prepared*: the first transaction is that one, if it is open.

        With *anew* it is aborted, under the next epoch; only if nobody else has initialised the id since.

        Raises: as `start`; with *anew* ProducerFenced or InvalidProducerEpoch.
        """
        from aioproducer._core.idempotence import ProducerIdentity  # noqa: PLC0415
        from aioproducer._core.transactions.transaction_requests import ResumedTransaction  # noqa: PLC0415

        identity = ProducerIdentity(prepared.producer_id, prepared.epoch)
        await self._start(ResumedTransaction(identity, prepared.transaction_version, next_epoch=anew))

    def _identity(self) -> PreparedTransaction:
        """Return under which producer id and epoch the next transaction is, or the open one, for `_go_on`."""
        return self._transactions().prepared()

    def _transactions(self, *, ending: bool = False) -> Transactions:
        """Return what does them; for an *ending* of which nobody has heard also when nothing else can be done any more."""
        transactions = None if self._engine is None else self._engine.transactions
        if ending and self._state is State.FAILED and transactions is not None and transactions.has_news:
            return transactions
        engine: Engine = self._started()
        engine.intake.check_loop()
        if engine.transactions is None:
            raise ConfigError("the producer has no transactional_id: give it one to use transactions")
        return engine.transactions


def _timeout(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else check_timeout("timeout_s", timeout_s)


def _left_open(producer: Transactional, error: ProducerError) -> None:
    engine = producer._engine  # noqa: SLF001 - our own
    subject = Pairs(transactional_id=producer.config.transactional_id)
    (engine.limits if engine is not None else LogLimits()).log(
        log,
        logging.WARNING,
        subject,
        "transaction.left_open %s error=%s: %s",
        *(subject, type(error).__name__, error),
    )


async def _shielded(work: Any) -> None:
    """Do *work* also in a scope of anyio that is cancelled, which interrupts whatever is awaited in it."""
    from anyio import CancelScope  # noqa: PLC0415 - only on the way out

    with CancelScope(shield=True):
        await work
