"""One class per error code that a producer can meet; those about transactions and groups: `coordinator_errors.py`."""

from __future__ import annotations

from aioproducer.errors.base import AuthenticationFailed, RecordTooLarge
from aioproducer.errors.error_codes import BrokerError

__all__ = [
    "BrokerNotAvailable",
    "ClusterAuthorizationFailed",
    "CorruptMessage",
    "DelegationTokenAuthDisabled",
    "DelegationTokenAuthorizationFailed",
    "DelegationTokenExpired",
    "DelegationTokenNotFound",
    "DelegationTokenOwnerMismatch",
    "DelegationTokenRequestNotAllowed",
    "DuplicateSequenceNumber",
    "ElectionNotNeeded",
    "EligibleLeadersNotAvailable",
    "FencedLeaderEpoch",
    "IllegalSaslState",
    "InconsistentTopicId",
    "InvalidConfig",
    "InvalidPartitions",
    "InvalidRecord",
    "InvalidReplicationFactor",
    "InvalidRequest",
    "InvalidRequiredAcks",
    "InvalidTimestamp",
    "InvalidTopicException",
    "KafkaStorageError",
    "LeaderNotAvailable",
    "ListenerNotFound",
    "MessageTooLarge",
    "NetworkException",
    "NotController",
    "NotEnoughReplicas",
    "NotEnoughReplicasAfterAppend",
    "NotLeaderOrFollower",
    "OffsetNotAvailable",
    "OutOfOrderSequenceNumber",
    "PolicyViolation",
    "PreferredLeaderNotAvailable",
    "RebootstrapRequired",
    "RecordListTooLarge",
    "ReplicaNotAvailable",
    "RequestTimedOut",
    "SaslAuthenticationFailed",
    "ThrottlingQuotaExceeded",
    "TopicAlreadyExists",
    "TopicAuthorizationFailed",
    "UnknownLeaderEpoch",
    "UnknownServerError",
    "UnknownTopicId",
    "UnknownTopicOrPartition",
    "UnsupportedCompressionType",
    "UnsupportedForMessageFormat",
    "UnsupportedSaslMechanism",
    "UnsupportedVersion",
]


class UnknownServerError(BrokerError, code=-1):
    """The broker failed in a way it has no code for."""


class CorruptMessage(BrokerError, code=2, retriable=True, refused=True):
    """The batch failed its checksum, or is malformed."""


class UnknownTopicOrPartition(BrokerError, code=3, retriable=True, stale=True):
    """This broker does not host the topic or partition."""


class LeaderNotAvailable(BrokerError, code=5, retriable=True, stale=True):
    """The partition has no leader at the moment."""


class NotLeaderOrFollower(BrokerError, code=6, retriable=True, stale=True):
    """The partition has moved; look its leader up again and resend."""


class RequestTimedOut(BrokerError, code=7, retriable=True):
    """The replicas did not acknowledge in time; the record may be in the log."""


class BrokerNotAvailable(BrokerError, code=8):
    """The broker is not available."""


class ReplicaNotAvailable(BrokerError, code=9, retriable=True, stale=True):
    """The replica is not available."""


class MessageTooLarge(BrokerError, RecordTooLarge, code=10, refused=True):
    """The batch is larger than the topic's `max.message.bytes`."""


class NetworkException(BrokerError, code=13, retriable=True, stale=True):
    """The broker lost a connection that it needed."""


class InvalidTopicException(BrokerError, code=17, refused=True):
    """The topic's name is illegal, or the topic is internal."""


class RecordListTooLarge(BrokerError, code=18, refused=True):
    """The batch is larger than a log segment."""


class NotEnoughReplicas(BrokerError, code=19, retriable=True, refused=True):
    """Fewer replicas in sync than `min.insync.replicas`; decided before the append."""


class NotEnoughReplicasAfterAppend(BrokerError, code=20, retriable=True):
    """Appended by the leader, but on fewer replicas than `min.insync.replicas`."""


class InvalidRequiredAcks(BrokerError, code=21):
    """`acks` is none of -1, 0, 1."""


class TopicAuthorizationFailed(BrokerError, code=29, refused=True):
    """We may not write to (or see) the topic."""


class ClusterAuthorizationFailed(BrokerError, code=31, refused=True):
    """We may not do this on the cluster; an idempotent producer needs IdempotentWrite or Write."""


class InvalidTimestamp(BrokerError, code=32, refused=True):
    """A record's timestamp is out of the range that the topic allows."""


class UnsupportedSaslMechanism(BrokerError, code=33):
    """The broker does not offer the SASL mechanism."""


class IllegalSaslState(BrokerError, code=34):
    """A request came at a wrong moment of the SASL handshake."""


class UnsupportedVersion(BrokerError, code=35, refused=True):
    """The broker is too old, or too new, for a request that we need."""


class TopicAlreadyExists(BrokerError, code=36):
    """The topic exists already."""


class InvalidPartitions(BrokerError, code=37):
    """The number of partitions is not one that the broker allows."""


class InvalidReplicationFactor(BrokerError, code=38):
    """There are fewer brokers than replicas asked for, or the factor is not positive."""


class InvalidConfig(BrokerError, code=40):
    """A topic's configuration is not valid."""


class NotController(BrokerError, code=41, retriable=True):
    """This broker is not the controller."""


class InvalidRequest(BrokerError, code=42):
    """The broker cannot make sense of the request."""


class UnsupportedForMessageFormat(BrokerError, code=43, refused=True):
    """The topic's message format is too old for idempotence, headers or timestamps."""


class PolicyViolation(BrokerError, code=44):
    """A policy of the broker forbids this."""


class OutOfOrderSequenceNumber(BrokerError, code=45, refused=True):
    """The batch's sequence does not follow the last one that the broker has."""


class DuplicateSequenceNumber(BrokerError, code=46):
    """The broker has this batch already, at an offset that it no longer knows."""


class KafkaStorageError(BrokerError, code=56, retriable=True, stale=True):
    """The broker's disk failed; another replica will lead."""


class SaslAuthenticationFailed(BrokerError, AuthenticationFailed, code=58):
    """The broker refused our credentials."""


class DelegationTokenAuthDisabled(BrokerError, code=61):
    """The brokers have delegation tokens switched off."""


class DelegationTokenNotFound(BrokerError, code=62):
    """The brokers do not know the delegation token."""


class DelegationTokenOwnerMismatch(BrokerError, code=63):
    """The delegation token belongs to another principal."""


class DelegationTokenRequestNotAllowed(BrokerError, code=64):
    """The connection may not ask for delegation tokens."""


class DelegationTokenAuthorizationFailed(BrokerError, code=65):
    """We may not use the delegation token."""


class DelegationTokenExpired(BrokerError, code=66):
    """The delegation token has expired."""


class ListenerNotFound(BrokerError, code=72, retriable=True, stale=True):
    """The leader has no listener of the kind that we connected to."""


class FencedLeaderEpoch(BrokerError, code=74, retriable=True, stale=True):
    """Our metadata is older than the broker's."""


class UnknownLeaderEpoch(BrokerError, code=75, retriable=True):
    """Our metadata is newer than the broker's."""


class UnsupportedCompressionType(BrokerError, code=76, refused=True):
    """The broker, or the request's version, does not know the codec."""


class OffsetNotAvailable(BrokerError, code=78, retriable=True):
    """The leader's high watermark has not caught up yet."""


class PreferredLeaderNotAvailable(BrokerError, code=80, retriable=True, stale=True):
    """The preferred leader could not take over."""


class EligibleLeadersNotAvailable(BrokerError, code=83, retriable=True, stale=True):
    """No replica may become the leader."""


class ElectionNotNeeded(BrokerError, code=84, retriable=True, stale=True):
    """The partition has the leader that was asked for."""


class InvalidRecord(BrokerError, code=87, refused=True):
    """The broker rejected records of the batch; a compacted topic wants keys."""


class ThrottlingQuotaExceeded(BrokerError, code=89, retriable=True):
    """A quota is used up."""


class UnknownTopicId(BrokerError, code=100, retriable=True, stale=True, refused=True):
    """The broker does not know the topic's id."""


class InconsistentTopicId(BrokerError, code=103, retriable=True, stale=True):
    """The topic's id is not the one in the broker's log."""


class RebootstrapRequired(BrokerError, code=129):
    """The broker tells us to start again from the bootstrap servers."""
