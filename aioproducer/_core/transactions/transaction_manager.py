"""A transaction manager: states and events of a transactional producer, and reactions to a coordinator's errors.

KIP-98, KIP-890, KIP-939. Pure: no clock, no loop, no I/O. `docs/design.md` draws its diagram from `TRANSITIONS`, and a
test compares the diagram to `TRANSITIONS`. The rows of `react` equal the JVM client's rows (TransactionManager, Kafka
4.3); comments name the exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum, IntEnum, auto
from types import MappingProxyType
from typing import Final

from aioproducer._core.idempotence import IdentityKeeper, ProducerIdentity
from aioproducer._core.net.connection_protocol import caused
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
    TransactionStateError,
    UnknownProducerId,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from aioproducer.types import TopicPartition


class TransactionState(IntEnum):
    """States of a transactional producer."""

    UNINITIALIZED = auto()
    """No producer id yet."""
    INITIALIZING = auto()
    """InitProducerId is sent, for a producer id or the next epoch. InitProducerId fences the producer with the last epoch."""
    READY = auto()
    """No transaction is open."""
    IN_TRANSACTION = auto()
    """Records and offsets are accepted."""
    PREPARING = auto()
    """Accepted records are being sent, and no more records are accepted."""
    PREPARED = auto()
    """All records are acknowledged; the transaction stays open until a producer or `TransactionAdmin` ends it."""
    COMMITTING = auto()
    """Accepted records are being sent, or EndTxn is sent to commit."""
    ABORTING = auto()
    """Unwritten records have failed, records in flight are awaited, or EndTxn is sent to abort."""
    ABORTABLE = auto()
    """A record or offsets of the transaction have failed, and the transaction must be aborted."""
    FATAL = auto()
    """The producer can only be closed, for example because a newer producer uses its transactional id."""


class TransactionEvent(IntEnum):
    """Events of a transactional producer."""

    INITIALIZE = auto()
    """The producer starts, or continues in another cluster."""
    INITIALIZED = auto()
    """The coordinator returned a producer id and an epoch."""
    BEGIN = auto()
    """The user begins a transaction; Kafka has no request for the begin."""
    PREPARE = auto()
    """The user prepares the transaction, to end the transaction elsewhere."""
    SETTLED = auto()
    """All accepted records are acknowledged."""
    COMMIT = auto()
    """The user commits the transaction."""
    ABORT = auto()
    """The user aborts the transaction."""
    ENDED = auto()
    """The coordinator ended the transaction, or had no transaction to end."""
    BUMP = auto()
    """The transaction ended, and the next transaction needs another epoch (KIP-360)."""
    FAIL = auto()
    """A record or offsets of the transaction have failed, so the transaction must not be committed."""
    FAIL_FATALLY = auto()
    """A fatal error of the cluster, for example a newer epoch."""


_S, _E = TransactionState, TransactionEvent

TRANSITIONS: Mapping[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (_S.UNINITIALIZED, _E.INITIALIZE): _S.INITIALIZING,
    (_S.INITIALIZING, _E.INITIALIZED): _S.READY,
    (_S.READY, _E.INITIALIZE): _S.INITIALIZING,
    (_S.READY, _E.BEGIN): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.PREPARE): _S.PREPARING,
    (_S.IN_TRANSACTION, _E.COMMIT): _S.COMMITTING,
    (_S.IN_TRANSACTION, _E.ABORT): _S.ABORTING,
    (_S.IN_TRANSACTION, _E.FAIL): _S.ABORTABLE,
    (_S.PREPARING, _E.SETTLED): _S.PREPARED,
    (_S.PREPARING, _E.COMMIT): _S.COMMITTING,
    (_S.PREPARING, _E.ABORT): _S.ABORTING,
    (_S.PREPARING, _E.FAIL): _S.ABORTABLE,
    (_S.PREPARED, _E.COMMIT): _S.COMMITTING,
    (_S.PREPARED, _E.ABORT): _S.ABORTING,
    (_S.COMMITTING, _E.ENDED): _S.READY,
    (_S.COMMITTING, _E.BUMP): _S.INITIALIZING,
    (_S.COMMITTING, _E.FAIL): _S.ABORTABLE,
    (_S.ABORTABLE, _E.ABORT): _S.ABORTING,
    (_S.ABORTABLE, _E.FAIL): _S.ABORTABLE,
    (_S.ABORTING, _E.FAIL): _S.ABORTING,
    (_S.ABORTING, _E.ENDED): _S.READY,
    (_S.ABORTING, _E.BUMP): _S.INITIALIZING,
    **{(state, _E.FAIL_FATALLY): _S.FATAL for state in _S},
}

OPEN = frozenset({_S.IN_TRANSACTION, _S.PREPARING, _S.PREPARED, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE})
"""States of an open transaction."""
SENDING = frozenset({_S.IN_TRANSACTION, _S.PREPARING, _S.COMMITTING})
"""States in which first attempts are sent."""


TRANSACTION_VERSION: Final = "transaction.version"

NEEDED_BY_VERSION_2: Final[Mapping[int, int]] = MappingProxyType(
    {ProduceRequest.API_KEY: 12, TxnOffsetCommitRequest.API_KEY: 5, EndTxnRequest.API_KEY: 5}
)
"""Lowest request version that carries transaction.version 2, by API key (KIP-890). A proxy may offer lower versions."""


class ClusterVersion:
    """The finalized feature `transaction.version` (KIP-890), at most 1 while a node lacks a version of `NEEDED_BY_VERSION_2`."""

    def __init__(self) -> None:
        self._newest = ApiVersionTable({})
        self._limited: set[int] = set()  # ids of nodes that lack a version of `NEEDED_BY_VERSION_2`

    def update(self, node_id: int, versions: ApiVersionTable) -> int:
        """Take the versions of the newest connection to *node_id*, and return the cluster's transaction.version."""
        if versions.finalized_features_epoch >= self._newest.finalized_features_epoch:
            self._newest = versions
        offered = versions.offered
        if all(key in offered and offered[key][1] >= least for key, least in NEEDED_BY_VERSION_2.items()):
            self._limited.discard(node_id)
        else:
            self._limited.add(node_id)
        finalized = self._newest.finalized_features.get(TRANSACTION_VERSION, 0)
        return min(finalized, 1 if self._limited else 2)


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
    """Reactions to an error."""

    RETRY = auto()
    """Retry after a backoff."""
    FIND_AGAIN = auto()
    """Find the new coordinator, then retry."""
    ABORTABLE = auto()
    """The transaction must be aborted; the producer remains usable."""
    FATAL = auto()
    """The producer can only be closed."""


ADDED_BY_PRODUCE: Final = 2
"""Transaction version from which the first batch of a partition adds the partition to the transaction (KIP-890)."""

ENDS: Final = frozenset({Api.COMMIT, Api.ABORT})

FATAL: Final[tuple[type[BrokerError], ...]] = (
    ProducerFenced,
    InvalidProducerIdMapping,
    TransactionalIdAuthorizationFailed,
    ClusterAuthorizationFailed,
    UnsupportedVersion,
    UnsupportedForMessageFormat,
)
"""Errors that are fatal in every response, including responses to Produce."""

FATAL_AT_COORDINATOR: Final = (InvalidProducerEpoch, InvalidTxnState, InvalidTransactionTimeout)
"""Errors that are fatal only in a response of the coordinator."""


def react(api: Api, error: BrokerError, *, version: int) -> Reaction:
    """Return the reaction to *error*, the response to *api*; *version* is the transaction version (1: KIP-98, 2: KIP-890)."""
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
    """Return True if an abort, possibly with a new epoch, suffices where the JVM client fails for good."""
    match error:
        case InvalidTxnState() if version >= ADDED_BY_PRODUCE:
            # The coordinator returns InvalidTxnState only for the commit of a transaction that timed out. The coordinator
            # has aborted this transaction, and a second abort returns the next epoch (KAFKA-20785).
            return api is Api.COMMIT
        case InvalidTxnState():
            # The coordinator has no transaction to abort, because the request to add the first partition was refused, or
            # the response to this request was lost. A new epoch settles a refusal and a lost response.
            return api is Api.ABORT
        case _:
            # A transaction timeout causes InvalidProducerEpoch, as in Produce. The abort distinguishes timeout and newer producer.
            return api is Api.OFFSET_COMMIT and version >= ADDED_BY_PRODUCE


def _to_unknown(api: Api) -> Reaction:
    """Return the reaction to an error without a row in `react`."""
    if api in ENDS:
        # After the code -1 or an unknown code the coordinator may have ended the transaction, and a retry shows the
        # outcome. The JVM client treats the error as fatal.
        return Reaction.RETRY
    # Refusals of a group or a topic concern this transaction only. The JVM client treats some refusals as fatal, for
    # example offset metadata that is too large.
    first = {Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID}
    return Reaction.FATAL if api in first else Reaction.ABORTABLE


def is_fatal(kind: type[ProducerError]) -> bool:
    """Return True if a record that failed with *kind* ends the producer, and not only its transaction."""
    return issubclass(kind, FATAL)


class TransactionManager(IdentityKeeper):
    """State of a producer's transactions, and the identity of its partitions (`IdentityKeeper`).

    The class corresponds to the JVM client's TransactionManager. `TransactionRequests` has the requests, `Transactions`
    the order of the requests.
    """

    def __init__(
        self, transactional_id: str, *, on_wanted: Callable[[], None], on_moved: Callable[[bool], None]
    ) -> None:
        """*on_wanted* is called once `wanted` has partitions; *on_moved* receives True if records are accepted now."""
        super().__init__(bumps_partitions=False)
        self.transactional_id: Final = transactional_id
        self.state: TransactionState = TransactionState.UNINITIALIZED
        self.version: int = 0
        """transaction.version of the open transaction, or of the next transaction."""
        self.groups: set[str] = set()
        """Consumer groups with offsets in the transaction (version 1)."""
        self.attempted: bool = False
        """True if the coordinator may have the transaction, so that the transaction needs an EndTxn."""
        self.cause: ProducerError | None = None
        """Error that prevents a commit, or the fatal error."""
        self.needs_bump: bool = False
        """True if the next transaction needs another epoch: a late request may still arrive, or a sequence is missing."""
        self.held: bool = False
        """True while records wait for the markers of the last transaction."""
        self._wanted: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._on_wanted = on_wanted
        self._on_moved = on_moved

    # --- identity of the partitions (IdentityKeeper) -------------------------------------------------------------

    def admits(self, where: TopicPartition) -> bool:
        if self.current is None or self.held or self.state not in SENDING:
            return False
        return self.version >= ADDED_BY_PRODUCE or where in self._added

    @property
    def leaders_begin_at_zero(self) -> bool:
        return self.version >= ADDED_BY_PRODUCE

    def want(self, where: TopicPartition) -> None:
        """Request that *where* is added to the transaction, because a batch waits for it."""
        if self.state in SENDING and self.version < ADDED_BY_PRODUCE and where not in self._added:
            self._wanted[where] = None
            self._on_wanted()

    def request_epoch_bump(self) -> None:
        """Request another epoch for the next transaction, for example because a late request may still arrive."""
        self.needs_bump = True

    def keeps(self, identity: ProducerIdentity | None) -> bool:
        """Return True if *identity* is in use, so that sequences under *identity* must be kept."""
        return identity is not None and identity == self.current

    # --- requests ------------------------------------------------------------------------------------------------

    def request_written(self) -> None:
        """Note a written request that may open the transaction at the coordinator, even if the request is refused."""
        self.attempted = True

    def wanted(self) -> list[TopicPartition]:
        """Return the partitions that AddPartitionsToTxn has to add."""
        return list(self._wanted)

    def added(self, partitions: Collection[TopicPartition]) -> None:
        """Note that the coordinator added *partitions*."""
        self._added.update(partitions)
        for each in partitions:
            self._wanted.pop(each, None)

    # --- events --------------------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Note that the producer requests a producer id or an epoch."""
        self._happened(TransactionEvent.INITIALIZE)

    def initialized(self, identity: ProducerIdentity, version: int) -> None:
        """Note that the coordinator assigned *identity*; the next transaction has *version*."""
        self.assign(*identity)
        self.needs_bump = False
        self.version = version
        self._happened(TransactionEvent.INITIALIZED)

    def begin(self) -> None:
        """Open a transaction. Raises: TransactionStateError."""
        self._called(TransactionEvent.BEGIN, "begin a transaction")

    def prepare(self) -> None:
        """Accept no more records until a commit or abort. Raises: TransactionStateError, or the error of the transaction."""
        self._called(TransactionEvent.PREPARE, "prepare")

    def settled(self) -> None:
        """Note that all accepted records are acknowledged."""
        self._happened(TransactionEvent.SETTLED)

    def commit(self) -> None:
        """Accept no more records, and commit. Raises: TransactionStateError, or the error of the transaction."""
        self._called(TransactionEvent.COMMIT, "commit")

    def abort(self) -> None:
        """Accept no more records, and abort. Raises: TransactionStateError, or the fatal error."""
        self._called(TransactionEvent.ABORT, "abort")

    def failed(self, error: ProducerError) -> None:
        """Note that a record or offsets of the transaction failed with *error*."""
        if isinstance(error, UnknownProducerId):
            self.needs_bump = True  # sequences restart at 0, which needs another epoch (KIP-360)
        if is_fatal(type(error)) or error.fatal:
            self.failed_fatally(error)
        elif (self.state, TransactionEvent.FAIL) in TRANSITIONS:
            # Without a transition no transaction is open, or the end of the transaction is decided.
            if self.state not in {TransactionState.ABORTABLE, TransactionState.ABORTING}:
                self.cause = error
            self._happened(TransactionEvent.FAIL)

    def failed_fatally(self, error: ProducerError) -> None:
        """Note a fatal error of the cluster."""
        if self.state is not TransactionState.FATAL:
            self.cause = error
            self._happened(TransactionEvent.FAIL_FATALLY)

    def ended(self, identity: ProducerIdentity | None, version: int) -> bool:
        """Note the end of the transaction; return True if the next transaction needs an InitProducerId first.

        *identity* is the identity in the coordinator's response, or None; *version* is for the next transaction.
        """
        if identity is not None:
            self.assign(*identity)
            self.needs_bump = False
        # Version 1 continues sequences from transaction to transaction; version 2 starts each transaction with a new epoch.
        bump = identity is None and (self.needs_bump or version > self.version)
        self.version = version
        self.attempted, self.cause = False, None
        self.groups.clear()
        self._wanted.clear()
        self._added.clear()
        self._happened(TransactionEvent.BUMP if bump else TransactionEvent.ENDED)
        return bump

    def leave_cluster(self) -> None:
        """Drop the identity of the old cluster, and request another identity for the next transaction."""
        super().leave_cluster()
        self.needs_bump = True

    # --- queries -------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True from the begin of a transaction to its end."""
        return self.state in OPEN

    @property
    def can_be_aborted(self) -> bool:
        """True if a transaction is open and its end was not requested."""
        return self.is_open and (self.state, TransactionEvent.ABORT) in TRANSITIONS

    def must_be_ended(self, *, commit: bool) -> bool:
        """Return True if EndTxn is needed: the coordinator may have the transaction, or another epoch is needed.

        Under version 2 an empty abort returns the next epoch. Unlike InitProducerId, EndTxn always compares the epoch.
        """
        if self.current is None:  # the transaction belonged to the old cluster
            return False
        return self.attempted or (self.needs_bump and self.version >= ADDED_BY_PRODUCE and not commit)

    def refusal(self, what: str) -> ProducerError:
        """Return the error for *what*, for example "send", in the present state."""
        if self.cause is not None and self.state in {TransactionState.ABORTABLE, TransactionState.FATAL}:
            return self._caused_by(what, self.cause)
        return TransactionStateError(f"cannot {what}: {_SITUATIONS[self.state]}")

    def _caused_by(self, what: str, cause: ProducerError) -> ProducerError:
        fatal = self.state is TransactionState.FATAL
        advice = "close this producer and start another" if fatal else "abort it, then begin the next one"
        kind = type(cause)
        error = kind(
            f"cannot {what}: the transaction of {self.transactional_id!r} has failed ({cause}); {advice}"
        )
        error.abortable, error.fatal = not fatal, fatal
        error.possibly_persisted = False
        return caused(error, cause)

    def _called(self, event: TransactionEvent, what: str) -> None:
        """Make the transition for a call of the user, or raise the error for *what*."""
        if (self.state, event) not in TRANSITIONS:
            raise self.refusal(what)
        self._happened(event)

    def _happened(self, event: TransactionEvent) -> None:
        """Make the transition for *event*, or raise AssertionError: a missing transition is a bug of aioproducer."""
        to = TRANSITIONS.get((self.state, event))
        if to is None:
            raise AssertionError(f"a transactional producer that is {self.state.name} cannot {event.name}")
        self.state = to
        self._on_moved(to is TransactionState.IN_TRANSACTION)


_SITUATIONS: Final = {
    TransactionState.UNINITIALIZED: "the producer is not started",
    TransactionState.INITIALIZING: "the producer is still asking for its producer id",
    TransactionState.READY: "no transaction is open; begin one (producer.transaction(), or begin_transaction())",
    TransactionState.IN_TRANSACTION: "a transaction is open; commit or abort it first, a producer has one at a time",
    TransactionState.PREPARING: "prepare was called; only commit, abort and close are left",
    TransactionState.PREPARED: "the transaction is prepared; only commit, abort and close are left",
    TransactionState.COMMITTING: "commit was called; call it again to wait for its outcome",
    TransactionState.ABORTING: "abort was called; call it again to wait for its outcome",
    TransactionState.ABORTABLE: "the transaction has failed; abort it, then begin the next one",
    TransactionState.FATAL: "the producer has failed; close it and start another",
}
