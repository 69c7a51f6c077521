"""One class per error code about transactions, consumer groups, and those who coordinate them.

A code alone does not say what becomes of the transaction: that depends on what was asked, so the producer sets
`abortable` and `fatal` on the error that it raises.
"""

from __future__ import annotations

from aioproducer.errors.error_codes import BrokerError

__all__ = [
    "ConcurrentTransactions",
    "CoordinatorLoadInProgress",
    "CoordinatorNotAvailable",
    "FencedInstanceId",
    "GroupAuthorizationFailed",
    "IllegalGeneration",
    "InvalidProducerEpoch",
    "InvalidProducerIdMapping",
    "InvalidRegularExpression",
    "InvalidTransactionTimeout",
    "InvalidTxnState",
    "NotCoordinator",
    "OffsetMetadataTooLarge",
    "ProducerFenced",
    "TransactionAbortable",
    "TransactionalIdAuthorizationFailed",
    "TransactionalIdNotFound",
    "UnknownMemberId",
    "UnknownProducerId",
    "UnstableOffsetCommit",
]


class OffsetMetadataTooLarge(BrokerError, code=12):
    """The metadata of an offset is longer than the broker's `offset.metadata.max.bytes`, 4,096 unless told otherwise."""


class CoordinatorLoadInProgress(BrokerError, code=14, retriable=True):
    """The coordinator of the group or transactional id is still loading what it knows."""


class CoordinatorNotAvailable(BrokerError, code=15, retriable=True):
    """The group or transactional id has no coordinator at the moment."""


class NotCoordinator(BrokerError, code=16, retriable=True):
    """Another broker is the coordinator of the group or transactional id."""


class IllegalGeneration(BrokerError, code=22):
    """The group has rebalanced since the consumer joined it, so the offsets may be another's: abort, and join again."""


class UnknownMemberId(BrokerError, code=25):
    """The group does not know the consumer that the offsets are of, or no longer: abort, and let it join again."""


class GroupAuthorizationFailed(BrokerError, code=30):
    """We may not use the consumer group: committing its offsets needs Read on it."""


class InvalidProducerEpoch(BrokerError, code=47, refused=True):
    """The broker has seen a newer epoch of this producer id: its transaction timed out, say, or another has its id."""


class InvalidTxnState(BrokerError, code=48):
    """The transaction is not in a state that allows this: it has no partitions, say, or has timed out."""


class InvalidProducerIdMapping(BrokerError, code=49):
    """The producer id is not the transactional id's, or not any more: the id has expired."""


class InvalidTransactionTimeout(BrokerError, code=50):
    """`transaction_timeout_ms` is not positive, or more than the broker's `transaction.max.timeout.ms`."""


class ConcurrentTransactions(BrokerError, code=51, retriable=True):
    """The transaction before, or another operation on this one, is still being completed."""


class TransactionalIdAuthorizationFailed(BrokerError, code=53):
    """We may not use the transactional id: that needs Write on it; or the request does not name it."""


class UnknownProducerId(BrokerError, code=59, refused=True):
    """The broker has forgotten this producer id, and with it the sequences; it appends nothing then."""


class FencedInstanceId(BrokerError, code=82):
    """Another consumer has joined the group with the same `group.instance.id`: the offsets are not ours any more."""


class UnstableOffsetCommit(BrokerError, code=88, retriable=True):
    """Offsets are still to be committed by a transaction."""


class ProducerFenced(BrokerError, code=90):
    """A newer producer with the same transactional id has taken over, or the transaction has timed out."""


class TransactionalIdNotFound(BrokerError, code=105):
    """The coordinator does not know the transactional id: it was never used, or has expired."""


class TransactionAbortable(BrokerError, code=120):
    """The broker gave the transaction up: abort it, and go on with the next."""


class InvalidRegularExpression(BrokerError, code=128):
    """The pattern is no regular expression that the broker can read."""
