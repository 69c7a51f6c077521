from __future__ import annotations

import pytest

from aioproducer._core.metadata.refresh_schedule import SHORTEST_PAUSE_S, Refresh
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer.errors import LeaderNotAvailable, TopicAuthorizationFailed, UnknownTopicOrPartition
from tests.unit._core.metadata.answers import refused, topic
from tests.unit._core.metadata.refresh_book import MAX_AGE_S, MAX_IDLE_S, Book


class TestFirstOfAll:
    def test_the_brokers_are_wanted(self) -> None:
        book = Book()
        assert book.is_due
        assert book.begin() == Refresh((), complete=True, wanted=frozenset())

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
        assert book.begin() == Refresh(("new",), complete=False, wanted=frozenset({"new"}))

    def test_is_not_asked_for_again_once_it_is_known(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        book.ask(topic("new", 1))
        assert book.pause_s == pytest.approx(MAX_AGE_S)

    def test_is_not_asked_for_again_for_those_who_come_while_the_answer_is_on_its_way(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        refresh = book.begin()
        book.want("new")
        book.answer(refresh, topic("new", 1))
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
        refresh = book.ask(topic("new", 1), refused("missing", UnknownTopicOrPartition), waiting=["missing"])
        assert set(refresh.topics) == {"new", "missing"}
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
        refresh = book.begin()
        book.want("orders")
        book.answer(refresh, topic("orders", (2, 1)))
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)

    def test_brought_up_to_date_with_others_keeps_its_pace(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        book.now = book.schedule.due_at() - 1.0
        book.schedule.mark_used("orders", book.now)
        assert book.ask(topic("orders", 1)) == Refresh(("orders",), complete=True, wanted=frozenset())
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
        refresh = book.begin()
        assert refresh.complete
        assert set(refresh.topics) == {"orders", "audit"}

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
        assert book.schedule.due_at() == expires_at
        refresh = book.ask(topic("orders", 1))
        assert book.now == expires_at
        assert refresh == Refresh(("orders",), complete=True, wanted=frozenset())
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


class TestUse:
    def test_of_a_topic_keeps_it_among_those_asked_for(self) -> None:
        book = Book().knowing(topic("used", 1), topic("unused", 1))
        book.now += MAX_IDLE_S - 1
        book.schedule.mark_used("used", book.now)
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
