"""The transaction coordinator, and the timers of its transactions.

One coordinator serves the whole cluster. In Kafka each broker coordinates some of the ids, and the state moves with the
leader of a topic. As in Kafka, requests behave by their version; the cluster's `transaction.version` only decides
whether a producer that the coordinator fenced may continue (KIP-890).

Source: Kafka's TransactionCoordinator and TransactionMetadata; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from aioproducer import errors
from aioproducer.errors import BrokerError
from aioproducer.testing.faults import Refused, Target

NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32_766
"""Last epoch before a new producer id; the largest int16 is reserved for fencing."""


class TransactionState(StrEnum):
    """States of a transaction, by their names in DescribeTransactions and ListTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        """True from the decision to commit or abort until all markers are written."""
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}

    @property
    def is_complete(self) -> bool:
        """True if the last transaction has ended."""
        return self in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}


class Identity(NamedTuple):
    """A producer id and epoch."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Transaction:
    """A transactional id: its producer id and epoch, and its transaction (Kafka's TransactionMetadata)."""

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    """Previous epoch, if a request with it may be repeated; else -1."""
    previous_producer_id: int = -1
    next_producer_id: int = -1
    """Producer id after the markers; -1 if the id is unchanged."""
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: set[Target] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    started_ms: int = -1
    number: int = 0
    """Number of the id's current transaction. A timer applies to one number."""

    @property
    def identity(self) -> Identity:
        """Identity that may use the id; during the end of a transaction, the identity after the end."""
        if self.next_producer_id >= 0:
            return Identity(self.next_producer_id, 0)
        return Identity(self.producer_id, self.epoch)

    def is_behind(self, identity: Identity) -> bool:
        """True if *identity* is the identity before the epoch bump of an EndTxn whose response was lost."""
        if identity.producer_id == self.previous_producer_id:
            return identity.epoch == LAST_EPOCH and self.epoch == 0
        return identity == (self.producer_id, self.last_epoch) and self.last_epoch == self.epoch - 1


MAX_TIMEOUT_MS: Final = 900_000
"""Kafka's default for `transaction.max.timeout.ms`."""
CONTINUES_AFTER_TIMEOUT: Final = 2
"""From this `transaction.version` on a producer whose transaction timed out may continue in a new epoch."""


class Coordinator:
    """The transactional ids of a cluster.

    The coordinator calls *begun* when a transaction begins, to start its timeout, and *prepared* when a transaction is
    about to end; `complete` must follow once all markers are written. All methods raise Refused with the error code of
    a broker. This class has no I/O and no clock.
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
        self._start_timeout, self._end_timeout = begun, prepared

    def init(self, transactional_id: str, timeout_ms: int, own: Identity | None) -> Identity:
        """Return the identity that may use the id from now on. *own*: identity of a producer that continues.

        An open transaction is aborted first; the call then has to be repeated.
        """
        if not transactional_id:
            raise Refused(errors.InvalidRequest, "a transactional id cannot be empty")
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            raise Refused(
                errors.InvalidTransactionTimeout, f"a timeout is up to {MAX_TIMEOUT_MS} ms, not {timeout_ms}"
            )
        known = self.transactions.get(transactional_id)
        if known is None:
            known = self.transactions[transactional_id] = Transaction(
                transactional_id, self._new_producer_id()
            )
        if own is not None and known.epoch != NO_EPOCH and not _owns_producer_id(known, own):
            raise _fenced(known)
        if known.state is TransactionState.ONGOING:
            self._fence(known)
            raise Refused(errors.ConcurrentTransactions, "the open transaction is aborted first")
        if known.state.is_prepared:
            raise Refused(errors.ConcurrentTransactions, "the last transaction is not complete")
        self._next_epoch(known, own)
        known.timeout_ms, known.state = timeout_ms, TransactionState.EMPTY
        return known.identity

    def _next_epoch(self, known: Transaction, own: Identity | None) -> None:
        if own is not None and known.epoch not in {NO_EPOCH, own.epoch}:
            if own.epoch != known.last_epoch and own.producer_id != known.previous_producer_id:
                raise _fenced(known)
            return  # a repeated request whose response was lost
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
        """Add partitions, or the offsets of groups, to the transaction; begin one if none is open."""
        known = self._of(transactional_id, identity)
        if known.state is not TransactionState.ONGOING:
            known.state = TransactionState.ONGOING
            known.number += 1
            known.started_ms = now_ms
            self._start_timeout(known)
        known.partitions.update(partitions)
        known.groups.update(groups)

    def verify(self, transactional_id: str, identity: Identity, part: Target | str) -> None:
        """Check that a partition or group is part of the open transaction."""
        known = self._of(transactional_id, identity)
        if known.state is not TransactionState.ONGOING or not (
            part in known.partitions or part in known.groups
        ):
            raise Refused(errors.TransactionAbortable, f"{part} was not added to the transaction")

    def end(
        self, transactional_id: str, identity: Identity, *, committed: bool, bumps_epoch: bool
    ) -> Identity:
        """End the transaction and return the identity after it; *bumps_epoch* (EndTxn 5) increments the epoch."""
        known = self._existing(transactional_id, errors.InvalidProducerIdMapping)
        if bumps_epoch and known.state.is_prepared:  # Kafka checks the state before the epoch
            raise Refused(errors.ConcurrentTransactions, "the transaction is not complete")
        behind = bumps_epoch and known.state is not TransactionState.ONGOING and known.is_behind(identity)
        if identity.producer_id != known.producer_id and not behind:
            raise _wrong_producer_id(known)
        if identity.epoch != known.epoch and not behind:
            raise _fenced(known)
        state = known.state
        wrong = Refused(errors.InvalidTxnState, f"{'commit' if committed else 'abort'} in state {state}")
        if state is TransactionState.ONGOING:
            self._prepare(known, committed=committed, bumps_epoch=bumps_epoch)
        elif state.is_prepared:
            raise Refused(errors.ConcurrentTransactions, "the transaction is not complete")
        elif state is TransactionState.EMPTY and behind:
            raise _fenced(known)
        elif state.is_complete and (behind or not bumps_epoch):
            if committed != (state is TransactionState.COMPLETE_COMMIT):
                raise wrong
        elif committed or not bumps_epoch:
            raise wrong
        else:  # an abort without a transaction: it fences late requests of the producer
            self._prepare(known, committed=False, bumps_epoch=True)
        return known.identity

    def expire(self, known: Transaction, number: int) -> None:
        """Abort transaction *number*, if it is still open."""
        if known.state is TransactionState.ONGOING and known.number == number:
            self._fence(known)

    def complete(self, known: Transaction) -> None:
        """Complete the transaction, whose markers are all written."""
        committed = known.state is TransactionState.PREPARE_COMMIT
        known.state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        known.partitions.clear()
        known.groups.clear()
        if known.next_producer_id >= 0:
            known.previous_producer_id = known.producer_id
            known.producer_id, known.epoch, known.last_epoch = known.next_producer_id, 0, NO_EPOCH
            known.next_producer_id = -1

    def described(self, transactional_id: str) -> Transaction:
        """Return the transaction of an id."""
        return self._existing(transactional_id, errors.TransactionalIdNotFound)

    def _fence(self, known: Transaction) -> None:
        """Abort the open transaction in a new epoch."""
        may_continue = self.transaction_version >= CONTINUES_AFTER_TIMEOUT
        known.last_epoch = known.epoch if may_continue else NO_EPOCH
        known.epoch += 1
        self._prepare(known, committed=False, bumps_epoch=False)

    def _prepare(self, known: Transaction, *, committed: bool, bumps_epoch: bool) -> None:
        if bumps_epoch:
            if known.epoch >= LAST_EPOCH:
                known.next_producer_id = self._new_producer_id()
            known.last_epoch = known.epoch
            known.epoch += 1
        known.state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        self._end_timeout(known)

    def _existing(self, transactional_id: str, error: type[BrokerError]) -> Transaction:
        known = self.transactions.get(transactional_id)
        if known is None:
            raise Refused(error, f"no producer has used the id {transactional_id!r}")
        return known

    def _of(self, transactional_id: str, identity: Identity) -> Transaction:
        """Return the transaction of *identity*, which is not committing or aborting."""
        known = self._existing(transactional_id, errors.InvalidProducerIdMapping)
        if identity.producer_id != known.producer_id:
            raise _wrong_producer_id(known)
        if identity.epoch != known.epoch:
            raise _fenced(known)
        if known.state.is_prepared:
            raise Refused(errors.ConcurrentTransactions, "the last transaction is not complete")
        return known


def _owns_producer_id(known: Transaction, own: Identity) -> bool:
    """Return True if the id has or just had the producer id of *own*; the epoch is checked later."""
    return own.producer_id == known.producer_id or (
        own.producer_id == known.previous_producer_id and own.epoch >= LAST_EPOCH
    )


def _wrong_producer_id(known: Transaction) -> Refused:
    return Refused(
        errors.InvalidProducerIdMapping, f"{known.transactional_id!r} has producer id {known.producer_id}"
    )


def _fenced(known: Transaction) -> Refused:
    return Refused(errors.ProducerFenced, f"{known.transactional_id!r} has epoch {known.epoch}")


MARKERS_WAIT_S: Final = 0.1
"""Time that the first batch of a transaction waits for the markers of the previous transaction, as in Kafka. In
seconds."""


class TransactionTimers:
    """Timers of transactions: timeouts, and delays of markers.

    *write_markers* returns True if it wrote all markers; after False, `retry` calls it again.
    """

    def __init__(
        self, new_producer_id: Callable[[], int], write_markers: Callable[[Transaction], bool]
    ) -> None:
        self.marker_delay_s: float = 0.0
        self.coordinator: Final = Coordinator(
            new_producer_id, begun=self._start_timeout, prepared=self._end_timeout
        )
        self._write_markers = write_markers
        self._timeouts: dict[str, asyncio.TimerHandle] = {}
        self._delays: dict[str, asyncio.TimerHandle] = {}
        self._unwritten: dict[str, Transaction] = {}
        self._waiting: set[asyncio.Event] = set()

    async def wait_until_complete(self, transactional_id: str) -> None:
        """Wait up to `MARKERS_WAIT_S` for the end of a transaction that is committing or aborting."""
        known = self.coordinator.transactions.get(transactional_id)
        if known is None or not known.state.is_prepared:
            return
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(MARKERS_WAIT_S):
                    while known.state.is_prepared:
                        await changed.wait()
                        changed.clear()
        finally:
            self._waiting.discard(changed)

    def retry(self) -> None:
        """Write missing markers again, after a partition has got a leader or was deleted."""
        for known in list(self._unwritten.values()):
            self._complete(known)

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in (*self._timeouts.values(), *self._delays.values()):
            timer.cancel()

    def _start_timeout(self, known: Transaction) -> None:
        self._timeouts[known.transactional_id] = asyncio.get_running_loop().call_later(
            known.timeout_ms / 1000, partial(self.coordinator.expire, known, known.number)
        )

    def _end_timeout(self, known: Transaction) -> None:
        timeout = self._timeouts.pop(known.transactional_id, None)
        if timeout is not None:
            timeout.cancel()
        if self.marker_delay_s:
            self._delays[known.transactional_id] = asyncio.get_running_loop().call_later(
                self.marker_delay_s, self._complete, known
            )
        else:
            self._complete(known)

    def _complete(self, known: Transaction) -> None:
        self._delays.pop(known.transactional_id, None)
        if not self._write_markers(known):
            self._unwritten[known.transactional_id] = known
            return
        self._unwritten.pop(known.transactional_id, None)
        self.coordinator.complete(known)
        for changed in self._waiting:
            changed.set()
