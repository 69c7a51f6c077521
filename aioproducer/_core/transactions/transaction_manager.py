"""A transaction manager: what a producer may send now, and how its transaction may end. Pure: no clock, no loop, no I/O.

The JVM client's TransactionManager, without its requests: those are in `TransactionRequests`, and when to make them is in
`Transactions`. To the queues of the partitions it is where their identity comes from (`IdentityKeeper`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from aioproducer._core.idempotence.identity import IdentityKeeper, ProducerIdentity
from aioproducer._core.transactions.reactions import ADDED_BY_PRODUCE, is_fatal
from aioproducer._core.transactions.transaction_state import (
    OPEN,
    SENDING,
    TRANSITIONS,
    TransactionEvent as Event,
    TransactionState as State,
)
from aioproducer.errors import ProducerError, TransactionStateError, UnknownProducerId
from aioproducer.types import TopicPartition


class TransactionManager(IdentityKeeper):
    """The transaction of a producer, from `begin` to its end, and the next."""

    __slots__ = (
        "_added",
        "_on_moved",
        "_on_wanted",
        "_wanted",
        "attempted",
        "cause",
        "groups",
        "held",
        "needs_bump",
        "state",
        "transactional_id",
        "version",
    )

    def __init__(
        self, transactional_id: str, *, on_wanted: Callable[[], None], on_moved: Callable[[bool], None]
    ) -> None:
        """*on_wanted* is told that `wanted` has something, *on_moved* whether records are taken now."""
        super().__init__(bumps_partitions=False)
        self.transactional_id: Final = transactional_id
        self.state: State = State.UNINITIALIZED
        self.version: int = 0
        """The transaction.version of the open transaction, or of the next."""
        self.groups: set[str] = set()
        """The consumer groups whose offsets are in it (version 1)."""
        self.attempted: bool = False
        """Whether the coordinator may know of it: then it has to be ended there."""
        self.cause: ProducerError | None = None
        """Why it cannot be committed, or why nothing can be done any more."""
        self.needs_bump: bool = False
        """Whether the next transaction must not go on under this epoch: a request may still be on its way that must not
        find it, or a partition has left a sequence behind."""
        self.held: bool = False
        """Whether nothing is to be written yet, since the markers of the last one may still be."""
        self._wanted: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._on_wanted = on_wanted
        self._on_moved = on_moved

    # --- what the partitions ask ---------------------------------------------------------------------------------

    def admits(self, where: TopicPartition) -> bool:
        """Whether a new batch may be written to *where* now."""
        if self.current is None or self.held or self.state not in SENDING:
            return False
        return self.version >= ADDED_BY_PRODUCE or where in self._added

    @property
    def leaders_begin_at_zero(self) -> bool:
        """Whether a leader that knows nothing of the identity takes sequence 0 only (KIP-890), not any (KIP-360)."""
        return self.version >= ADDED_BY_PRODUCE

    def want(self, where: TopicPartition) -> None:
        """Note that a batch waits for *where* to be in the transaction."""
        if self.state in SENDING and self.version < ADDED_BY_PRODUCE and where not in self._added:
            self._wanted[where] = None
            self._on_wanted()

    def request_epoch_bump(self) -> None:
        """Note that a partition takes no more under this epoch, which is that of all; the next transaction has another."""
        self.needs_bump = True

    def keeps(self, identity: ProducerIdentity | None) -> bool:
        """Whether *identity* is still written under: then the sequences of a partition must not be forgotten."""
        return identity is not None and identity == self.current

    # --- what is sent --------------------------------------------------------------------------------------------

    def asked(self) -> None:
        """A request goes out that makes the transaction known to the coordinator, even if it is refused."""
        self.attempted = True

    def uncertain(self) -> None:
        """A request may still be on its way, and is asked again or given up."""
        self.needs_bump = True

    def wanted(self) -> list[TopicPartition]:
        """Return the partitions that are to be added."""
        return list(self._wanted)

    def added(self, partitions: Collection[TopicPartition]) -> None:
        """The coordinator has added *partitions*."""
        self._added.update(partitions)
        for each in partitions:
            self._wanted.pop(each, None)

    # --- what happens to it --------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """The producer starts."""
        self._happened(Event.INITIALIZE)

    def initialized(self, identity: ProducerIdentity, version: int) -> None:
        """The coordinator has given *identity*; the next transaction has *version*."""
        self.assign(*identity)
        self.needs_bump = False
        self.version = version
        self._happened(Event.INITIALIZED)

    def begin(self) -> None:
        """Open a transaction. Raises: TransactionStateError."""
        self._demand(Event.BEGIN, "begin a transaction")
        self._happened(Event.BEGIN)

    def prepare(self) -> None:
        """Take nothing more, so that it can be ended elsewhere. Raises: TransactionStateError, or why it has failed."""
        self._demand(Event.PREPARE, "prepare")
        self._happened(Event.PREPARE)

    def settled(self) -> None:
        """Everything that was taken is acknowledged: it is prepared."""
        self._happened(Event.SETTLED)

    def commit(self) -> None:
        """Take nothing more, and commit. Raises: TransactionStateError, or why it has failed."""
        self._demand(Event.COMMIT, "commit")
        self._happened(Event.COMMIT)

    def abort(self) -> None:
        """Take nothing more, and abort. Raises: TransactionStateError, or the fatal error."""
        self._demand(Event.ABORT, "abort")
        self._happened(Event.ABORT)

    def failed(self, error: ProducerError) -> None:
        """A record, or offsets, of the transaction have failed with *error*."""
        if isinstance(
            error, UnknownProducerId
        ):  # sequences begin at 0 again, which takes another epoch (KIP-360)
            self.needs_bump = True
        if is_fatal(type(error)) or error.fatal:
            self.failed_fatally(error)
        elif (self.state, Event.FAIL) in TRANSITIONS:  # else there is none, or it is settled
            if self.state not in {State.ABORTABLE, State.ABORTING}:
                self.cause = error
            self._happened(Event.FAIL)

    def failed_fatally(self, error: ProducerError) -> None:
        """The cluster will have nothing to do with us any more."""
        if self.state is not State.FATAL:
            self.cause = error
            self._happened(Event.FAIL_FATALLY)

    def ended(self, identity: ProducerIdentity | None, version: int) -> bool:
        """The coordinator has it down as ended, or there was nothing to end; return whether the next needs a bump first.

        *identity* is the one to go on under, if it named one; *version* is that of the next transaction.
        """
        if identity is not None:
            self.assign(*identity)
            self.needs_bump = False
        # The sequences of version 1 go on from one transaction to the next; those of version 2 begin with an epoch.
        bump = identity is None and (self.needs_bump or version > self.version)
        self.version = version
        self.attempted, self.cause = False, None
        self.groups.clear()
        self._wanted.clear()
        self._added.clear()
        self._happened(Event.BUMP if bump else Event.ENDED)
        return bump

    def leave_cluster(self) -> None:
        """Drop the identity and the transaction's state at the coordinator of the old cluster."""
        super().leave_cluster()
        self.attempted, self.needs_bump = False, True

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun, and has not ended."""
        return self.state in OPEN

    def must_be_ended(self, *, commit: bool) -> bool:
        """Return True if EndTxn is due: the coordinator may have the transaction, or another epoch is needed.

        Under version 2 an empty abort gives the next epoch, and unlike InitProducerId it always compares our epoch.
        """
        if self.current is None:  # the transaction belonged to the old cluster
            return False
        return self.attempted or (self.needs_bump and self.version >= ADDED_BY_PRODUCE and not commit)

    def refusal(self, what: str) -> ProducerError:
        """Return why *what*, say "send", is not possible now."""
        if self.cause is not None and self.state in {State.ABORTABLE, State.FATAL}:
            return self._as_told(what, self.cause)
        return TransactionStateError(f"cannot {what}: {_SITUATIONS[self.state]}")

    def _as_told(self, what: str, cause: ProducerError) -> ProducerError:
        fatal = self.state is State.FATAL
        advice = "close this producer and start another" if fatal else "abort it, then this producer goes on"
        kind = type(cause)
        error = kind(
            f"cannot {what}: the transaction of {self.transactional_id!r} has failed ({cause}); {advice}"
        )
        error.abortable, error.fatal = not fatal, fatal
        error.possibly_persisted = False
        error.__cause__ = cause
        return error

    def _demand(self, event: Event, what: str) -> None:
        if (self.state, event) not in TRANSITIONS:
            raise self.refusal(what)

    def _happened(self, event: Event) -> None:
        """Make the move for *event*, or raise AssertionError: an illegal one is our bug, never the user's."""
        to = TRANSITIONS.get((self.state, event))
        if to is None:
            raise AssertionError(f"a transactional producer that is {self.state.name} cannot {event.name}")
        self.state = to
        self._on_moved(to is State.IN_TRANSACTION)


_SITUATIONS: Final = {
    State.UNINITIALIZED: "the producer is not started",
    State.INITIALIZING: "the producer is still asking for its producer id",
    State.READY: "no transaction is open; begin one (producer.transaction(), or begin_transaction())",
    State.IN_TRANSACTION: "a transaction is open; commit or abort it first, a producer has one at a time",
    State.PREPARING: "prepare was called; only commit, abort and close are left",
    State.PREPARED: "the transaction is prepared; only commit, abort and close are left",
    State.COMMITTING: "commit was called; call it again to wait for its outcome",
    State.ABORTING: "abort was called; call it again to wait for its outcome",
    State.ABORTABLE: "the transaction has failed; abort it, then this producer goes on",
    State.FATAL: "the producer has failed; close it and start another",
}
