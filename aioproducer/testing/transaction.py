"""What a coordinator knows of one transactional id (Kafka's TransactionMetadata)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from aioproducer.testing.faults import Target

NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32_766
"""After it there is a new producer id: the largest int16 is left for fencing."""


class TransactionState(StrEnum):
    """The states, by their names in DescribeTransactions and ListTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided how the transaction ends, and its markers are not all written."""
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}

    @property
    def is_complete(self) -> bool:
        """Whether the last transaction has ended."""
        return self in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}


class Identity(NamedTuple):
    """A producer id and epoch."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Transaction:
    """One transactional id: who may use it, and how far its transaction is."""

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    """The epoch before, if whoever has it may ask again for the present one."""
    previous_producer_id: int = -1
    next_producer_id: int = -1
    """Taken when the markers are written; -1 if the present one goes on."""
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: set[Target] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    started_ms: int = -1
    number: int = 0
    """Counts the transactions of the id: a timer is for one of them."""

    @property
    def identity(self) -> Identity:
        """Who may use it; while it ends, who may use it then."""
        if self.next_producer_id >= 0:
            return Identity(self.next_producer_id, 0)
        return Identity(self.producer_id, self.epoch)

    def is_behind(self, identity: Identity) -> bool:
        """Whether *identity* is the one before, of an end that bumped the epoch and was not heard of."""
        if identity.producer_id == self.previous_producer_id:
            return identity.epoch == LAST_EPOCH and self.epoch == 0
        return identity == (self.producer_id, self.last_epoch) and self.last_epoch == self.epoch - 1
