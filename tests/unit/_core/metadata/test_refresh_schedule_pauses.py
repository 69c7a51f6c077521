from __future__ import annotations

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.refresh_schedule import FAILOVER_S, OUTAGE_PAUSE_S, SHORTEST_PAUSE_S, Refresh
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.protocol.metadata import MetadataResponseTopic
from aioproducer.errors import LeaderNotAvailable
from tests.unit._core.metadata.answers import refused, topic
from tests.unit._core.metadata.refresh_book import Book


class TestOutage:
    """With pauses configured so short that they suit a failover, and nothing longer."""

    def count(self, book: Book, until: float, *answer: MetadataResponseTopic) -> int:
        requests = 0
        while book.schedule.due_at() <= until:
            book.ask(*answer)
            requests += 1
        book.now = until
        return requests

    def test_long_outage_slows_requests_down(self) -> None:
        book = Book(Backoff(0.1, 0.1, jitter=0.0)).knowing(topic("orders", 1))
        began_at = book.now
        book.want("orders")
        assert self.count(book, began_at + FAILOVER_S, topic("orders", NO_LEADER)) == pytest.approx(35, abs=2)
        assert self.count(book, began_at + 20.0, topic("orders", NO_LEADER)) <= 18

    def test_end_of_an_outage_restores_the_short_pauses(self) -> None:
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

    def test_outage_of_all_brokers_keeps_the_short_pauses(self) -> None:
        """The requests reach no broker, so they cost the cluster nothing."""
        book = Book(Backoff(0.1, 0.1, jitter=0.0)).knowing(topic("orders", 1))
        book.want("orders")
        until = book.now + 20.0
        while book.now < until:
            book.fail()
            assert book.pause_s == pytest.approx(0.1)


class TestJitter:
    def test_jitter_is_equal_for_topics_that_pause_together(self) -> None:
        book = Book(Backoff(0.1, 1.0, jitter=0.5)).bootstrapped()
        book.want("one")
        book.want("two")
        for _ in range(6):
            refresh = book.ask(waiting=["one", "two"])
            assert set(refresh.topics) == {"one", "two"}
            one, two = book.schedule._wanted.values()
            assert one.not_before == two.not_before

    def test_jitter_differs_between_requests(self) -> None:
        pauses = set()
        for _ in range(10):
            book = Book(Backoff(0.1, 1.0, jitter=0.5))
            book.fail()
            pauses.add(round(book.pause_s, 9))
        assert len(pauses) > 1
        assert all(0.05 <= each <= 0.15 for each in pauses)


class TestFailure:
    def test_failed_request_leaves_its_topics_wanted(self) -> None:
        book = Book().knowing(topic("orders", 1), topic("audit", 1))
        book.want("orders")
        pauses = []
        for _ in range(5):
            assert book.fail() == Refresh(("orders",), complete=False, wanted=frozenset({"orders"}))
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0])

    def test_failure_count_is_reset_by_a_successful_response(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("orders")
        for _ in range(5):
            book.fail()
        book.ask(topic("orders", (2, 1)))
        book.want("orders")
        book.fail()
        assert book.pause_s == pytest.approx(0.1)


class TestHurry:
    def test_shorten_pauses_restores_the_first_pause(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("orders")
        for _ in range(6):
            book.fail()
        last = book.now
        book.now += 0.3
        assert not book.is_due
        book.schedule.shorten_pauses()
        assert book.schedule.due_at() == pytest.approx(last + 0.1)

    def test_shortened_pauses_keep_their_minimum_for_a_flapping_node(self) -> None:
        book = Book().knowing(topic("orders", 1))
        began_at = book.now
        for _ in range(10):
            book.want_all()
            book.schedule.shorten_pauses()
            book.fail()
        assert book.now - began_at == pytest.approx(0.9)

    def test_shorten_pauses_lasts_for_a_while_after_an_outage(self) -> None:
        """Other brokers may report a returning broker a moment later."""
        book = Book(Backoff(0.1, 0.1, jitter=0.0)).knowing(topic("orders", 1))
        book.want("orders")
        while book.pause_s < OUTAGE_PAUSE_S:
            book.ask(topic("orders", (NO_LEADER, 1)))
        book.schedule.shorten_pauses()
        book.ask(topic("orders", (NO_LEADER, 1)))
        assert book.pause_s == pytest.approx(0.1)

    def test_shorten_pauses_requests_no_refresh(self) -> None:
        book = Book().knowing(topic("orders", 1))
        due_at = book.schedule.due_at()
        book.schedule.shorten_pauses()
        assert book.schedule.due_at() == due_at

    def test_shorten_pauses_lengthens_no_pause(self) -> None:
        book = Book().knowing(topic("orders", 1))
        book.want("new")
        book.schedule.shorten_pauses()
        assert book.is_due


class TestWithoutBackoff:
    """`retry_backoff_ms=0` and `metadata_max_age_ms=0` are allowed."""

    def test_minimum_pause_applies_without_a_backoff(self) -> None:
        book = Book(Backoff(0.0, 0.0))
        book.fail()
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)
        book.bootstrapped()
        book.want("new")
        book.ask(refused("new", LeaderNotAvailable), waiting=["new"])
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)
        book.schedule.shorten_pauses()
        assert book.pause_s == pytest.approx(SHORTEST_PAUSE_S)

    def test_maximum_age_of_zero_is_no_busy_loop(self) -> None:
        book = Book(max_age_s=0.0)
        pauses = []
        for _ in range(6):
            book.ask()
            pauses.append(book.pause_s)
        assert pauses == pytest.approx([SHORTEST_PAUSE_S, 0.1, 0.2, 0.4, 0.8, 1.0])
