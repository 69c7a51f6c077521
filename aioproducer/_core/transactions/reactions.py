"""Reactions to a coordinator's errors: pure, so that every row of the table can be tested alone.

The rows are those of the JVM client (TransactionManager, Kafka 4.3), but where a comment says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from aioproducer._core.protocol.produce import ProduceRequest
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.protocol.transactions import EndTxnRequest, TxnOffsetCommitRequest
from aioproducer.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NotCoordinator,
    ProducerError,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)

TRANSACTION_VERSION: Final = "transaction.version"

NEEDED_BY_VERSION_2: Final[Mapping[int, int]] = MappingProxyType(
    {ProduceRequest.API_KEY: 12, TxnOffsetCommitRequest.API_KEY: 5, EndTxnRequest.API_KEY: 5}
)
"""Lowest request version that carries transaction.version 2, by API key (KIP-890). A proxy may offer less than its brokers."""


class ClusterVersion:
    """The finalized feature `transaction.version` (KIP-890), at most 1 while a node lacks a version of `NEEDED_BY_VERSION_2`."""

    def __init__(self) -> None:
        self._epoch = -1
        self._finalized = 0
        self._limited: set[int] = set()  # ids of nodes that lack a version

    def update(self, node_id: int, versions: ApiVersionTable) -> int:
        """Take the versions of the newest connection to *node_id*, and return the cluster's transaction.version."""
        if versions.finalized_features_epoch >= self._epoch:
            self._epoch = versions.finalized_features_epoch
            self._finalized = versions.finalized_features.get(TRANSACTION_VERSION, 0)
        offered = versions.offered
        if all(offered.get(key, (0, -1))[1] >= least for key, least in NEEDED_BY_VERSION_2.items()):
            self._limited.discard(node_id)
        else:
            self._limited.add(node_id)
        return min(self._finalized, 1 if self._limited else 2)


class Api(Enum):
    """The requests of a transaction."""

    FIND_COORDINATOR = auto()
    INIT_PRODUCER_ID = auto()
    ADD_PARTITIONS = auto()
    ADD_OFFSETS = auto()
    OFFSET_COMMIT = auto()
    COMMIT = auto()
    ABORT = auto()
    DESCRIBE = auto()


class Reaction(Enum):
    """What to do about an error."""

    RETRY = auto()
    """Ask again, after a pause."""
    FIND_AGAIN = auto()
    """Somebody else is the coordinator: find it, then ask again."""
    ABORTABLE = auto()
    """The transaction must be aborted; then this producer goes on."""
    FATAL = auto()
    """This producer is at its end."""


ADDED_BY_PRODUCE: Final = 2
"""From this transaction version on a partition is in the transaction by the first batch that is written to it."""

ENDS: Final = frozenset({Api.COMMIT, Api.ABORT})

FATAL: Final[tuple[type[BrokerError], ...]] = (
    ProducerFenced,
    InvalidProducerIdMapping,
    TransactionalIdAuthorizationFailed,
    ClusterAuthorizationFailed,
    UnsupportedVersion,
    UnsupportedForMessageFormat,
)
"""Fatal in every answer, those to Produce included."""

FATAL_AT_COORDINATOR: Final = (InvalidProducerEpoch, InvalidTxnState, InvalidTransactionTimeout)
"""Fatal in an answer of the coordinator, and there alone."""


def react(api: Api, error: BrokerError, *, version: int) -> Reaction:
    """Return what to do about *error*, the answer to *api*; *version* is the transaction's (1: KIP-98, 2: KIP-890)."""
    match error:
        case NotCoordinator() | CoordinatorNotAvailable():
            return Reaction.FIND_AGAIN
        case InvalidTxnState() | InvalidProducerEpoch() if _settled_by_an_abort(api, error, version):
            return Reaction.ABORTABLE
        case _ if isinstance(error, (*FATAL, *FATAL_AT_COORDINATOR)):
            return Reaction.FATAL
        case TransactionAbortable():
            return Reaction.FATAL if api is Api.ABORT else Reaction.ABORTABLE
        case UnknownProducerId() if api in {Api.ADD_PARTITIONS, Api.ADD_OFFSETS, *ENDS}:
            return Reaction.ABORTABLE
        case _ if error.retriable:
            return Reaction.RETRY
    return _to_unknown(api)


def _settled_by_an_abort(api: Api, error: BrokerError, version: int) -> bool:
    """Whether an abort, or another epoch behind it, is all it takes, where the JVM client is at its end."""
    match error:
        case InvalidTxnState() if version >= ADDED_BY_PRODUCE:
            # Only a commit of what is not open is refused so: its time has run out. It was aborted, and to abort it once
            # more gives the next epoch (KAFKA-20785).
            return api is Api.COMMIT
        case InvalidTxnState():
            # The coordinator has nothing to abort, since what was to begin the transaction was refused, or its answer
            # lost; another epoch settles it in any case.
            return api is Api.ABORT
        case _:
            # A timeout is told so, as it is to Produce: the abort tells it from a successor.
            return api is Api.OFFSET_COMMIT and version >= ADDED_BY_PRODUCE


def _to_unknown(api: Api) -> Reaction:
    """Return what to do about an error without a row."""
    if api in ENDS:
        # -1, or a code that nobody knows: the end may have been written down or not, and to ask again tells. (The
        # JVM client takes it as fatal, whatever became of the transaction.)
        return Reaction.RETRY
    # What a group or a topic refuses concerns this transaction alone. (The JVM client takes some of it as fatal, such
    # as offset metadata that is too large.)
    first = {Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID}
    return Reaction.FATAL if api in first else Reaction.ABORTABLE


def is_fatal(kind: type[ProducerError]) -> bool:
    """Whether a record that failed with an error of *kind* is the end of the producer, not just of the transaction."""
    return issubclass(kind, FATAL)
