"""Lingering batches: the end of their linger and the requests that include them."""

from __future__ import annotations

import sys
from math import inf

from tests.unit._core.batching.schedule_rig import NOW, Admitting, Floor


def test_lingering_batch_joins_a_request_by_its_compressed_size() -> None:
    floor = Floor(1, 1, 1)
    due, lingering, other = floor.batch(0), floor.open(1, size=4_000), floor.open(2, size=4_000)
    for batch in (lingering, other):
        batch.rate = 0.1
        floor.linger(batch, NOW + 1)
    assert floor.drain(max_bytes=due.size + 400) == [due, lingering]


def test_open_batch_is_ready_when_it_has_lingered() -> None:
    floor = Floor(1, 1)
    first, second = floor.open(0), floor.open(1)
    assert floor.linger(first, NOW + 5)
    assert not floor.linger(second, NOW + 6)
    assert floor.schedule.next_due() == NOW + 5
    floor.schedule.collect(NOW + 4, hurry=False)
    assert list(floor.schedule.waiting) == []
    floor.schedule.collect(NOW + 5, hurry=False)
    assert floor.schedule.next_due() == NOW + 6
    assert floor.drain(max_bytes=first.size) == [first]
    assert floor.schedule.next_due() == NOW + 6


def test_request_includes_lingering_batches_of_its_broker() -> None:
    floor = Floor(1, 1, 2, 1, 1)
    ready, *lingering = (floor.batch(0, size=100), *(floor.open(each, size=100) for each in (1, 2, 3, 4)))
    for later, batch in enumerate(lingering):
        floor.linger(batch, NOW + 5 + later)
    assert floor.drain(1, max_bytes=300) == [ready, lingering[0], lingering[2]]
    assert floor.schedule.next_due() == NOW + 6, "that of the other node"
    assert 1 not in floor.schedule.waiting
    floor.schedule.collect(NOW + 8, hurry=False)
    assert (floor.drain(1), floor.drain(2)) == ([lingering[3]], [lingering[1]])


def test_lingering_batch_is_not_drained_without_a_ready_one() -> None:
    floor = Floor(1, 1)
    floor.linger(floor.open(0), NOW + 5)
    assert floor.drain() == []
    floor.queue(expired := floor.batch(1)).remove(expired)
    assert floor.drain() == []
    assert floor.schedule.next_due() == NOW + 5


def test_lingering_batch_that_is_not_admitted_is_offered_again() -> None:
    identities = Admitting(0)
    floor = Floor(1, 1, identities=identities)
    lingering, ready = floor.open(1), floor.batch(0)
    floor.linger(lingering, NOW + 5)
    assert floor.drain() == [ready]
    assert (lingering.ready, identities.wanted) == (True, [1])


def test_request_has_no_second_batch_of_a_lingering_partition() -> None:
    floor = Floor(1, 1)
    first, open_ = floor.batch(0), floor.open(0)
    floor.linger(open_, NOW + 5)
    assert floor.drain() == [first]
    assert floor.schedule.next_due() == NOW + 5
    other = floor.batch(1)
    assert floor.drain() == [other], "its leader has acknowledged nothing yet"


def test_request_excludes_a_lingering_batch_of_another_leader() -> None:
    floor = Floor(1, 1)
    floor.linger(floor.open(0), NOW + 5)
    floor.update(2, 1)
    ready = floor.batch(1)
    assert floor.drain() == [ready]
    assert floor.schedule.next_due() == NOW + 5


def test_flush_ends_all_lingering() -> None:
    floor = Floor(1, 1)
    batches = [floor.open(0), floor.open(1)]
    for batch in batches:
        floor.linger(batch, NOW + 5)
    floor.schedule.collect(NOW, hurry=True)
    assert floor.drain() == batches
    assert floor.schedule.next_due() == inf


def test_batch_sent_before_its_time_no_longer_lingers() -> None:
    floor = Floor(1, 1)
    full, open_ = floor.open(0), floor.open(1)
    floor.linger(full, NOW + 5)
    floor.linger(open_, NOW + 6)
    floor.schedule.forget(full)
    assert floor.schedule.next_due() == NOW + 6
    floor.schedule.collect(NOW + 10, hurry=False)
    assert floor.drain() == [open_]


def test_ended_batch_is_not_referenced_by_lingering_ones() -> None:
    floor = Floor(1, 1)
    lingering, ended = floor.open(0), floor.open(1)
    assert floor.linger(lingering, NOW + 60)
    assert not floor.linger(ended, NOW + 61)
    floor.schedule.forget(ended)
    floor.schedule.forget(ended)
    assert sys.getrefcount(ended) == 2 + (floor.queue(ended).open is ended) + (
        ended in floor.queue(ended).batches
    )
    assert floor.schedule.next_due() == NOW + 60


def test_interrupted_forget_can_be_repeated() -> None:
    floor = Floor(1)
    batch = floor.open()
    floor.linger(batch, NOW + 5)
    del floor.schedule._lingering_for[1][batch]  # an exception came next
    floor.schedule.forget(batch)
    assert floor.schedule.next_due() == inf


class TestAdaptiveLinger:
    def test_broker_is_busy_until_it_is_marked_idle(self) -> None:
        schedule = Floor(1).schedule
        assert 1 not in schedule.busy
        schedule.busy.add(1)
        assert 1 in schedule.busy
        assert 2 not in schedule.busy
        schedule.mark_idle(1, NOW)
        assert 1 not in schedule.busy

    def test_lingering_batches_of_an_idle_broker_are_sent(self) -> None:
        floor = Floor(1, 2)
        ours, others = floor.open(0), floor.open(1)
        floor.linger(ours, NOW + 5)
        floor.linger(others, NOW + 6)
        floor.schedule.mark_idle(1, NOW)
        assert floor.drain(1) == [ours]
        assert floor.drain(2) == []
        assert floor.schedule.next_due() == NOW + 6

    def test_forgotten_batch_is_not_offered_to_an_idle_broker(self) -> None:
        floor = Floor(1)
        batch = floor.open(0)
        floor.linger(batch, NOW + 5)
        floor.schedule.forget(batch)
        floor.schedule.mark_idle(1, NOW)
        assert 1 not in floor.schedule.waiting
        assert floor.schedule.next_due() == inf
