"""Kafka's error codes: `BrokerError`, a subclass per code, and `broker_error`, which returns the class of a code.

Three facts about a code decide the producer's reaction:

- `retriable`: sending the same batch again may succeed;
- `stale_metadata`: the producer's metadata is out of date and is refreshed before the retry;
- `definitely_refused`: the broker decided before the append, so the batch is certainly not in the log. After any other
  code the batch may be in the log, because a leader may append a batch before the leader loses its leadership.

The effect of a code on a transaction depends on the request, so the producer sets `abortable` and `fatal` on the
error that it raises.

Source: https://kafka.apache.org/protocol#protocol_error_codes
"""

from __future__ import annotations

from typing import Any, ClassVar

from aioproducer.errors.base import AuthenticationFailed, ProducerError, RecordTooLarge


class BrokerError(ProducerError):
    """A non-zero error code in a response."""

    code: ClassVar[int]
    """Kafka's number of the error."""
    stale_metadata: ClassVar[bool]
    """True if the producer's metadata is out of date. The producer refreshes the metadata before the retry."""
    definitely_refused: ClassVar[bool]
    """True if the broker decided before the append: the batch is certainly not in the log."""
    by_code: ClassVar[dict[int, type[BrokerError]]] = {}

    def __init_subclass__(
        cls, *, code: int, retriable: bool = False, stale: bool = False, refused: bool = False
    ) -> None:
        super().__init_subclass__()
        if code in BrokerError.by_code:
            raise TypeError(f"error code {code}: already used by {BrokerError.by_code[code].__name__}")
        cls.code = code
        cls.retriable = retriable
        cls.stale_metadata = stale
        cls.definitely_refused = refused
        BrokerError.by_code[code] = cls

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the error by its code: the class of an unknown code cannot be imported."""
        return _restore, (self.code, self.args), self.__dict__


def _restore(code: int, args: tuple[Any, ...]) -> BrokerError:
    return broker_error(code)(*args)


def broker_error(code: int) -> type[BrokerError]:
    """Return the class of *code*. An unknown code gets a class `ErrorCode<code>`.

    Raises: ValueError for 0, the code of success.
    """
    if code == 0:
        raise ValueError("error code 0 means success")
    known = BrokerError.by_code.get(code)
    if known is None:  # a code of a newer broker is not retriable, and possibly persisted
        known = type(f"ErrorCode{code}", (BrokerError,), {"__doc__": f"Error code {code}."}, code=code)
    return known


class UnknownServerError(BrokerError, code=-1):
    """The broker failed with an error that has no code of its own."""


class CorruptMessage(BrokerError, code=2, retriable=True, refused=True):
    """The batch failed its checksum or is malformed."""


class UnknownTopicOrPartition(BrokerError, code=3, retriable=True, stale=True):
    """The broker does not host the topic or partition."""


class LeaderNotAvailable(BrokerError, code=5, retriable=True, stale=True):
    """The partition has no leader at the moment."""


class NotLeaderOrFollower(BrokerError, code=6, retriable=True, stale=True):
    """The broker is no longer the partition's leader. The producer finds the new leader and retries."""


class RequestTimedOut(BrokerError, code=7, retriable=True):
    """The replicas did not acknowledge the record in time. The record may be in the log."""


class BrokerNotAvailable(BrokerError, code=8):
    """The broker is not available."""


class ReplicaNotAvailable(BrokerError, code=9, retriable=True, stale=True):
    """The replica is not available."""


class MessageTooLarge(BrokerError, RecordTooLarge, code=10, refused=True):
    """The batch is larger than the topic's `max.message.bytes`."""


class OffsetMetadataTooLarge(BrokerError, code=12):
    """The metadata of an offset is longer than the broker's `offset.metadata.max.bytes` (default: 4,096)."""


class NetworkException(BrokerError, code=13, retriable=True, stale=True):
    """The broker lost a connection that it needed."""


class CoordinatorLoadInProgress(BrokerError, code=14, retriable=True):
    """The coordinator of the group or transactional id is still loading its log."""


class CoordinatorNotAvailable(BrokerError, code=15, retriable=True):
    """The group or transactional id has no coordinator at the moment."""


class NotCoordinator(BrokerError, code=16, retriable=True):
    """Another broker coordinates the group or transactional id."""


class InvalidTopicException(BrokerError, code=17, refused=True):
    """The topic's name is illegal, or the topic is internal."""


class RecordListTooLarge(BrokerError, code=18, refused=True):
    """The batch is larger than a log segment."""


class NotEnoughReplicas(BrokerError, code=19, retriable=True, refused=True):
    """The partition has fewer in-sync replicas than `min.insync.replicas`. The leader appended nothing."""


class NotEnoughReplicasAfterAppend(BrokerError, code=20, retriable=True):
    """The leader appended the batch, but fewer replicas than `min.insync.replicas` have it."""


class InvalidRequiredAcks(BrokerError, code=21):
    """`acks` is not -1, 0 or 1."""


class IllegalGeneration(BrokerError, code=22):
    """The group has rebalanced since the consumer joined it. Abort the transaction, and let the consumer rejoin."""


class UnknownMemberId(BrokerError, code=25):
    """The group has no member with this member id. Abort the transaction, and let the consumer rejoin."""


class TopicAuthorizationFailed(BrokerError, code=29, refused=True):
    """The principal lacks the permission Write (or Describe) on the topic."""


class GroupAuthorizationFailed(BrokerError, code=30):
    """The principal lacks the permission Read on the consumer group."""


class ClusterAuthorizationFailed(BrokerError, code=31, refused=True):
    """The principal lacks a permission on the cluster. Idempotent producers need IdempotentWrite or Write."""


class InvalidTimestamp(BrokerError, code=32, refused=True):
    """A record's timestamp is outside the range that the topic allows."""


class UnsupportedSaslMechanism(BrokerError, code=33):
    """The broker does not offer the SASL mechanism."""


class IllegalSaslState(BrokerError, code=34):
    """The broker received a request at the wrong moment of the SASL handshake."""


class UnsupportedVersion(BrokerError, code=35, refused=True):
    """The broker does not support the version of a required request."""


class TopicAlreadyExists(BrokerError, code=36):
    """The topic already exists."""


class InvalidPartitions(BrokerError, code=37):
    """The number of partitions is invalid."""


class InvalidReplicationFactor(BrokerError, code=38):
    """The replication factor is not positive, or larger than the number of brokers."""


class InvalidConfig(BrokerError, code=40):
    """The topic configuration is invalid."""


class NotController(BrokerError, code=41, retriable=True):
    """The broker is not the controller."""


class InvalidRequest(BrokerError, code=42):
    """The request is malformed."""


class UnsupportedForMessageFormat(BrokerError, code=43, refused=True):
    """The topic's message format is too old for idempotence, headers or timestamps."""


class PolicyViolation(BrokerError, code=44):
    """A policy of the broker forbids the request."""


class OutOfOrderSequenceNumber(BrokerError, code=45, refused=True):
    """The batch's sequence does not follow the broker's last sequence."""


class DuplicateSequenceNumber(BrokerError, code=46):
    """The broker has the batch, but no longer the offset of the batch."""


class InvalidProducerEpoch(BrokerError, code=47, refused=True):
    """The broker has seen a newer epoch of the producer id, for example after a transaction timeout."""


class InvalidTxnState(BrokerError, code=48):
    """The transaction's state does not allow the request, for example after a transaction timeout."""


class InvalidProducerIdMapping(BrokerError, code=49):
    """The producer id no longer belongs to the transactional id, which has expired."""


class InvalidTransactionTimeout(BrokerError, code=50):
    """`transaction_timeout_ms` is not positive, or larger than the broker's `transaction.max.timeout.ms`."""


class ConcurrentTransactions(BrokerError, code=51, retriable=True):
    """The previous transaction or operation is still being completed."""


class TransactionalIdAuthorizationFailed(BrokerError, code=53):
    """The principal lacks the permission Write on the transactional id."""


class KafkaStorageError(BrokerError, code=56, retriable=True, stale=True):
    """The broker's disk failed. Another replica becomes the leader."""


class SaslAuthenticationFailed(BrokerError, AuthenticationFailed, code=58):
    """The broker refused the credentials."""


class UnknownProducerId(BrokerError, code=59, refused=True):
    """The broker has no state of the producer id, so it appended nothing."""


class DelegationTokenAuthDisabled(BrokerError, code=61):
    """The brokers have delegation tokens disabled."""


class DelegationTokenNotFound(BrokerError, code=62):
    """The brokers have no delegation token with this id."""


class DelegationTokenOwnerMismatch(BrokerError, code=63):
    """The delegation token belongs to another principal."""


class DelegationTokenRequestNotAllowed(BrokerError, code=64):
    """Delegation tokens cannot be requested on this connection."""


class DelegationTokenAuthorizationFailed(BrokerError, code=65):
    """The principal may not use the delegation token."""


class DelegationTokenExpired(BrokerError, code=66):
    """The delegation token has expired."""


class ListenerNotFound(BrokerError, code=72, retriable=True, stale=True):
    """The leader lacks the listener that the client is connected to."""


class FencedLeaderEpoch(BrokerError, code=74, retriable=True, stale=True):
    """The client's metadata is older than the broker's metadata."""


class UnknownLeaderEpoch(BrokerError, code=75, retriable=True):
    """The client's metadata is newer than the broker's metadata."""


class UnsupportedCompressionType(BrokerError, code=76, refused=True):
    """The broker, or the version of the request, does not support the codec."""


class OffsetNotAvailable(BrokerError, code=78, retriable=True):
    """The leader's high watermark has not caught up yet."""


class PreferredLeaderNotAvailable(BrokerError, code=80, retriable=True, stale=True):
    """The preferred leader could not take over."""


class FencedInstanceId(BrokerError, code=82):
    """Another consumer has joined the group with the same `group.instance.id`."""


class EligibleLeadersNotAvailable(BrokerError, code=83, retriable=True, stale=True):
    """No replica is eligible as the leader."""


class ElectionNotNeeded(BrokerError, code=84, retriable=True, stale=True):
    """The partition already has the requested leader."""


class InvalidRecord(BrokerError, code=87, refused=True):
    """The broker rejected records of the batch. Compacted topics require keys."""


class UnstableOffsetCommit(BrokerError, code=88, retriable=True):
    """A transaction still has to commit offsets."""


class ThrottlingQuotaExceeded(BrokerError, code=89, retriable=True):
    """A quota is exceeded."""


class ProducerFenced(BrokerError, code=90):
    """A newer producer with the same transactional id has fenced this producer, or the transaction has timed out."""


class UnknownTopicId(BrokerError, code=100, retriable=True, stale=True, refused=True):
    """The broker has no topic with this id."""


class InconsistentTopicId(BrokerError, code=103, retriable=True, stale=True):
    """The topic's id differs from the id in the broker's log."""


class TransactionalIdNotFound(BrokerError, code=105):
    """The transactional id was never used, or has expired."""


class TransactionAbortable(BrokerError, code=120):
    """The transaction cannot be committed. Abort the transaction; the producer remains usable."""


class InvalidRegularExpression(BrokerError, code=128):
    """The broker cannot parse the regular expression."""


class RebootstrapRequired(BrokerError, code=129):
    """The broker requires the client to restart from `bootstrap_servers`."""
