from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from aioproducer._core.idempotence import REFUSALS_AS_PROOF, SEQUENCE_REFUSALS, Persistence
from aioproducer.errors import (
    BrokerError,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    broker_error,
)
from tests.cases import for_each


class Known(NamedTuple):
    """State of a batch's attempts."""

    is_out: bool
    in_doubt: bool


NOTHING = Known(is_out=False, in_doubt=False)
OUT = Known(is_out=True, in_doubt=False)
DOUBT = Known(is_out=False, in_doubt=True)
BOTH = Known(is_out=True, in_doubt=True)
ALL = (NOTHING, OUT, DOUBT, BOTH)

Event = Callable[[Persistence], None]
EVENTS: Mapping[str, Event] = {
    "written": Persistence.written,
    "not written": Persistence.not_written,
    "answered": Persistence.answered,
    "refused": lambda batch: batch.refused(NotEnoughReplicas, was_next=True),
    "left open": lambda batch: batch.refused(RequestTimedOut, was_next=True),
    "denied": lambda batch: batch.refused(OutOfOrderSequenceNumber, was_next=True),
    "denied behind another": lambda batch: batch.refused(OutOfOrderSequenceNumber, was_next=False),
    "lost": lambda batch: batch.connection_lost(reached_socket=True),
    "never left": lambda batch: batch.connection_lost(reached_socket=False),
    "not understood": Persistence.answer_not_understood,
    "ruled out": Persistence.ruled_out,
    "another leader": Persistence.reset_sequence_refusals,
}
TABLE: Mapping[str, tuple[Known, Known, Known, Known]] = {
    # before:                 NOTHING  OUT      DOUBT  BOTH
    "written":               (OUT,     OUT,     BOTH,  BOTH),
    "not written":           (NOTHING, NOTHING, DOUBT, DOUBT),
    "answered":              (NOTHING, NOTHING, DOUBT, DOUBT),
    "refused":               (NOTHING, NOTHING, DOUBT, DOUBT),
    "left open":             (DOUBT,   DOUBT,   DOUBT, DOUBT),
    "denied":                (NOTHING, NOTHING, DOUBT, DOUBT),
    "denied behind another": (NOTHING, NOTHING, DOUBT, DOUBT),
    "lost":                  (NOTHING, DOUBT,   DOUBT, DOUBT),
    "never left":            (NOTHING, NOTHING, DOUBT, DOUBT),
    "not understood":        (DOUBT,   BOTH,    DOUBT, BOTH),
    "ruled out":             (NOTHING, OUT,     NOTHING, OUT),
    "another leader":        (NOTHING, OUT,     DOUBT, BOTH),
}  # fmt: skip
"""What is known after one more event."""
ENDS_THE_STORY = {"ruled out", "not understood"}
"""After these no answer under the same sequence is heard."""
CODES = sorted(code for code, kind in BrokerError.by_code.items() if kind.__name__ != f"ErrorCode{code}")
BEGINS_THE_COUNT_AGAIN = {
    "refused",
    "left open",
    "denied behind another",
    "lost",
    "never left",
    "another leader",
}


def after(*events: str) -> Persistence:
    """Return the state after *events*, one after the other."""
    persistence = Persistence()
    for event in events:
        EVENTS[event](persistence)
    return persistence


def known(persistence: Persistence) -> Known:
    return Known(persistence.attempt_is_out, persistence.in_doubt)


def in_state(before: Known) -> Persistence:
    ways = {NOTHING: (), OUT: ("written",), DOUBT: ("written", "lost"), BOTH: ("written", "lost", "written")}
    persistence = after(*ways[before])
    assert known(persistence) == before
    return persistence


def test_new_batch_is_not_persisted() -> None:
    persistence = Persistence()
    assert known(persistence) == NOTHING
    assert not persistence.possible
    assert persistence.possibly_persisted is False
    assert persistence.sequence_refusals == 0
    assert not persistence.half_of_possibly_persisted


@for_each("state", ALL)
def test_batch_in_flight_or_in_doubt_is_possibly_persisted(state: Known) -> None:
    assert in_state(state).possible == (state != NOTHING)


@for_each("state", ALL)
@for_each("event", EVENTS)
def test_events_lead_to_the_states_of_the_table(event: str, state: Known) -> None:
    persistence = in_state(state)
    EVENTS[event](persistence)
    assert known(persistence) == TABLE[event][ALL.index(state)]


@for_each("first", EVENTS)
@for_each("second", EVENTS)
def test_consecutive_events_compose(first: str, second: str) -> None:
    """Except for denials, the state is only: in flight, and in doubt."""
    for index, state in enumerate(ALL):
        persistence = in_state(state)
        EVENTS[first](persistence)
        EVENTS[second](persistence)
        assert known(persistence) == TABLE[second][ALL.index(TABLE[first][index])]


@for_each("code", CODES)
def test_error_before_the_append_leaves_no_doubt(code: int) -> None:
    kind = broker_error(code)
    persistence = after("written", "answered")
    persistence.refused(kind, was_next=True)
    assert persistence.in_doubt is not kind.definitely_refused


@for_each("code", CODES)
def test_sequence_error_denies_the_batch(code: int) -> None:
    kind = broker_error(code)
    persistence = after("written", "lost")
    for _ in range(REFUSALS_AS_PROOF):
        persistence.refused(kind, was_next=True)
    assert persistence.in_doubt is (kind not in SEQUENCE_REFUSALS)


@for_each("state", ALL)
def test_batch_in_doubt_is_not_in_another_cluster(state: Known) -> None:
    persistence = in_state(state)
    persistence.leave_log()
    assert not persistence.in_doubt
    EVENTS["answered"](persistence)
    assert persistence.possibly_persisted is (state != NOTHING)
    assert not persistence.possible


def test_denials_and_halves_end_with_the_cluster() -> None:
    half = after("written", "lost").of_part(keeps_sequence=True)
    half.leave_log()
    assert not half.half_of_possibly_persisted
    persistence = after("written", "lost", *["denied"] * (REFUSALS_AS_PROOF - 1))
    persistence.leave_log()
    assert persistence.sequence_refusals == 0


class TestDenials:
    """A leader that keeps denying that it has the batch."""

    @for_each("count", range(REFUSALS_AS_PROOF + 2))
    def test_consecutive_denials_are_believed_at_the_limit(self, count: int) -> None:
        persistence = after("written", "lost", *["written", "answered", "denied"] * count)
        assert persistence.possible is (count < REFUSALS_AS_PROOF)

    def test_denials_may_differ(self) -> None:
        persistence = after("written", "lost")
        for kind in SEQUENCE_REFUSALS:
            persistence.refused(kind, was_next=True)
        assert not persistence.possible

    def test_denials_count_only_for_the_oldest_batch(self) -> None:
        assert after("written", "lost", *["denied behind another"] * 2 * REFUSALS_AS_PROOF).possible

    @for_each("number", range(1, REFUSALS_AS_PROOF))
    @for_each("between", sorted(EVENTS.keys() - {"denied", *ENDS_THE_STORY}))
    def test_event_other_than_a_denial_resets_the_denials(self, between: str, number: int) -> None:
        denials = ["denied"] * number, ["denied"] * (REFUSALS_AS_PROOF - number)
        persistence = after("written", "lost", *denials[0], between, *denials[1])
        assert persistence.in_doubt is (between in BEGINS_THE_COUNT_AGAIN)

    @for_each("between", sorted(BEGINS_THE_COUNT_AGAIN))
    def test_reset_denials_count_from_zero(self, between: str) -> None:
        denied = ["denied"] * (REFUSALS_AS_PROOF - 1)
        persistence = after("written", "lost", *denied, between, *denied)
        assert persistence.in_doubt
        EVENTS["denied"](persistence)
        assert not persistence.in_doubt

    def test_denials_do_not_apply_to_a_later_attempt(self) -> None:
        persistence = after("written", "lost", *["denied"] * REFUSALS_AS_PROOF)
        for event in ("written", "lost"):
            EVENTS[event](persistence)
            assert persistence.possible
        EVENTS["denied"](persistence)
        assert persistence.possible


class TestParts:
    @for_each("keeps_sequence", [False, True])
    @for_each("state", ALL)
    def test_part_inherits_the_doubt_of_its_batch(self, state: Known, keeps_sequence: bool) -> None:
        part = in_state(state).of_part(keeps_sequence=keeps_sequence)
        assert known(part) == Known(is_out=False, in_doubt=state.in_doubt)
        assert part.half_of_possibly_persisted is (state.in_doubt and keeps_sequence)

    def test_part_needs_as_many_denials_as_a_batch(self) -> None:
        batch = after("written", "lost", *["denied"] * (REFUSALS_AS_PROOF - 1))
        part = batch.of_part(keeps_sequence=True)
        for _ in range(REFUSALS_AS_PROOF - 1):
            EVENTS["denied"](part)
        assert part.in_doubt

    def test_events_of_a_part_affect_only_the_part(self) -> None:
        batch = after("written", "lost")
        one, other = (batch.of_part(keeps_sequence=True) for _ in range(2))
        one.ruled_out()
        assert batch.possible
        assert other.possible
        assert other.half_of_possibly_persisted

    def test_part_of_a_half_is_a_half_however_often_it_is_denied(self) -> None:
        """No leader recognises a half."""
        half = after("written", "lost").of_part(keeps_sequence=True)
        for _ in range(REFUSALS_AS_PROOF):
            assert half.of_part(keeps_sequence=True).half_of_possibly_persisted
            EVENTS["denied"](half)
        assert half.in_doubt
        assert half.of_part(keeps_sequence=True).half_of_possibly_persisted

    def test_part_of_a_denied_batch_is_possibly_persisted(self) -> None:
        whole = after("written", "lost", *["denied"] * REFUSALS_AS_PROOF)
        part = whole.of_part(keeps_sequence=False)
        assert (part.possible, part.possibly_persisted) == (False, True)

    @for_each("event", EVENTS)
    def test_half_remains_a_half_unless_ruled_out(self, event: str) -> None:
        half = after("written", "lost").of_part(keeps_sequence=True)
        for _ in range(REFUSALS_AS_PROOF):
            EVENTS[event](half)
        assert half.half_of_possibly_persisted is (event != "ruled out")
