from __future__ import annotations

from collections.abc import Collection

import pytest

from aioproducer.backoff import Backoff
from aioproducer.cluster.agenda import FAILOVER_S, OUTAGE_PAUSE_S, SHORTEST_PAUSE_S, Agenda, Plan
from aioproducer.cluster.settings import MetadataSettings
from aioproducer.cluster.snapshot import NO_LEADER, Snapshot
from aioproducer.errors import LeaderNotAvailable, TopicAuthorizationFailed, UnknownTopicOrPartition
from aioproducer.protocol.metadata import MetadataResponseTopic
from tests.unit.cluster.answers import after, refused, topic

MAX_AGE_S = 300.0
MAX_IDLE_S = 60.0


BACKOFF = Backoff(0.1, 1.0, jitter=0.0)


def settings(backoff: Backoff, max_age_s: float) -> MetadataSettings:
    return MetadataSettings(
        bootstrap=(),
        max_age_s=max_age_s,
        max_idle_s=MAX_IDLE_S,
        backoff=backoff,
        request_timeout_s=30.0,
        rebootstrap=True,
        rebootstrap_trigger_s=300.0,
    )


class Book:
    """An agenda, the snapshot that belongs to it, and time that passes as the test says."""

    def __init__(self, backoff: Backoff = BACKOFF, max_age_s: float = MAX_AGE_S) -> None:
        self.agenda = Agenda(settings(backoff, max_age_s))
        self.snapshot = Snapshot()
        self.now = 100.0

    def bootstrapped(self) -> Book:
        self.ask()
        return self

    def knowing(self, *topics: MetadataResponseTopic) -> Book:
        """A book long after it was told of *topics*."""
        self.bootstrapped()
        for each in topics:
            self.want(str(each.name))
        self.ask(*topics)
        self.now += 30.0
        assert self.agenda.due_at() > self.now
        return self

    def want(self, *names: str) -> None:
        for name in names:
            self.agenda.want(name, self.now)

    def want_all(self) -> bool:
        return self.agenda.want_all(self.now)

    def begin(self) -> Plan:
        return self.agenda.begin(self.now)

    def answer(self, plan: Plan, *topics: MetadataResponseTopic, waiting: Collection[str] = ()) -> None:
        before = self.snapshot
        self.snapshot = after(before, *topics, asked=plan.topics, complete=plan.complete, now=self.now)
        self.agenda.answered(plan, before, self.snapshot, waiting, self.now)

    def ask(self, *topics: MetadataResponseTopic, waiting: Collection[str] = ()) -> Plan:
        """Wait until it is time, if it ever is, ask, and have *topics* answered at once."""
        self.now = max(self.now, self.agenda.due_at())
        plan = self.begin()
        self.answer(plan, *topics, waiting=waiting)
        return plan

    def fail(self) -> Plan:
        self.now = max(self.now, self.agenda.due_at())
        plan = self.begin()
        self.agenda.failed(plan, self.now)
        return plan

    @property
    def pause_s(self) -> float:
        """How long until the next request."""
        return self.agenda.due_at() - self.now

    @property
    def is_due(self) -> bool:
        return self.agenda.due_at() <= self.now


class TestFirstOfAll:
    def test_the_brokers_are_wanted(self) -> None:
        book = Book()
        assert book.is_due
        assert book.begin() == Plan((), complete=True, wanted=frozenset())

    def test_nothing_else_is_wanted_until_the_answer_is_too_old(self) -> None:
        book = Book().bootstrapped()
        assert book.pause_s == MAX_AGE_S

    def test_a_failure_is_made_up_for(self) -> None:
        book = Book()
        book.fail()
        assert book.pause_s == pytest.approx(0.1)
        assert book.fail().complete


class TestUnknownTopic:
    def test_is_asked_for_at_once_and_alone(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("new")
        assert book.is_due
        assert book.begin() == Plan(("new",), complete=False, wanted=frozenset({"new"}))

    def test_is_not_asked_for_again_once_it_is_known(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        book.ask(topic("new", 1))
        assert book.pause_s == pytest.approx(MAX_AGE_S)

    def test_is_not_asked_for_again_for_those_who_come_while_the_answer_is_on_its_way(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        plan = book.begin()
        book.want("new")
        book.answer(plan, topic("new", 1))
        assert book.pause_s == pytest.approx(MAX_AGE_S)

    @pytest.mark.parametrize("error", [LeaderNotAvailable, UnknownTopicOrPartition])
    def test_is_asked_for_after_growing_pauses_while_somebody_waits(
        self, error: type[LeaderNotAvailable | UnknownTopicOrPartition]
    ) -> None:
        book = Book().bootstrapped()
        book.want("new")
        pauses = []
        for _ in range(6):
            book.ask(refused("new", error), waiting=["new"])
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])

    def test_is_left_alone_when_nobody_waits(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        book.ask(refused("new", UnknownTopicOrPartition))
        assert book.pause_s > 10

    def test_is_asked_for_again_by_the_next_who_wants_it_but_not_at_any_rate(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        pauses = []
        for _ in range(6):
            book.ask(refused("new", TopicAuthorizationFailed))
            book.want("new")
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])

    def test_of_which_the_answer_says_nothing_is_asked_for_again(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        book.ask(waiting=["new"])
        assert book.pause_s == pytest.approx(0.1)

    def test_does_not_wait_for_another_that_is_not_to_be_had(self) -> None:
        book = Book().bootstrapped()
        book.want("missing")
        for _ in range(5):
            book.ask(refused("missing", UnknownTopicOrPartition), waiting=["missing"])
        assert book.pause_s == pytest.approx(1.0)
        book.want("new")
        assert book.is_due

    def test_takes_those_along_that_are_wanted_later(self) -> None:
        """One request for two, instead of one for each; and it costs the other nothing of its pace."""
        book = Book().bootstrapped()
        book.want("missing")
        book.ask(refused("missing", UnknownTopicOrPartition), waiting=["missing"])
        book.now += 0.05
        book.want("new")
        plan = book.ask(topic("new", 1), refused("missing", UnknownTopicOrPartition), waiting=["missing"])
        assert set(plan.topics) == {"new", "missing"}
        assert book.pause_s == pytest.approx(0.1)


class TestKnownTopic:
    def test_whose_leader_is_not_believed_any_more_is_asked_for_at_once(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        book.want("orders")
        assert book.is_due
        assert book.begin().topics == ("orders",)

    def test_that_changed_is_believed_until_somebody_wants_it_again(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("orders")
        book.ask(topic("orders", (2, 1)))
        assert book.pause_s > 10
        book.want("orders")
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)

    def test_that_did_not_change_is_asked_for_after_growing_pauses(self) -> None:
        book = Book().knowing(topic("orders", 1))
        pauses = []
        for _ in range(6):
            book.want("orders")
            book.ask(topic("orders", 1))
            assert book.pause_s > 10, "nobody wants it now"
            book.want("orders")
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])

    def test_starts_with_short_pauses_again_after_a_calm(self) -> None:
        book = Book().knowing(topic("orders", 1))
        for _ in range(6):
            book.want("orders")
            book.ask(topic("orders", 1))
        book.now += 2.5
        book.want("orders")
        assert book.is_due
        book.ask(topic("orders", 1))
        book.want("orders")
        assert book.pause_s == pytest.approx(0.1)

    def test_wanted_while_an_answer_is_on_its_way_is_asked_for_again(self) -> None:
        """The answer may be older than the reason to want it."""
        book = Book().knowing(topic("orders", 1))
        book.want("orders")
        plan = book.begin()
        book.want("orders")
        book.answer(plan, topic("orders", (2, 1)))
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)

    def test_brought_up_to_date_with_others_keeps_its_pace(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        book.now = book.agenda.due_at() - 1.0
        book.agenda.touch("orders", book.now)
        assert book.ask(topic("orders", 1)) == Plan(("orders",), complete=True, wanted=frozenset())
        book.want("orders")
        assert book.is_due

    def test_without_a_leader_is_asked_for_until_it_has_one(self) -> None:
        book = Book().knowing(topic("orders", 1, 2))
        book.want("orders")
        pauses = []
        for _ in range(6):
            book.ask(topic("orders", 1, (NO_LEADER, 1)))
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        book.ask(topic("orders", 1, (3, 2)))
        assert book.pause_s > 10

    def test_without_a_leader_is_given_up_when_nobody_uses_it(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("orders")
        until = book.now + MAX_IDLE_S
        book.ask(topic("orders", NO_LEADER))
        requests = 0
        while book.pause_s <= 1.0:
            book.ask(topic("orders", NO_LEADER))
            requests += 1
        assert until <= book.now <= until + 1.0
        assert requests < 70


class TestEverything:
    def test_is_asked_for_at_once(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        book.want_all()
        assert book.is_due
        plan = book.begin()
        assert plan.complete
        assert set(plan.topics) == {"orders", "audit"}

    def test_is_asked_for_after_growing_pauses_while_nothing_changes(self) -> None:
        book = Book().knowing(topic("orders", 1))
        pauses = []
        for _ in range(6):
            book.want_all()
            book.ask(topic("orders", 1))
            book.want_all()
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])

    def test_is_asked_for_soon_again_after_a_change(self) -> None:
        book = Book().knowing(topic("orders", 1))
        for epoch in range(1, 5):
            book.want_all()
            book.ask(topic("orders", (1, epoch)))
            book.want_all()
            assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)

    def test_wanted_twice_is_asked_for_once(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want_all()
        book.want_all()
        book.ask(topic("orders", 1))
        assert book.pause_s == pytest.approx(MAX_AGE_S)

    def test_goes_along_with_a_topic_that_is_wanted_first(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want_all()
        book.ask(topic("orders", 1))
        book.want_all()
        book.want("new")
        assert book.is_due
        assert book.begin().complete

    def test_has_no_pace_that_adds_to_those_of_the_topics(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        began_at, requests = book.now, 0
        while book.now < began_at + 20.0:
            book.want_all()
            if book.is_due:
                book.ask(topic("orders", NO_LEADER), topic("audit", 1))
                requests += 1
            book.now += 0.01
        assert requests < 30

    def test_is_asked_for_once_more_by_one_who_wants_it_again_only_if_it_was_asked_for(self) -> None:
        book = Book().knowing(topic("orders", 1))
        assert book.want_all()
        assert not book.want_all()
        book.begin()
        assert book.want_all()

    def test_does_not_keep_topics_that_nobody_uses(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.now += MAX_IDLE_S
        book.want_all()
        assert book.begin().topics == ()

    def test_is_asked_for_when_the_last_complete_answer_is_too_old(self) -> None:
        book = Book().bootstrapped()
        expires_at = book.now + MAX_AGE_S
        book.now = expires_at - 40.0
        book.want("orders")
        book.ask(topic("orders", 1))
        assert book.agenda.due_at() == expires_at
        plan = book.ask(topic("orders", 1))
        assert book.now == expires_at
        assert plan == Plan(("orders",), complete=True, wanted=frozenset())
        assert book.pause_s == MAX_AGE_S

    def test_that_is_too_old_is_asked_for_with_pauses_when_nobody_answers(self) -> None:
        book = Book().bootstrapped()
        pauses = []
        for _ in range(5):
            assert book.fail().complete
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0])

    def test_that_is_too_old_and_cannot_be_had_is_no_busy_loop_while_a_topic_is_wanted(self) -> None:
        book = Book().bootstrapped()
        book.now += MAX_AGE_S
        book.want("new")
        pauses = []
        for _ in range(5):
            assert book.fail().complete
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0])


class TestOutage:
    """With pauses configured so short that they suit a failover, and nothing longer."""

    def count(self, book: Book, until: float, *answer: MetadataResponseTopic) -> int:
        requests = 0
        while book.agenda.due_at() <= until:
            book.ask(*answer)
            requests += 1
        book.now = until
        return requests

    def test_is_not_asked_about_at_that_rate(self) -> None:
        book = Book(Backoff(0.1, 0.1, jitter=0.0)).knowing(topic("orders", 1))
        began_at = book.now
        book.want("orders")
        assert self.count(book, began_at + FAILOVER_S, topic("orders", NO_LEADER)) == pytest.approx(35, abs=2)
        assert self.count(book, began_at + 20.0, topic("orders", NO_LEADER)) <= 18

    def test_is_forgotten_when_it_is_over(self) -> None:
        book = Book(Backoff(0.1, 0.1, jitter=0.0)).knowing(topic("orders", 1))
        book.want("orders")
        self.count(book, book.now + 20.0, topic("orders", NO_LEADER))
        assert book.pause_s > 0.0
        book.ask(topic("orders", (1, 1)))
        book.now += 0.05
        book.want("orders")
        assert book.is_due
        book.ask(topic("orders", (NO_LEADER, 2)))
        assert book.pause_s == pytest.approx(0.1)

    def test_of_all_brokers_is_tried_to_end_at_that_rate(self) -> None:
        """Then nobody is burdened: there is nobody."""
        book = Book(Backoff(0.1, 0.1, jitter=0.0)).knowing(topic("orders", 1))
        book.want("orders")
        until = book.now + 20.0
        while book.now < until:
            book.fail()
            assert book.pause_s == pytest.approx(0.1)


class TestJitter:
    def test_of_topics_that_pause_together_is_the_same(self) -> None:
        book = Book(Backoff(0.1, 1.0, jitter=0.5)).bootstrapped()
        book.want("one")
        book.want("two")
        for _ in range(6):
            plan = book.ask(waiting=["one", "two"])
            assert set(plan.topics) == {"one", "two"}
            one, two = book.agenda._wanted.values()
            assert one.not_before == two.not_before

    def test_of_one_request_is_not_that_of_the_next(self) -> None:
        pauses = set()
        for _ in range(10):
            book = Book(Backoff(0.1, 1.0, jitter=0.5))
            book.fail()
            pauses.add(round(book.pause_s, 9))
        assert len(pauses) > 1
        assert all(0.05 <= each <= 0.15 for each in pauses)


class TestFailure:
    def test_leaves_wanted_what_was_wanted(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        book.want("orders")
        pauses = []
        for _ in range(5):
            assert book.fail() == Plan(("orders",), complete=False, wanted=frozenset({"orders"}))
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0])

    def test_is_forgotten_with_the_next_answer_that_helps(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("orders")
        for _ in range(5):
            book.fail()
        book.ask(topic("orders", (2, 1)))
        book.want("orders")
        book.fail()
        assert book.pause_s == pytest.approx(0.1)


class TestHurry:
    def test_cuts_pauses_to_the_first_and_shortest(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("orders")
        for _ in range(6):
            book.fail()
        last = book.now
        book.now += 0.3
        assert not book.is_due
        book.agenda.hurry()
        assert book.agenda.due_at() == pytest.approx(last + 0.1)

    def test_does_not_help_a_connection_that_flaps_to_a_request_each(self) -> None:
        book = Book().knowing(topic("orders", 1))
        began_at = book.now
        for _ in range(10):
            book.want_all()
            book.agenda.hurry()
            book.fail()
        assert book.now - began_at == pytest.approx(0.9)

    def test_keeps_them_short_for_a_while_though_it_was_an_outage(self) -> None:
        """Who is back may take a moment to be told of by the others."""
        book = Book(Backoff(0.1, 0.1, jitter=0.0)).knowing(topic("orders", 1))
        book.want("orders")
        while book.pause_s < OUTAGE_PAUSE_S:
            book.ask(topic("orders", (NO_LEADER, 1)))
        book.agenda.hurry()
        book.ask(topic("orders", (NO_LEADER, 1)))
        assert book.pause_s == pytest.approx(0.1)

    def test_makes_nothing_wanted(self) -> None:
        book = Book().knowing(topic("orders", 1))
        due_at = book.agenda.due_at()
        book.agenda.hurry()
        assert book.agenda.due_at() == due_at

    def test_does_not_lengthen_a_pause(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("new")
        book.agenda.hurry()
        assert book.is_due


class TestUse:
    def test_of_a_topic_keeps_it_among_those_asked_for(self) -> None:
        book = Book().knowing(topic("used", 1), topic("unused", 1))
        book.now += MAX_IDLE_S - 1
        book.agenda.touch("used", book.now)
        book.now += 2
        book.want_all()
        assert book.ask(topic("used", 1)).topics == ("used",)
        assert book.snapshot.topics.keys() == {"used"}

    def test_begins_with_the_first_want(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        book.ask(topic("new", 1))
        book.now += MAX_IDLE_S - 1
        book.want_all()
        assert book.begin().topics == ("new",)

    def test_goes_on_while_somebody_wants_it(self) -> None:
        book = Book().bootstrapped()
        book.want("missing")
        while book.now < 100.0 + 3 * MAX_IDLE_S:
            book.ask(refused("missing", UnknownTopicOrPartition), waiting=["missing"])
        book.want_all()
        assert book.begin().topics == ("missing",)

    def test_of_a_topic_that_was_forgotten_makes_it_unknown_again(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.now += MAX_IDLE_S
        book.want_all()
        book.ask()
        assert not book.snapshot.knows("orders")
        book.want("orders")
        assert book.is_due


class TestWithoutBackoff:
    """`retry_backoff_ms=0` and `metadata_max_age_ms=0` are allowed."""

    def test_there_are_pauses_all_the_same(self) -> None:
        book = Book(Backoff(0.0, 0.0))
        book.fail()
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)
        book.bootstrapped()
        book.want("new")
        book.ask(refused("new", LeaderNotAvailable), waiting=["new"])
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)
        book.agenda.hurry()
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)

    def test_answers_that_are_too_old_at_once_are_no_busy_loop(self) -> None:
        book = Book(max_age_s=0.0)
        pauses = []
        for _ in range(6):
            book.ask()
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([SHORTEST_PAUSE_S, 0.1, 0.2, 0.4, 0.8, 1.0])
