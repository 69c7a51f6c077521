"""The state of a batch's attempts, compared with the log of a leader that they may have reached."""

from __future__ import annotations

from enum import Enum, auto
from itertools import groupby

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aioproducer._core.idempotence import SEQUENCE_REFUSALS, Persistence
from aioproducer.errors import (
    BrokerError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    TopicAuthorizationFailed,
    broker_error,
)
from tests.property.profiles import share

BELIEVED = 3
"""So many denials in a row a leader would not give that has the batch."""


class Heard(Enum):
    """Outcome of an attempt as observed by the producer."""

    REFUSED = auto()
    """By an answer from before the append, which says nothing of other attempts."""
    DENIED = auto()
    """The leader does not have the batch, which is the oldest."""
    DENIED_BEHIND_ANOTHER = auto()
    """The same of one that is not the oldest: the leader may have forgotten it."""
    NEVER_LEFT = auto()
    LEFT_OPEN = auto()
    """By an answer that may come from after the append."""
    LOST = auto()
    NOT_UNDERSTOOD = auto()
    IN_THE_WHOLE = auto()
    """It is a part, and some attempt of the whole batch was one of those."""


NOT_APPENDED = {Heard.REFUSED, Heard.DENIED, Heard.DENIED_BEHIND_ANOTHER, Heard.NEVER_LEFT}

refusals = st.sampled_from([NotEnoughReplicas, MessageTooLarge, TopicAuthorizationFailed])
denials = st.sampled_from(SEQUENCE_REFUSALS)
open_answers = st.sampled_from(
    [RequestTimedOut, NotEnoughReplicasAfterAppend, NotLeaderOrFollower, broker_error(-1), broker_error(4711)]
)

other_answers = st.sampled_from([Heard.DENIED_BEHIND_ANOTHER, Heard.REFUSED, Heard.NEVER_LEFT, Heard.LOST])
many_denials = other_answers.flatmap(
    lambda other: st.lists(st.sampled_from([Heard.DENIED, other]), min_size=3, max_size=6)
)
"""Three in a row, or with something else in between, or nothing but that."""


class PersistenceMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.another_batch()

    # The leader.

    @precondition(lambda self: self.is_out and not self.is_appended)
    @rule()
    def the_attempt_is_appended(self) -> None:
        self.is_appended = self.in_log = True

    @precondition(lambda self: self.is_late)
    @rule()
    def a_lost_attempt_arrives_late(self) -> None:
        self.is_late, self.in_log = False, True

    # The producer. What happens to an attempt begins one, if none is out.

    @precondition(lambda self: self.is_over)
    @rule()
    def another_batch(self) -> None:
        self.batch = Persistence()
        self.heard: list[Heard] = []
        self.is_out = False
        self.is_appended = False
        """Whether what is out is in the log."""
        self.is_late = False
        """Whether a lost attempt may still arrive: before the next one does."""
        self.in_log = False
        self.is_half = False
        self.is_over = False

    @precondition(lambda self: not self.is_over and not self.is_out)
    @rule()
    def it_is_written(self) -> None:
        self.batch.written()
        self.is_out, self.is_late = True, False

    @precondition(lambda self: not self.is_over and not self.is_appended)
    @rule()
    def the_request_cannot_be_made(self) -> None:
        """The node is too old for the request; the batch fails."""
        self.begin()
        self.batch.not_written()
        self.is_out, self.is_over = False, True

    @precondition(lambda self: not self.is_over)
    @rule()
    def it_is_acknowledged(self) -> None:
        self.begin()
        self.batch.answered()
        self.another_batch()

    @precondition(lambda self: not self.is_over and not self.is_appended)
    @rule(kind=refusals, was_next=st.booleans())
    def it_is_refused(self, kind: type[BrokerError], was_next: bool) -> None:
        """So may one be that is in the log: a broker looks at some things before it looks for duplicates."""
        self.answer(kind, Heard.REFUSED, was_next=was_next)

    @precondition(lambda self: not self.is_over and not self.in_log)
    @rule(kind=denials)
    def it_is_denied(self, kind: type[BrokerError]) -> None:
        self.answer(kind, Heard.DENIED, was_next=True)

    @precondition(lambda self: not self.is_over and not self.is_appended)
    @rule(kind=denials)
    def it_is_denied_behind_another(self, kind: type[BrokerError]) -> None:
        self.answer(kind, Heard.DENIED_BEHIND_ANOTHER, was_next=False)

    @precondition(lambda self: not self.is_over and not self.in_log)
    @rule(kind=denials, answers=many_denials)
    def it_is_denied_many_times(self, kind: type[BrokerError], answers: list[Heard]) -> None:
        """The steps of other rules at once, as the shortest path to three denials in a row."""
        for heard in answers:
            match heard:
                case Heard.DENIED:
                    self.it_is_denied(kind)
                case Heard.DENIED_BEHIND_ANOTHER:
                    self.it_is_denied_behind_another(kind)
                case Heard.REFUSED:
                    self.it_is_refused(NotEnoughReplicas, was_next=True)
                case Heard.NEVER_LEFT:
                    self.the_connection_is_lost_before_a_byte_has_left()
                case Heard.LOST:
                    self.the_connection_is_lost()

    @precondition(lambda self: not self.is_over)
    @rule(kind=open_answers, was_next=st.booleans())
    def its_answer_leaves_it_open(self, kind: type[BrokerError], was_next: bool) -> None:
        self.answer(kind, Heard.LEFT_OPEN, was_next=was_next)

    @precondition(lambda self: not self.is_over)
    @rule()
    def the_connection_is_lost(self) -> None:
        self.begin()
        self.batch.connection_lost(reached_socket=True)
        self.is_late = not self.is_appended
        self.end(Heard.LOST)

    @precondition(lambda self: not self.is_over and not self.is_appended)
    @rule()
    def the_connection_is_lost_before_a_byte_has_left(self) -> None:
        self.begin()
        self.batch.connection_lost(reached_socket=False)
        self.end(Heard.NEVER_LEFT)

    @precondition(lambda self: not self.is_over and not self.is_out)
    @rule()
    def its_connection_is_lost_before_it_is_written(self) -> None:
        """It was drained, and its bytes were still to be made."""
        self.batch.connection_lost(reached_socket=True)
        self.end(Heard.NEVER_LEFT)

    @precondition(lambda self: not self.is_over)
    @rule()
    def its_answer_is_not_understood(self) -> None:
        """Unexpected error that ends the sender."""
        self.begin()
        self.batch.answered()
        self.batch.answer_not_understood()
        self.end(Heard.NOT_UNDERSTOOD)
        self.is_over = True

    @precondition(lambda self: not self.is_over and not self.is_out and not self.in_log)
    @rule()
    def one_before_it_is_surely_not_in_the_log(self) -> None:
        """Then this batch is missing from the log as well, and cannot arrive under its sequence."""
        self.batch.ruled_out()
        self.heard.clear()
        self.is_late = self.is_half = False

    @precondition(lambda self: not self.is_over and not self.is_out)
    @rule(keeps_sequence=st.booleans())
    def it_is_split(self, keeps_sequence: bool) -> None:
        """Go on with one part: its records are in the log if the whole batch is, or if that arrives late."""
        doubted, whole = self.is_doubted(), self.batch
        self.batch = whole.of_part(keeps_sequence=keeps_sequence)
        self.heard = [Heard.IN_THE_WHOLE] if doubted else []
        self.is_half = doubted and keeps_sequence
        assert whole.possible is doubted

    @precondition(lambda self: not self.is_over)
    @rule()
    def it_is_lost_and_too_large_by_then(self) -> None:
        """The steps of other rules at once, as the shortest path to half of a batch that may be in the log."""
        self.the_connection_is_lost()
        self.it_is_refused(MessageTooLarge, was_next=True)
        self.it_is_split(keeps_sequence=True)

    def begin(self) -> None:
        if not self.is_out:
            self.it_is_written()

    def answer(self, kind: type[BrokerError], heard: Heard, *, was_next: bool) -> None:
        self.begin()
        self.batch.answered()
        self.batch.refused(kind, was_next=was_next)
        self.end(heard)

    def end(self, heard: Heard) -> None:
        self.heard.append(heard)
        self.is_out = self.is_appended = False

    def is_doubted(self) -> bool:
        """Whether some attempt may have been appended, and the leader has not denied it three times in a row since.

        It denies every half, also of what it has: that says nothing.
        """
        doubts = [index for index, heard in enumerate(self.heard) if heard not in NOT_APPENDED]
        since = self.heard[doubts[-1] + 1 :] if doubts else []
        in_a_row = [len(list(run)) for heard, run in groupby(since) if heard is Heard.DENIED]
        denied = max(in_a_row, default=0) >= BELIEVED and not self.batch.half_of_possibly_persisted
        return bool(doubts) and not denied

    # What has to hold.

    @invariant()
    def what_is_in_the_log_may_be_there(self) -> None:
        assert self.batch.possible or not self.in_log

    @invariant()
    def what_never_reached_a_socket_or_was_refused_each_time_is_not_there(self) -> None:
        if not self.is_out and NOT_APPENDED.issuperset(self.heard):
            assert not self.batch.possible

    @invariant()
    def doubt_lasts_until_three_denials_in_a_row_and_no_longer(self) -> None:
        assert self.batch.in_doubt is self.is_doubted()

    @invariant()
    def what_is_out_is_out(self) -> None:
        assert self.batch.attempt_is_out is self.is_out

    @invariant()
    def half_of_what_may_be_there_is_half_of_it_until_it_is_ruled_out(self) -> None:
        assert self.batch.half_of_possibly_persisted is self.is_half


TestPersistence = PersistenceMachine.TestCase
TestPersistence.settings = settings(max_examples=share(1), stateful_step_count=30)
