"""`aiokafka.errors`: the errors of a producer, with aiokafka's names and bases for existing `except` clauses.

These classes do not subclass an installed aiokafka's classes. A raised error has the error of aioproducer as its
`__cause__`, and the `possibly_persisted` of that error.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from aioproducer.errors import broker_error


class IllegalOperation(Exception):
    """The state does not allow the call, for example a send outside a transaction."""


class KafkaError(RuntimeError):
    """Base of errors in the communication with brokers."""

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    possibly_persisted: bool = False
    """False if the record is certainly not in the log. aiokafka's errors lack this attribute."""

    def __str__(self) -> str:
        return ": ".join([type(self).__name__, *map(str, self.args)])


class KafkaTimeoutError(KafkaError):
    """The record was not sent within `request_timeout_ms`."""


class KafkaConnectionError(KafkaError):
    """No broker is reachable, or a connection was lost."""

    retriable = True
    invalid_metadata = True


class NodeNotReadyError(KafkaError):
    """The record's broker was unreachable until the record's deadline."""

    retriable = True


class NoBrokersAvailable(KafkaError):
    """Never raised, as in aiokafka: a start without brokers raises KafkaConnectionError."""

    retriable = True
    invalid_metadata = True


class KafkaProtocolError(KafkaError):
    """A broker sent an invalid response."""

    retriable = True


class AuthenticationFailedError(KafkaError):
    """A broker refused the credentials."""


class ProducerClosed(KafkaError):
    """The producer is not started, or is stopped."""


class ProducerFenced(KafkaError):
    """A newer producer with the same transactional id has fenced this producer, which must be stopped."""


class BrokerResponseError(KafkaError):
    """An error code of a broker."""

    errno: ClassVar[int]
    message: ClassVar[str]
    """Kafka's name of the error."""
    description: ClassVar[str]

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


_BY_CODE: Final[dict[int, type[BrokerResponseError]]] = {}


def _numbered(name: str, code: int) -> type[BrokerResponseError]:
    """Return aiokafka's class *name* of an error *code*, with the text of `broker_error`."""
    ours = broker_error(code)
    meaning = ours.__doc__ or ""
    body = {
        "__doc__": meaning,
        "errno": code,
        "message": re.sub(r"(?<=[a-z])(?=[A-Z])", "_", ours.__name__).upper(),
        "description": meaning,
        "retriable": ours.retriable,
        "invalid_metadata": ours.stale_metadata,
    }
    _BY_CODE[code] = type(name, (BrokerResponseError,), body)
    return _BY_CODE[code]


UnknownError: Final = _numbered("UnknownError", -1)
CorruptRecordException: Final = _numbered("CorruptRecordException", 2)
UnknownTopicOrPartitionError: Final = _numbered("UnknownTopicOrPartitionError", 3)
LeaderNotAvailableError: Final = _numbered("LeaderNotAvailableError", 5)
NotLeaderForPartitionError: Final = _numbered("NotLeaderForPartitionError", 6)
RequestTimedOutError: Final = _numbered("RequestTimedOutError", 7)
BrokerNotAvailableError: Final = _numbered("BrokerNotAvailableError", 8)
ReplicaNotAvailableError: Final = _numbered("ReplicaNotAvailableError", 9)
MessageSizeTooLargeError: Final = _numbered("MessageSizeTooLargeError", 10)
OffsetMetadataTooLargeError: Final = _numbered("OffsetMetadataTooLargeError", 12)
GroupLoadInProgressError: Final = _numbered("GroupLoadInProgressError", 14)
GroupCoordinatorNotAvailableError: Final = _numbered("GroupCoordinatorNotAvailableError", 15)
NotCoordinatorForGroupError: Final = _numbered("NotCoordinatorForGroupError", 16)
InvalidTopicError: Final = _numbered("InvalidTopicError", 17)
RecordListTooLargeError: Final = _numbered("RecordListTooLargeError", 18)
NotEnoughReplicasError: Final = _numbered("NotEnoughReplicasError", 19)
NotEnoughReplicasAfterAppendError: Final = _numbered("NotEnoughReplicasAfterAppendError", 20)
InvalidRequiredAcksError: Final = _numbered("InvalidRequiredAcksError", 21)
IllegalGenerationError: Final = _numbered("IllegalGenerationError", 22)
UnknownMemberIdError: Final = _numbered("UnknownMemberIdError", 25)
TopicAuthorizationFailedError: Final = _numbered("TopicAuthorizationFailedError", 29)
GroupAuthorizationFailedError: Final = _numbered("GroupAuthorizationFailedError", 30)
ClusterAuthorizationFailedError: Final = _numbered("ClusterAuthorizationFailedError", 31)
InvalidTimestampError: Final = _numbered("InvalidTimestampError", 32)
UnsupportedSaslMechanismError: Final = _numbered("UnsupportedSaslMechanismError", 33)
IllegalSaslStateError: Final = _numbered("IllegalSaslStateError", 34)
UnsupportedVersionError: Final = _numbered("UnsupportedVersionError", 35)
TopicAlreadyExistsError: Final = _numbered("TopicAlreadyExistsError", 36)
InvalidPartitionsError: Final = _numbered("InvalidPartitionsError", 37)
InvalidReplicationFactorError: Final = _numbered("InvalidReplicationFactorError", 38)
InvalidConfigurationError: Final = _numbered("InvalidConfigurationError", 40)
NotControllerError: Final = _numbered("NotControllerError", 41)
InvalidRequestError: Final = _numbered("InvalidRequestError", 42)
UnsupportedForMessageFormatError: Final = _numbered("UnsupportedForMessageFormatError", 43)
PolicyViolationError: Final = _numbered("PolicyViolationError", 44)
OutOfOrderSequenceNumber: Final = _numbered("OutOfOrderSequenceNumber", 45)
DuplicateSequenceNumber: Final = _numbered("DuplicateSequenceNumber", 46)
InvalidProducerEpoch: Final = _numbered("InvalidProducerEpoch", 47)
InvalidTxnState: Final = _numbered("InvalidTxnState", 48)
InvalidProducerIdMapping: Final = _numbered("InvalidProducerIdMapping", 49)
InvalidTransactionTimeout: Final = _numbered("InvalidTransactionTimeout", 50)
ConcurrentTransactions: Final = _numbered("ConcurrentTransactions", 51)
TransactionalIdAuthorizationFailed: Final = _numbered("TransactionalIdAuthorizationFailed", 53)
KafkaStorageError: Final = _numbered("KafkaStorageError", 56)
SaslAuthenticationFailed: Final = _numbered("SaslAuthenticationFailed", 58)
UnknownProducerId: Final = _numbered("UnknownProducerId", 59)
DelegationTokenAuthDisabled: Final = _numbered("DelegationTokenAuthDisabled", 61)
DelegationTokenNotFound: Final = _numbered("DelegationTokenNotFound", 62)
DelegationTokenOwnerMismatch: Final = _numbered("DelegationTokenOwnerMismatch", 63)
DelegationTokenRequestNotAllowed: Final = _numbered("DelegationTokenRequestNotAllowed", 64)
DelegationTokenAuthorizationFailed: Final = _numbered("DelegationTokenAuthorizationFailed", 65)
DelegationTokenExpired: Final = _numbered("DelegationTokenExpired", 66)
ListenerNotFound: Final = _numbered("ListenerNotFound", 72)

InvalidMessageError: Final = CorruptRecordException
CoordinatorLoadInProgressError: Final = GroupLoadInProgressError
CoordinatorNotAvailableError: Final = GroupCoordinatorNotAvailableError
NotCoordinatorError: Final = NotCoordinatorForGroupError


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of *error_code*; `UnknownError` for codes without a class in aiokafka."""
    return _BY_CODE.get(error_code, UnknownError)
