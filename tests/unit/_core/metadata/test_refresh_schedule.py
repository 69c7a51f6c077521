from __future__ import annotations

import pytest

from aioproducer._core.metadata.refresh_schedule import SHORTEST_PAUSE_S, Refresh
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer.errors import LeaderNotAvailable, TopicAuthorizationFailed, UnknownTopicOrPartition
from tests.unit._core.metadata.answers import refused, topic
from tests.unit._core.metadata.refresh_book import MAX_AGE_S, MAX_IDLE_S, Book


class TestFirstOfAll:
    def test_first_request_asks_for_brokers_only(self) -> None:
        book = Book()
        assert book.is_due
        assert book.begin() == Refresh((), complete=True, wanted=frozenset())

    def test_next_request_is_due_at_the_maximum_age(self) -> None:
        book = Book().bootstrapped()
        assert book.pause_s == MAX_AGE_S

    def test_failed_first_request_is_retried_after_the_backoff(self) -> None:
        book = Book()
        book.fail()
        assert book.pause_s == pytest.approx(0.1)
        assert book.fail().complete


class TestUnknownTopic:
    def test_unknown_topic_is_requested_at_once_and_alone(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("new")
        assert book.is_due
        assert book.begin() == Refresh(("new",), complete=False, wanted=frozenset({"new"}))

    def test_unknown_topic_is_requested_only_until_it_is_known(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        book.ask(topic("new", 1))
        assert book.pause_s == pytest.approx(MAX_AGE_S)

    def test_unknown_topic_is_requested_once_for_later_callers(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        refresh = book.begin()
        book.want("new")
        book.answer(refresh, topic("new", 1))
        assert book.pause_s == pytest.approx(MAX_AGE_S)

    @pytest.mark.parametrize("error", [LeaderNotAvailable, UnknownTopicOrPartition])
    def test_unknown_topic_is_requested_after_growing_pauses(
        self, error: type[LeaderNotAvailable | UnknownTopicOrPartition]
    ) -> None:
        book = Book().bootstrapped()
        book.want("new")
        pauses = []
        for _ in range(6):
            book.ask(refused("new", error), waiting=["new"])
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])

    def test_unknown_topic_is_dropped_without_waiting_callers(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        book.ask(refused("new", UnknownTopicOrPartition))
        assert book.pause_s > 10

    def test_refused_topic_is_requested_after_growing_pauses(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        pauses = []
        for _ in range(6):
            book.ask(refused("new", TopicAuthorizationFailed))
            book.want("new")
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])

    def test_topic_missing_from_the_response_is_requested_again(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        book.ask(waiting=["new"])
        assert book.pause_s == pytest.approx(0.1)

    def test_unknown_topic_is_not_delayed_by_another_missing_topic(self) -> None:
        book = Book().bootstrapped()
        book.want("missing")
        for _ in range(5):
            book.ask(refused("missing", UnknownTopicOrPartition), waiting=["missing"])
        assert book.pause_s == pytest.approx(1.0)
        book.want("new")
        assert book.is_due

    def test_later_topic_takes_a_paused_topic_along(self) -> None:
        """One request for both topics; the pause of the other topic stays the same."""
        book = Book().bootstrapped()
        book.want("missing")
        book.ask(refused("missing", UnknownTopicOrPartition), waiting=["missing"])
        book.now += 0.05
        book.want("new")
        refresh = book.ask(topic("new", 1), refused("missing", UnknownTopicOrPartition), waiting=["missing"])
        assert set(refresh.topics) == {"new", "missing"}
        assert book.pause_s == pytest.approx(0.1)


class TestKnownTopic:
    def test_known_topic_with_a_stale_leader_is_requested_at_once(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        book.want("orders")
        assert book.is_due
        assert book.begin().topics == ("orders",)

    def test_changed_topic_is_requested_only_when_wanted_again(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("orders")
        book.ask(topic("orders", (2, 1)))
        assert book.pause_s > 10
        book.want("orders")
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)

    def test_unchanged_topic_is_requested_after_growing_pauses(self) -> None:
        book = Book().knowing(topic("orders", 1))
        pauses = []
        for _ in range(6):
            book.want("orders")
            book.ask(topic("orders", 1))
            assert book.pause_s > 10, "no caller wants it now"
            book.want("orders")
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])

    def test_unchanged_topic_has_short_pauses_again_after_a_calm(self) -> None:
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

    def test_known_topic_wanted_during_a_request_is_requested_again(self) -> None:
        """The response may be older than the reason for the second request."""
        book = Book().knowing(topic("orders", 1))
        book.want("orders")
        refresh = book.begin()
        book.want("orders")
        book.answer(refresh, topic("orders", (2, 1)))
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)

    def test_topic_refreshed_with_all_others_has_no_pause(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        book.now = book.schedule.due_at() - 1.0
        book.schedule.mark_used("orders", book.now)
        assert book.ask(topic("orders", 1)) == Refresh(("orders",), complete=True, wanted=frozenset())
        book.want("orders")
        assert book.is_due

    def test_leaderless_topic_is_requested_until_it_has_a_leader(self) -> None:
        book = Book().knowing(topic("orders", 1, 2))
        book.want("orders")
        pauses = []
        for _ in range(6):
            book.ask(topic("orders", 1, (NO_LEADER, 1)))
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        book.ask(topic("orders", 1, (3, 2)))
        assert book.pause_s > 10

    def test_unused_leaderless_topic_is_given_up(self) -> None:
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
    def test_full_refresh_is_due_at_once(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        book.want_all()
        assert book.is_due
        refresh = book.begin()
        assert refresh.complete
        assert set(refresh.topics) == {"orders", "audit"}

    def test_full_refresh_has_growing_pauses_if_nothing_changes(self) -> None:
        book = Book().knowing(topic("orders", 1))
        pauses = []
        for _ in range(6):
            book.want_all()
            book.ask(topic("orders", 1))
            book.want_all()
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])

    def test_full_refresh_is_repeated_soon_after_a_change(self) -> None:
        book = Book().knowing(topic("orders", 1))
        for epoch in range(1, 5):
            book.want_all()
            book.ask(topic("orders", (1, epoch)))
            book.want_all()
            assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)

    def test_full_refresh_wanted_twice_is_requested_once(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want_all()
        book.want_all()
        book.ask(topic("orders", 1))
        assert book.pause_s == pytest.approx(MAX_AGE_S)

    def test_full_refresh_joins_the_request_for_a_topic(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want_all()
        book.ask(topic("orders", 1))
        book.want_all()
        book.want("new")
        assert book.is_due
        assert book.begin().complete

    def test_full_refresh_shares_the_pace_of_the_topics(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        began_at, requests = book.now, 0
        while book.now < began_at + 20.0:
            book.want_all()
            if book.is_due:
                book.ask(topic("orders", NO_LEADER), topic("audit", 1))
                requests += 1
            book.now += 0.01
        assert requests < 30

    def test_want_all_returns_false_while_a_refresh_is_wanted(self) -> None:
        book = Book().knowing(topic("orders", 1))
        assert book.want_all()
        assert not book.want_all()
        book.begin()
        assert book.want_all()

    def test_full_refresh_omits_unused_topics(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.now += MAX_IDLE_S
        book.want_all()
        assert book.begin().topics == ()

    def test_full_refresh_is_due_at_the_maximum_age(self) -> None:
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

    def test_full_refresh_is_retried_after_growing_pauses(self) -> None:
        book = Book().bootstrapped()
        pauses = []
        for _ in range(5):
            assert book.fail().complete
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0])

    def test_failed_full_refresh_also_paces_wanted_topics(self) -> None:
        book = Book().bootstrapped()
        book.now += MAX_AGE_S
        book.want("new")
        pauses = []
        for _ in range(5):
            assert book.fail().complete
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0])


class TestUse:
    def test_topic_in_use_stays_in_a_full_refresh(self) -> None:
        book = Book().knowing(topic("used", 1), topic("unused", 1))
        book.now += MAX_IDLE_S - 1
        book.schedule.mark_used("used", book.now)
        book.now += 2
        book.want_all()
        assert book.ask(topic("used", 1)).topics == ("used",)
        assert book.snapshot.topics.keys() == {"used"}

    def test_topic_counts_as_used_when_first_wanted(self) -> None:
        book = Book().bootstrapped()
        book.want("new")
        book.ask(topic("new", 1))
        book.now += MAX_IDLE_S - 1
        book.want_all()
        assert book.begin().topics == ("new",)

    def test_topic_stays_in_use_while_a_caller_waits(self) -> None:
        book = Book().bootstrapped()
        book.want("missing")
        while book.now < 100.0 + 3 * MAX_IDLE_S:
            book.ask(refused("missing", UnknownTopicOrPartition), waiting=["missing"])
        book.want_all()
        assert book.begin().topics == ("missing",)

    def test_forgotten_topic_is_unknown_again(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.now += MAX_IDLE_S
        book.want_all()
        book.ask()
        assert not book.snapshot.knows("orders")
        book.want("orders")
        assert book.is_due
