"""The table of states and events of a transaction."""

from __future__ import annotations

from itertools import product

from aioproducer._core.transactions.transaction_manager import (
    OPEN,
    SENDING,
    TRANSITIONS,
    TransactionEvent as Event,
    TransactionState as State,
)
from tests.cases import for_each

EXPECTED = """
UNINITIALIZED  INITIALIZE   INITIALIZING
INITIALIZING   INITIALIZED  READY
READY          INITIALIZE   INITIALIZING
READY          BEGIN        IN_TRANSACTION
IN_TRANSACTION PREPARE      PREPARING
IN_TRANSACTION COMMIT       COMMITTING
IN_TRANSACTION ABORT        ABORTING
IN_TRANSACTION FAIL         ABORTABLE
PREPARING      SETTLED      PREPARED
PREPARING      COMMIT       COMMITTING
PREPARING      ABORT        ABORTING
PREPARING      FAIL         ABORTABLE
PREPARED       COMMIT       COMMITTING
PREPARED       ABORT        ABORTING
COMMITTING     ENDED        READY
COMMITTING     BUMP         INITIALIZING
COMMITTING     FAIL         ABORTABLE
ABORTABLE      ABORT        ABORTING
ABORTABLE      FAIL         ABORTABLE
ABORTING       FAIL         ABORTING
ABORTING       ENDED        READY
ABORTING       BUMP         INITIALIZING
"""
ROWS = {(State[a], Event[b]): State[c] for a, b, c in (line.split() for line in EXPECTED.split("\n") if line)}
ROWS |= {(state, Event.FAIL_FATALLY): State.FATAL for state in State}
OF_USERS = {Event.INITIALIZE, Event.BEGIN, Event.PREPARE, Event.COMMIT, Event.ABORT}


@for_each(("state", "event"), list(product(State, Event)))
def test_transitions_match_the_table(state: State, event: Event) -> None:
    assert TRANSITIONS.get((state, event)) == ROWS.get((state, event))


def test_every_state_is_reachable() -> None:
    reached, before = {State.UNINITIALIZED}, set[State]()
    while reached != before:
        before = set(reached)
        reached |= {to for (state, _), to in TRANSITIONS.items() if state in reached}
    assert reached == set(State)


@for_each("state", sorted(set(State) - {State.FATAL}))
def test_every_state_except_fatal_can_become_ready(state: State) -> None:
    reached, before = {state}, set[State]()
    while reached != before:
        before = set(reached)
        reached |= {to for (at, _), to in TRANSITIONS.items() if at in reached and to is not State.FATAL}
    assert State.READY in reached


def test_fatal_state_is_never_left() -> None:
    assert {to for (state, _), to in TRANSITIONS.items() if state is State.FATAL} == {State.FATAL}


def test_commit_becomes_an_abort_only_by_a_failure() -> None:
    assert (State.COMMITTING, Event.ABORT) not in TRANSITIONS
    assert (State.ABORTING, Event.COMMIT) not in TRANSITIONS
    assert (State.ABORTABLE, Event.COMMIT) not in TRANSITIONS


def test_transaction_is_open_from_begin_to_end() -> None:
    assert set(State) - OPEN == {State.UNINITIALIZED, State.INITIALIZING, State.READY, State.FATAL}


def test_records_are_sent_until_an_end_is_due() -> None:
    assert {State.IN_TRANSACTION, State.PREPARING, State.COMMITTING} == SENDING
