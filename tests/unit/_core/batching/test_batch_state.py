from __future__ import annotations

from aioproducer._core.batching.batch_state import RESOLVED, TRANSITIONS, BatchEvent, BatchState
from tests.cases import for_each

ENDS = {BatchState.DELIVERED, BatchState.SPLIT, BatchState.FAILED}
OUT = {BatchState.IN_FLIGHT, BatchState.EXPIRED_IN_FLIGHT}
"""The states in which there may be an answer."""


def events_of(state: BatchState) -> set[BatchEvent]:
    return {event for at, event in TRANSITIONS if at is state}


def states_of(event: BatchEvent) -> set[BatchState]:
    return {state for state, what in TRANSITIONS if what is event}


def reachable(state: BatchState) -> set[BatchState]:
    found: set[BatchState] = set()
    todo = [state]
    while todo:
        at = todo.pop()
        for event in events_of(at):
            after = TRANSITIONS[at, event]
            if after not in found:
                found.add(after)
                todo.append(after)
    return found


@for_each("state", BatchState)
def test_every_state_except_the_ends_has_events(state: BatchState) -> None:
    assert bool(events_of(state)) == (state not in ENDS)


@for_each("event", BatchEvent)
def test_every_event_leads_to_one_state(event: BatchEvent) -> None:
    assert len({TRANSITIONS[state, event] for state in states_of(event)}) == 1


def test_every_event_moves_a_batch() -> None:
    assert all(state is not to for (state, _), to in TRANSITIONS.items())


def test_open_state_is_never_reached_again() -> None:
    assert reachable(BatchState.OPEN) == set(BatchState) - {BatchState.OPEN}


@for_each("state", sorted(RESOLVED))
def test_resolved_batch_stays_resolved(state: BatchState) -> None:
    assert reachable(state) <= RESOLVED


@for_each("state", sorted(set(BatchState) - ENDS))
def test_every_state_can_reach_an_end(state: BatchState) -> None:
    assert reachable(state) & ENDS


@for_each("state", sorted(set(BatchState) - ENDS))
def test_fail_is_allowed_in_every_state(state: BatchState) -> None:
    assert BatchEvent.FAIL in events_of(state)


def test_acknowledge_is_allowed_only_after_a_drain() -> None:
    assert states_of(BatchEvent.ACKNOWLEDGE) == OUT


def test_split_expire_and_retry_are_allowed_only_in_flight() -> None:
    for event in (BatchEvent.SPLIT, BatchEvent.EXPIRE, BatchEvent.RETRY):
        assert states_of(event) == {BatchState.IN_FLIGHT}


def test_drain_is_allowed_only_from_sealed_and_backoff() -> None:
    assert states_of(BatchEvent.DRAIN) == {BatchState.SEALED, BatchState.BACKOFF}
