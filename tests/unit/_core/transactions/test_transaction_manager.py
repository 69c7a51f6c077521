"""The transaction manager alone: every call in every state, and the admission of partitions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from aioproducer._core.idempotence import ProducerIdentity
from aioproducer._core.transactions.transaction_manager import (
    OPEN,
    SENDING,
    TRANSITIONS,
    TransactionEvent as Event,
    TransactionManager,
    TransactionState as State,
)
from aioproducer.errors import (
    CommitFailed,
    DeliveryTimeout,
    ProducerError,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionStateError,
    UnknownProducerId,
)
from aioproducer.types import TopicPartition
from tests.cases import for_each

FIRST, NEXT = ProducerIdentity(7, 0), ProducerIdentity(7, 1)
HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)
FAILED = TopicAuthorizationFailed("not ours")

CALLS: dict[Event, Callable[[TransactionManager], object]] = {
    Event.INITIALIZE: lambda manager: manager.initialize(),
    Event.INITIALIZED: lambda manager: manager.initialized(FIRST, 1),
    Event.BEGIN: lambda manager: manager.begin(),
    Event.PREPARE: lambda manager: manager.prepare(),
    Event.SETTLED: lambda manager: manager.settled(),
    Event.COMMIT: lambda manager: manager.commit(),
    Event.ABORT: lambda manager: manager.abort(),
    Event.ENDED: lambda manager: manager.ended(None, 1),
    Event.BUMP: lambda manager: manager.ended(None, 2),
    Event.FAIL: lambda manager: manager.failed(FAILED),
    Event.FAIL_FATALLY: lambda manager: manager.failed(ProducerFenced("gone")),
}
OF_USERS = {
    Event.BEGIN: "begin a transaction",
    Event.PREPARE: "prepare",
    Event.COMMIT: "commit",
    Event.ABORT: "abort",
}
SITUATIONS = {
    State.UNINITIALIZED: "the producer is not started",
    State.INITIALIZING: "still asking for its producer id",
    State.READY: "no transaction is open; begin one",
    State.IN_TRANSACTION: "a transaction is open; commit or abort it first",
    State.PREPARING: "prepare was called",
    State.PREPARED: "the transaction is prepared",
    State.COMMITTING: "commit was called; call it again",
    State.ABORTING: "abort was called; call it again",
    State.ABORTABLE: "the transaction has failed; abort it",
    State.FATAL: "the producer has failed; close it",
}


class Rig:
    def __init__(self, state: State = State.UNINITIALIZED, *, version: int = 1) -> None:
        self.wanted = 0
        self.moves: list[bool] = []
        self.manager = TransactionManager("tx", on_wanted=self._want, on_moved=self.moves.append)
        self.manager.state, self.manager.version = state, version
        if state is not State.UNINITIALIZED:
            self.manager.assign(*FIRST)

    def _want(self) -> None:
        self.wanted += 1


def manager(state: State, *, version: int = 1) -> TransactionManager:
    return Rig(state, version=version).manager


def named(each: object) -> str | None:
    return each.name if isinstance(each, State | Event) else None


class TestEveryCallInEveryState:
    def test_calls_cover_every_event(self) -> None:
        assert set(CALLS) == set(Event)

    @for_each(("state", "event"), sorted(TRANSITIONS))
    def test_allowed_call_moves_the_state(self, state: State, event: Event) -> None:
        rig = Rig(state)
        CALLS[event](rig.manager)
        to = TRANSITIONS[state, event]
        assert rig.manager.state is to
        unmoved = event is Event.FAIL_FATALLY and state is State.FATAL
        assert rig.moves == ([] if unmoved else [to is State.IN_TRANSACTION])

    @for_each(("state", "event"), sorted(set(product(State, Event)) - set(TRANSITIONS)))
    def test_forbidden_call_is_refused_and_changes_nothing(self, state: State, event: Event) -> None:
        rig = Rig(state)
        if event is Event.FAIL:
            rig.manager.failed(FAILED)  # no transaction is open
            assert rig.manager.cause is None
        elif event in OF_USERS:
            with pytest.raises(
                TransactionStateError, match=f"^cannot {OF_USERS[event]}: .*{SITUATIONS[state]}"
            ):
                CALLS[event](rig.manager)
        else:
            with pytest.raises(AssertionError, match=f"that is {state.name} cannot {event.name}$"):
                CALLS[event](rig.manager)
        assert (rig.manager.state, rig.moves) == (state, [])

    @for_each("state", State)
    def test_is_open_holds_in_the_open_states(self, state: State) -> None:
        assert manager(state).is_open is (state in OPEN)


class TestAdmission:
    @for_each("state", State)
    def test_partition_is_admitted_in_the_sending_states(self, state: State) -> None:
        it = manager(state, version=2)
        assert it.admits(HERE) is (state in SENDING)

    def test_partition_is_not_admitted_without_a_producer_id(self) -> None:
        it = manager(State.IN_TRANSACTION, version=2)
        it.current = None
        assert not it.admits(HERE)

    def test_partition_is_not_admitted_while_held(self) -> None:
        it = manager(State.IN_TRANSACTION, version=2)
        it.held = True
        assert not it.admits(HERE)

    @pytest.mark.parametrize("version", [0, 1])
    def test_partition_is_admitted_once_added_below_version_2(self, version: int) -> None:
        it = manager(State.IN_TRANSACTION, version=version)
        it.want(HERE)
        it.want(THERE)
        assert (it.wanted(), it.admits(HERE)) == ([HERE, THERE], False)
        it.added([HERE])
        assert (it.wanted(), it.admits(HERE), it.admits(THERE)) == ([THERE], True, False)

    @for_each(
        ("state", "version", "told"),
        [
            *((state, 1, int(state in SENDING)) for state in State),
            (State.IN_TRANSACTION, 2, 0),
            (State.COMMITTING, 2, 0),
        ],
    )
    def test_partition_is_wanted_only_while_records_are_sent(
        self, state: State, version: int, told: int
    ) -> None:
        rig = Rig(state, version=version)
        rig.manager.want(HERE)
        assert (rig.wanted, rig.manager.wanted()) == (told, [HERE] * told)

    def test_added_partition_is_not_wanted_again(self) -> None:
        rig = Rig(State.IN_TRANSACTION)
        rig.manager.want(HERE)
        rig.manager.added([HERE])
        rig.manager.want(HERE)
        assert (rig.wanted, rig.manager.wanted()) == (1, [])

    def test_sequences_of_the_current_identity_are_kept(self) -> None:
        it = manager(State.READY)
        assert [it.keeps(each) for each in (FIRST, NEXT, None)] == [True, False, False]
        it.current = None
        assert not it.keeps(None)

    def test_partitions_bump_no_epoch_of_their_own(self) -> None:
        assert not manager(State.READY).bumps_partitions


class TestStateAtTheCoordinator:
    def test_new_manager_has_attempted_nothing(self) -> None:
        it = TransactionManager("tx", on_wanted=lambda: None, on_moved=lambda _: None)
        assert (it.attempted, it.needs_bump, it.version, it.cause) == (False, False, 0, None)
        assert (it.groups, it.current) == (set(), None)
        assert it.transactional_id == "tx"

    def test_written_request_counts_as_attempted(self) -> None:
        it = manager(State.IN_TRANSACTION)
        it.request_written()
        assert (it.attempted, it.needs_bump) == (True, False)

    def test_uncertain_request_needs_a_bump(self) -> None:
        it = manager(State.IN_TRANSACTION)
        it.request_epoch_bump()
        assert (it.attempted, it.needs_bump) == (False, True)

    def test_end_clears_partitions_groups_and_failures(self) -> None:
        it = manager(State.IN_TRANSACTION)
        it.request_written()
        it.groups.add("g")
        it.added([HERE])
        it.failed(FAILED)
        it.abort()
        it._wanted[THERE] = None
        it.ended(None, 1)
        assert (it.attempted, it.groups, it.cause, it.wanted()) == (False, set(), None, [])
        it.begin()
        assert not it.admits(HERE)


class TestBump:
    """Below version 2 the epoch changes only after uncertain requests; from version 2 on it always changes."""

    @for_each("state", [State.COMMITTING, State.ABORTING])
    @for_each(
        ("uncertain", "before", "after", "answered", "bump"),
        [
            (False, 1, 1, None, False),
            (True, 1, 1, None, True),
            (False, 0, 0, None, False),
            (True, 0, 0, None, True),
            (False, 0, 1, None, True),
            (False, 1, 2, None, True),
            (False, 1, 0, None, False),
            (False, 2, 2, NEXT, False),
            (True, 2, 2, NEXT, False),
            (False, 2, 1, NEXT, False),
            (True, 2, 1, NEXT, False),
            (False, 2, 2, None, False),
            (True, 2, 2, None, True),
        ],
    )
    def test_bump_depends_on_version_and_uncertainty(
        self,
        state: State,
        uncertain: bool,
        before: int,
        after: int,
        answered: ProducerIdentity | None,
        bump: bool,
    ) -> None:
        it = manager(state, version=before)
        if uncertain:
            it.request_epoch_bump()
        assert it.ended(answered, after) is bump
        assert it.state is (State.INITIALIZING if bump else State.READY)
        assert (it.current, it.version) == (answered or FIRST, after)
        assert it.needs_bump is (uncertain and answered is None)

    def test_unknown_producer_id_needs_a_bump(self) -> None:
        it = manager(State.IN_TRANSACTION)
        it.failed(UnknownProducerId("forgotten"))
        assert it.needs_bump
        it.abort()
        assert it.ended(None, 1)

    def test_initialized_clears_the_bump(self) -> None:
        it = manager(State.COMMITTING)
        it.request_epoch_bump()
        it.ended(None, 1)
        it.initialized(NEXT, 2)
        assert (it.state, it.current, it.version, it.needs_bump) == (State.READY, NEXT, 2, False)

    def test_ended_without_an_answer_keeps_the_epoch(self) -> None:
        it = manager(State.COMMITTING)
        it.request_epoch_bump()
        it.ended(None, 1)
        assert it.current == FIRST

    @for_each("version", [1, 2])
    def test_transaction_of_a_left_cluster_is_not_ended_there(self, version: int) -> None:
        it = manager(State.ABORTING, version=version)
        it.request_written()
        it.leave_cluster()
        assert not it.must_be_ended(commit=False)
        assert it.ended(None, version)


class TestFailures:
    def test_first_failure_is_the_cause(self) -> None:
        it = manager(State.IN_TRANSACTION)
        it.failed(FAILED)
        it.failed(DeliveryTimeout("late"))
        assert (it.state, it.cause) == (State.ABORTABLE, FAILED)

    def test_failures_during_an_abort_are_ignored(self) -> None:
        it = manager(State.ABORTING)
        it.failed(FAILED)
        assert (it.state, it.cause) == (State.ABORTING, None)

    @for_each("state", sorted(set(State) - {State.FATAL}))
    def test_fatal_failure_counts_in_every_state(self, state: State) -> None:
        it = manager(state)
        fenced = ProducerFenced("gone")
        it.failed(fenced)
        it.failed(ProducerFenced("again"))
        assert (it.state, it.cause) == (State.FATAL, fenced)

    def test_failure_marked_as_fatal_is_fatal(self) -> None:
        it = manager(State.IN_TRANSACTION)
        error = TopicAuthorizationFailed("of all things")
        error.fatal = True
        it.failed(error)
        assert (it.state, it.cause) == (State.FATAL, error)

    @pytest.mark.parametrize("what", ["send", "commit"])
    def test_refusal_of_a_failed_transaction_has_its_cause(self, what: str) -> None:
        it = manager(State.IN_TRANSACTION)
        it.failed(TopicAuthorizationFailed("not ours", possibly_persisted=True))
        told = it.refusal(what)
        assert type(told) is TopicAuthorizationFailed
        assert str(told) == (
            f"cannot {what}: the transaction of 'tx' has failed (not ours); abort it, then begin the next one"
        )
        assert (told.abortable, told.fatal, told.possibly_persisted) == (True, False, False)
        assert told.__cause__ is it.cause

    def test_refusal_after_a_fatal_error_has_its_cause(self) -> None:
        it = manager(State.IN_TRANSACTION)
        it.failed(ProducerFenced("gone"))
        told = it.refusal("go on")
        assert type(told) is ProducerFenced
        assert str(told) == (
            "cannot go on: the transaction of 'tx' has failed (gone); close this producer and start another"
        )
        assert (told.abortable, told.fatal) == (False, True)
        assert told.__cause__ is it.cause

    @pytest.mark.parametrize(
        "call", [TransactionManager.begin, TransactionManager.commit, TransactionManager.prepare]
    )
    def test_failed_transaction_refuses_every_call_except_abort(
        self, call: Callable[[TransactionManager], None]
    ) -> None:
        it = manager(State.IN_TRANSACTION)
        it.failed(CommitFailed("22"))
        with pytest.raises(CommitFailed, match="22"):
            call(it)
        it.abort()
        assert it.state is State.ABORTING

    @for_each(
        "call",
        [
            TransactionManager.begin,
            TransactionManager.commit,
            TransactionManager.prepare,
            TransactionManager.abort,
        ],
    )
    def test_fatal_error_is_raised_by_every_call(self, call: Callable[[TransactionManager], None]) -> None:
        it = manager(State.READY)
        it.failed(ProducerFenced("gone"))
        with pytest.raises(ProducerFenced, match="gone"):
            call(it)

    def test_refusal_during_an_abort_hides_the_earlier_cause(self) -> None:
        it = manager(State.IN_TRANSACTION)
        it.failed(FAILED)
        it.abort()
        assert isinstance(it.refusal("send"), TransactionStateError)

    def test_prepared_transaction_does_not_fail(self) -> None:
        it = manager(State.PREPARED)
        it.failed(ProducerError("late"))
        assert (it.state, it.cause) == (State.PREPARED, None)

    @for_each("commit", [True, False])
    @for_each("version", [0, 1, 2])
    def test_end_is_due_once_something_was_asked_or_for_an_epoch(self, version: int, commit: bool) -> None:
        it = manager(State.IN_TRANSACTION)
        it.version = version
        assert not it.must_be_ended(commit=commit)
        it.request_epoch_bump()
        assert it.must_be_ended(commit=commit) is (version == 2 and not commit)
        it.request_written()
        assert it.must_be_ended(commit=commit)
