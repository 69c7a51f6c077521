"""The transaction coordinator: no I/O, no clock.

One for the whole cluster: in Kafka each broker coordinates some of the ids, but what it knows is in a topic, and moves
with its leader. How a request behaves depends on its version, not on the cluster's `transaction.version`, as there;
that alone decides whether somebody who is fenced by the coordinator itself may go on (KIP-890).

Source: Kafka's TransactionCoordinator and TransactionMetadata; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from aioproducer.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from aioproducer.testing.faults import Target
from aioproducer.testing.refusal import Refused
from aioproducer.testing.transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    Identity,
    Transaction,
    TransactionState as State,
)

MAX_TIMEOUT_MS: Final = 900_000
"""Kafka's default for `transaction.max.timeout.ms`."""
BUMPS_WHO_IS_FENCED: Final = 2
"""From this `transaction.version` on a producer whose transaction has timed out may go on in a new epoch."""


class Coordinator:
    """The transactional ids of a cluster.

    It calls *begun* for each transaction that begins, whose timeout runs from then on, and *prepared* for each that is
    to end: when all markers are written, `complete` is to be called. All methods raise Refused, with the code that a
    broker answers.
    """

    def __init__(
        self,
        new_producer_id: Callable[[], int],
        *,
        begun: Callable[[Transaction], None],
        prepared: Callable[[Transaction], None],
    ) -> None:
        self.transaction_version: int = 2
        self.transactions: Final[dict[str, Transaction]] = {}
        self._new_producer_id = new_producer_id
        self._begun, self._prepared = begun, prepared

    def init(self, transactional_id: str, timeout_ms: int, own: Identity | None) -> Identity:
        """Return who may use the id from now on; with *own* it has to be that one's producer that goes on.

        What is open is aborted first; then it has to be called again.
        """
        if not transactional_id:
            raise Refused(InvalidRequest, "a transactional id cannot be empty")
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            raise Refused(
                InvalidTransactionTimeout, f"a timeout is up to {MAX_TIMEOUT_MS} ms, not {timeout_ms}"
            )
        known = self.transactions.get(transactional_id)
        if known is None:
            known = self.transactions[transactional_id] = Transaction(
                transactional_id, self._new_producer_id()
            )
        if own is not None and known.epoch != NO_EPOCH and not _has_been(known, own):
            raise _fenced(known)
        if known.state is State.ONGOING:
            self._fence(known)
            raise Refused(ConcurrentTransactions, "the open transaction is aborted first")
        if known.state.is_prepared:
            raise Refused(ConcurrentTransactions, "the last transaction is not complete")
        self._next_epoch(known, own)
        known.timeout_ms, known.state = timeout_ms, State.EMPTY
        return known.identity

    def _next_epoch(self, known: Transaction, own: Identity | None) -> None:
        if own is not None and known.epoch not in {NO_EPOCH, own.epoch}:
            if own.epoch != known.last_epoch and own.producer_id != known.previous_producer_id:
                raise _fenced(known)
            return  # asked before, and not answered
        if known.epoch >= LAST_EPOCH:
            known.previous_producer_id, known.producer_id = known.producer_id, self._new_producer_id()
            known.epoch = known.last_epoch = NO_EPOCH
        known.last_epoch = NO_EPOCH if own is None else known.epoch
        known.epoch += 1

    def add(
        self,
        transactional_id: str,
        identity: Identity,
        *,
        partitions: Collection[Target] = (),
        groups: Collection[str] = (),
        now_ms: int = 0,
    ) -> None:
        """Let partitions, or the offsets of groups, be part of the transaction, which begins if there is none."""
        known = self._of(transactional_id, identity)
        if known.state.is_prepared:
            raise Refused(ConcurrentTransactions, "the last transaction is not complete")
        if known.state is not State.ONGOING:
            known.state = State.ONGOING
            known.number += 1
            known.started_ms = now_ms
            self._begun(known)
        known.partitions.update(partitions)
        known.groups.update(groups)

    def verify(self, transactional_id: str, identity: Identity, part: Target | str) -> None:
        """Refuse a partition, or a group, that is not part of the open transaction."""
        known = self._of(transactional_id, identity)
        if known.state.is_prepared:
            raise Refused(ConcurrentTransactions, "the last transaction is not complete")
        if known.state is not State.ONGOING or not (part in known.partitions or part in known.groups):
            raise Refused(TransactionAbortable, f"{part} was not added to the transaction")

    def end(
        self, transactional_id: str, identity: Identity, *, committed: bool, bumps_epoch: bool
    ) -> Identity:
        """End the transaction, and return who may use the id then: with *bumps_epoch* (EndTxn 5) in the next epoch."""
        known = self._of_id(transactional_id)
        if bumps_epoch and known.state.is_prepared:  # Kafka checks the state before the epoch
            raise Refused(ConcurrentTransactions, "the transaction is not complete")
        behind = bumps_epoch and known.state is not State.ONGOING and known.is_behind(identity)
        if identity.producer_id != known.producer_id and not behind:
            raise _another_id(known)
        if identity.epoch != known.epoch and not behind:
            raise _fenced(known)
        state, wrong = known.state, _wrong_state(known, committed=committed)
        if state is State.ONGOING:
            self._prepare(known, committed=committed, bumps_epoch=bumps_epoch)
        elif state.is_prepared:
            raise Refused(ConcurrentTransactions, "the transaction is not complete")
        elif state is State.EMPTY and behind:
            raise _fenced(known)
        elif state.is_complete and (behind or not bumps_epoch):
            if committed != (state is State.COMPLETE_COMMIT):
                raise wrong
        elif committed or not bumps_epoch:
            raise wrong
        else:  # an abort of nothing: whatever may still come of the producer is to be fenced
            self._prepare(known, committed=False, bumps_epoch=True)
        return known.identity

    def expire(self, known: Transaction, number: int) -> None:
        """Abort the transaction with this *number*, if it is still open."""
        if known.state is State.ONGOING and known.number == number:
            self._fence(known)

    def complete(self, known: Transaction) -> None:
        """Note that all markers are written."""
        committed = known.state is State.PREPARE_COMMIT
        known.state = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
        known.partitions.clear()
        known.groups.clear()
        if known.next_producer_id >= 0:
            known.previous_producer_id = known.producer_id
            known.producer_id, known.epoch, known.last_epoch = known.next_producer_id, 0, NO_EPOCH
            known.next_producer_id = -1

    def described(self, transactional_id: str) -> Transaction:
        """Return what is known of an id."""
        known = self.transactions.get(transactional_id)
        if known is None:
            raise Refused(TransactionalIdNotFound, f"nobody has used the id {transactional_id!r}")
        return known

    def _fence(self, known: Transaction) -> None:
        """Abort what is open, in an epoch of the coordinator's own."""
        goes_on = self.transaction_version >= BUMPS_WHO_IS_FENCED
        known.last_epoch = known.epoch if goes_on else NO_EPOCH
        known.epoch += 1
        self._prepare(known, committed=False, bumps_epoch=False)

    def _prepare(self, known: Transaction, *, committed: bool, bumps_epoch: bool) -> None:
        if bumps_epoch:
            if known.epoch >= LAST_EPOCH:
                known.next_producer_id = self._new_producer_id()
            known.last_epoch = known.epoch
            known.epoch += 1
        known.state = State.PREPARE_COMMIT if committed else State.PREPARE_ABORT
        self._prepared(known)

    def _of_id(self, transactional_id: str) -> Transaction:
        known = self.transactions.get(transactional_id)
        if known is None:
            raise Refused(InvalidProducerIdMapping, f"nobody has used the id {transactional_id!r}")
        return known

    def _of(self, transactional_id: str, identity: Identity) -> Transaction:
        known = self._of_id(transactional_id)
        if identity.producer_id != known.producer_id:
            raise _another_id(known)
        if identity.epoch != known.epoch:
            raise _fenced(known)
        return known


def _has_been(known: Transaction, own: Identity) -> bool:
    """Whether the id is, or was just before, that producer's; its epoch is looked at later."""
    return own.producer_id == known.producer_id or (
        own.producer_id == known.previous_producer_id and own.epoch >= LAST_EPOCH
    )


def _another_id(known: Transaction) -> Refused:
    return Refused(
        InvalidProducerIdMapping, f"{known.transactional_id!r} has producer id {known.producer_id}"
    )


def _fenced(known: Transaction) -> Refused:
    return Refused(ProducerFenced, f"{known.transactional_id!r} has epoch {known.epoch}")


def _wrong_state(known: Transaction, *, committed: bool) -> Refused:
    return Refused(InvalidTxnState, f"{'commit' if committed else 'abort'} in state {known.state}")
