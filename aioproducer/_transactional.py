"""Transactions (KIP-98, KIP-447, KIP-890): records of several partitions that become visible together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
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
    """A transaction. `async with` commits the transaction, or aborts the transaction if the body raises.

    async with producer.transaction() as transaction:
        await producer.send("out", b"value")
        await transaction.send_offsets({("in", 0): 42}, group)
    """

    commit_timeout_s: float | None = None
    """Time limit of the commit at the end of the block, in seconds; None selects `max_block_ms`."""

    def __init__(self, producer: Transactional) -> None:
        self._producer = producer
        self._number: int | None = None
        self._is_handed_out = False
        """True once `prepare` has returned, so that another process may end the transaction."""

    def __repr__(self) -> str:
        return f"<Transaction of {self._producer.config.transactional_id!r}>"

    async def __aenter__(self) -> Self:
        """Begin the transaction."""
        await self._begin()
        return self

    async def _begin(self) -> None:
        transactions = self._producer._transactions()  # noqa: SLF001 - of this package
        with self._producer._timed("begin_s"):  # noqa: SLF001 - of this package
            await transactions.begin()
        self._number = transactions.number

    async def send_offsets(
        self, offsets: Mapping[Any, Any], group: object, *, timeout_s: float | None = None
    ) -> None:
        """Call `Producer.send_offsets_to_transaction` for this transaction."""
        self._check_current("send offsets")
        await self._producer.send_offsets_to_transaction(offsets, group, timeout_s=timeout_s)

    async def prepare(self, timeout_s: float | None = None) -> PreparedTransaction:
        """Wait until all records are acknowledged; the transaction stays open, so that another process can end the transaction.

        After `prepare` the producer accepts no record; only commit, abort and close are allowed. The end of the block and
        the close of the producer leave the transaction open. Cancelling only ends the waiting.

        Raises: CommitFailed if a record or offsets failed; TransactionTimeout after *timeout_s* (None: `max_block_ms`).
        """
        self._check_current("prepare")
        transactions = self._producer._transactions()  # noqa: SLF001 - of this package
        await transactions.prepare(check_timeout(timeout_s))
        self._is_handed_out = True
        return transactions.prepared()

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Commit the transaction, or abort if the body raised. A transaction that the body ended or prepared is kept."""
        engine = self._producer._engine  # noqa: SLF001 - of this package
        if engine is None or engine.transactions is None or engine.transactions.number != self._number:
            return
        transactions = engine.transactions
        if error is None:
            # The commit of a failed or closed producer raises; without the commit, the block would end without an error.
            if transactions.is_undecided or transactions.has_failed:
                await self._commit(transactions)
        elif transactions.manager.can_be_aborted and not self._is_handed_out:
            await self._abort(transactions, error)

    async def _commit(self, transactions: Transactions) -> None:
        try:
            await self._producer.commit_transaction(self.commit_timeout_s)
        except ProducerError as failure:
            if not failure.abortable:
                raise
            try:
                await self._producer._abort(transactions, None)  # noqa: SLF001 - of this package
            except ProducerError as late:  # the next begin waits for the abort; no record is committed
                if late.fatal:
                    raise
                _left_open(self._producer, late)
            if isinstance(failure, CommitFailed):
                raise
            failed = CommitFailed(f"the transaction was aborted: {failure}")
            raise failed from failure

    async def _abort(self, transactions: Transactions, error: BaseException) -> None:
        from anyio import CancelScope  # noqa: PLC0415 - needed on errors only

        cancelled = not isinstance(error, Exception)
        limit_s = self._producer.config.request_timeout_ms / 1000 if cancelled else None
        try:
            with CancelScope(shield=True):  # a cancelled scope of anyio cancels every await in the scope
                await self._producer._abort(transactions, limit_s)  # noqa: SLF001 - of this package
        except ProducerError as failure:
            if failure.fatal and not cancelled:
                raise
            _left_open(self._producer, failure)

    def _check_current(self, what: str) -> None:
        transactions = self._producer._transactions()  # noqa: SLF001 - of this package
        if self._number is None:
            raise TransactionStateError(
                f"cannot {what}: this transaction has not begun; use it in `async with`"
            )
        if transactions.number != self._number:
            raise TransactionStateError(f"cannot {what}: this transaction is over")


class Transactional(Lifecycle):
    """The transactional methods of `Producer`."""

    def transaction(self) -> Transaction:
        """Return a transaction that `async with` begins, and commits or aborts at the end of the block.

        Raises, at the end of the block: CommitFailed after an abort, if a record or offsets failed;
        TransactionOutcomeUnknown if the coordinator did not answer in time (`commit_transaction` continues to wait); a
        fatal error; else the error of the body. If the body is cancelled, the abort takes at most `request_timeout_ms`.
        """
        return Transaction(self)

    async def begin_transaction(self) -> Transaction:
        """Begin a transaction after the outcome of the previous transaction. No request is sent.

        Raises: TransactionStateError: a transaction is open. CommitFailed: the last commit failed after its call was
            cancelled or timed out; call `abort_transaction`. ProducerError: a fatal error.
        """
        transaction = Transaction(self)
        await transaction._begin()  # noqa: SLF001 - of this package
        return transaction

    async def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group: object, *, timeout_s: float | None = None
    ) -> None:
        """Commit *offsets* of a consumer group with the transaction.

        Args:
            offsets: a mapping of (topic, partition), or objects with these attributes, to the next offset to read,
                (offset, metadata), or objects with `offset`, `metadata` and `leader_epoch`.
            group: the name of the group, a GroupMetadata, an object with its attributes, or the result of confluent-kafka's
                `consumer_group_metadata()`. With a name only, the broker does not check the membership of the
                consumer (KIP-447).
            timeout_s: time limit in seconds; None: `max_block_ms`.

        Cancelling only ends the waiting.

        Raises: TypeError, ValueError: an argument is invalid. CommitFailed: the group removed the consumer.
            TransactionTimeout. TransactionStateError: no transaction is open.
        """
        from aioproducer._core.transactions.transaction_types import GroupMetadata, offsets_of  # noqa: PLC0415

        transactions = self._transactions()
        with self._timed("send_offsets_s"):
            limit_s = check_timeout(timeout_s)
            await transactions.send_offsets(offsets_of(offsets), GroupMetadata.of(group), limit_s)

    async def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Send all accepted records, and commit once all accepted records are acknowledged.

        Returns when the coordinator has recorded the commit and the done callbacks of the transaction's records have
        run; consumers that read committed records see them some milliseconds later. Cancelling stops only the
        waiting: the commit continues, and the next begin waits for the commit.

        Raises:
            CommitFailed: a record or offsets failed, awaited or not; no record is committed. Call `abort_transaction`.
            TransactionTimeout: records were not acknowledged after *timeout_s* (None: `max_block_ms`). Call
                `abort_transaction`.
            TransactionOutcomeUnknown: the coordinator has not answered; call this method again to continue to wait.
            TransactionStateError: no transaction is open.
            ProducerError: a fatal error.
        """
        transactions = self._transactions(ending=True)
        with self._timed("commit_s"):
            await transactions.commit(check_timeout(timeout_s))

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Abort the transaction: unwritten records fail with TransactionAborted; requests in flight are awaited.

        Returns after the done callbacks of the transaction's records have run. Cancelling stops only the waiting: the
        abort continues, and the next begin waits for the abort.

        Raises: TransactionTimeout, TransactionOutcomeUnknown: call this method again to continue to wait.
            TransactionStateError: no transaction is open. ProducerError: a fatal error.
        """
        await self._abort(self._transactions(), check_timeout(timeout_s))

    async def _abort(self, transactions: Transactions, timeout_s: float | None) -> None:
        with self._timed("abort_s"):
            await transactions.abort(timeout_s)

    def _timed(self, call: TransactionCall) -> AbstractContextManager[None]:
        assert self._engine is not None, "a transaction has an engine"
        return self._engine.metrics.timed(call)

    async def _start_resumed(self, prepared: PreparedTransaction, *, anew: bool = False) -> None:
        """Start with the producer id and epoch of *prepared*, and continue its transaction if the transaction is open.

        *anew* aborts the transaction with the next epoch, if no newer producer has the transactional id.

        Raises: the errors of `start`; with *anew* ProducerFenced or InvalidProducerEpoch.
        """
        from aioproducer._core.idempotence import ProducerIdentity  # noqa: PLC0415
        from aioproducer._core.transactions.transaction_requests import ResumedTransaction  # noqa: PLC0415

        identity = ProducerIdentity(prepared.producer_id, prepared.epoch)
        await self._start(ResumedTransaction(identity, prepared.transaction_version, next_epoch=anew))

    def _identity(self) -> PreparedTransaction:
        """Return the producer id and epoch of the open or next transaction, for `_start_resumed`."""
        return self._transactions().prepared()

    def _transactions(self, *, ending: bool = False) -> Transactions:
        """Return the transactions of a started producer; with *ending*, also of a failed producer with a pending outcome."""
        transactions = None if self._engine is None else self._engine.transactions
        may_end = ending and self._state is State.FAILED
        if may_end and transactions is not None and transactions.is_outcome_pending:
            return transactions
        engine: Engine = self._started()
        engine.intake.check_loop()
        if engine.transactions is None:
            raise ConfigError("the producer has no transactional_id: give it one to use transactions")
        return engine.transactions


def _left_open(producer: Transactional, error: ProducerError) -> None:
    engine = producer._engine  # noqa: SLF001 - of this package
    subject = Pairs(transactional_id=producer.config.transactional_id)
    (engine.limits if engine is not None else LogLimits()).log(
        log,
        logging.WARNING,
        subject,
        "transaction.left_open %s error=%s: %s",
        *(subject, type(error).__name__, error),
    )
