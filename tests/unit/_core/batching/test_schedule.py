from __future__ import annotations

from math import inf

import pytest

from aioproducer._core.metadata.snapshot import NO_LEADER
from tests.unit._core.batching.schedule_rig import NOW, Floor, settle
from tests.unit.floor_rig import TOPIC


def test_nothing_is_ready_at_first() -> None:
    floor = Floor(1)
    assert list(floor.schedule.waiting) == []
    assert floor.schedule.next_due() == inf
    assert floor.drain() == []


def test_what_is_due_is_ready_for_the_node_that_leads_it() -> None:
    floor = Floor(1, 2)
    one, other = floor.batch(0), floor.batch(1)
    assert list(floor.schedule.waiting) == [1, 2]
    assert 1 in floor.schedule.waiting
    assert floor.drain(1) == [one]
    assert 1 not in floor.schedule.waiting
    assert list(floor.schedule.waiting) == [2]
    assert floor.drain(2) == [other]
    assert list(floor.schedule.waiting) == []


def test_offering_a_queue_twice_is_offering_it_once() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.schedule.offer(floor.queue(batch), NOW)
    assert floor.drain() == [batch]
    assert floor.drain() == []


def test_a_request_has_one_batch_per_partition_and_what_is_left_is_ready_again() -> None:
    floor = Floor(1, 1)
    settle_first = floor.batch(0)
    assert floor.drain() == [settle_first]
    settle(floor, settle_first)
    first, second, other = floor.batch(0), floor.batch(0), floor.batch(1)
    assert floor.drain() == [first, other]
    assert list(floor.schedule.waiting) == [1]
    assert floor.drain() == [second]


def test_a_request_is_no_larger_than_its_limit_and_the_one_that_did_not_fit_is_the_next() -> None:
    floor = Floor(1, 1, 1)
    batches = [floor.batch(partition, size=400) for partition in range(3)]
    assert floor.drain(max_bytes=1000) == batches[:2]
    assert list(floor.schedule.waiting) == [1]
    more = floor.batch(0)  # behind it, though the partition was the first before
    settle(floor, batches[0])
    floor.schedule.offer(floor.queue(more), NOW)
    assert floor.drain(max_bytes=1000) == [batches[2], more]


def test_a_request_counts_what_is_sent_of_a_batch_as_far_as_it_is_known() -> None:
    floor = Floor(1, 1, 1)
    batches = [floor.batch(partition, size=4_000) for partition in range(3)]
    for batch in batches:
        batch.rate = 0.1
    assert floor.drain(max_bytes=800) == batches[:2]
    batches[2].keep_encoded(bytearray(801))
    small = floor.batch(0)
    settle(floor, batches[0])
    floor.schedule.offer(floor.queue(small), NOW)
    assert floor.drain(max_bytes=800) == [batches[2]]


def test_a_batch_larger_than_a_request_goes_alone() -> None:
    floor = Floor(1, 1)
    large, small = floor.batch(0, size=5000), floor.batch(1)
    assert floor.drain(max_bytes=1000) == [large]
    assert floor.drain(max_bytes=1000) == [small]


def test_a_queue_whose_batch_has_gone_meanwhile_is_passed_over() -> None:
    floor = Floor(1, 1)
    expired, alive = floor.batch(0), floor.batch(1)
    floor.queue(expired).remove(expired)
    assert floor.drain() == [alive]
    assert list(floor.schedule.waiting) == []


def test_a_partition_follows_its_leader_at_once() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.update(2)
    assert list(floor.schedule.waiting) == [2]
    assert floor.drain(1) == []
    assert floor.drain(2) == [batch]


def test_without_a_leader_a_partition_waits_and_its_topic_is_named() -> None:
    floor = Floor(NO_LEADER)
    batch = floor.batch()
    assert list(floor.schedule.waiting) == []
    assert floor.schedule.leaderless_topics() == {TOPIC}
    floor.update(3)
    assert floor.schedule.leaderless_topics() == set()
    assert floor.drain(3) == [batch]


def test_a_topic_without_a_leader_is_news_once_and_again_when_something_comes() -> None:
    floor = Floor(NO_LEADER)
    assert not floor.schedule.take_new_leaderless()
    floor.batch()
    assert floor.schedule.take_new_leaderless() == {TOPIC}
    assert not floor.schedule.take_new_leaderless()
    floor.schedule.offer(floor.queues[0], NOW)
    assert floor.schedule.take_new_leaderless() == {TOPIC}


def test_a_partition_that_loses_its_leader_is_no_longer_ready() -> None:
    floor = Floor(1)
    floor.batch()
    floor.update(NO_LEADER)
    assert list(floor.schedule.waiting) == []
    assert floor.schedule.leaderless_topics() == {TOPIC}


def test_a_topic_of_which_everything_has_expired_needs_no_leader() -> None:
    floor = Floor(NO_LEADER)
    batch = floor.batch()
    floor.queue(batch).remove(batch)
    assert floor.schedule.leaderless_topics() == set()


def test_without_an_identity_partitions_wait_for_one() -> None:
    floor = Floor(1, 1, identified=False)
    batches = [floor.batch(0), floor.batch(1)]
    assert list(floor.schedule.waiting) == []
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.drain() == batches


def test_news_of_an_identity_that_is_gone_again_leaves_partitions_waiting() -> None:
    floor = Floor(1, identified=False)
    batch = floor.batch()
    floor.schedule.identity_changed(NOW)
    assert list(floor.schedule.waiting) == []
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.drain() == [batch]


def test_a_partition_that_was_ready_when_the_producer_id_ran_out_waits_for_the_next_one() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.identities.current = None
    floor.schedule.offer(floor.queue(batch), NOW)
    assert list(floor.schedule.waiting) == []
    floor.identities.assign(8, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.drain() == [batch]


def test_a_partition_whose_batch_has_expired_is_ready_no_more() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.queue(batch).remove(batch)
    floor.schedule.offer(floor.queue(batch), NOW)
    assert list(floor.schedule.waiting) == []


def test_leaders_of_partitions_without_an_identity_are_named() -> None:
    floor = Floor(1, 2, NO_LEADER, 3, identified=False)
    batches = [floor.batch(each) for each in range(3)]
    assert floor.schedule.leaders_without_identity() == {1, 2}
    floor.queue(batches[1]).remove(batches[1])
    assert floor.schedule.leaders_without_identity() == {1}
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.schedule.leaders_without_identity() == set()


def test_an_open_batch_that_is_not_due_does_not_wait_for_an_identity() -> None:
    floor = Floor(1, identified=False)
    batch = floor.open()
    floor.schedule.offer(floor.queue(batch), NOW)
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert list(floor.schedule.waiting) == []


@pytest.mark.parametrize("partitions", [3])
def test_every_partition_gets_its_turn_however_much_the_others_have(partitions: int) -> None:
    floor = Floor(*[1] * partitions, idempotent=False)
    for partition in range(partitions):
        for _ in range(2):
            floor.batch(partition, size=400)
    order = []
    for _ in range(2 * partitions):
        (batch,) = floor.drain(max_bytes=400)
        order.append(batch.topic_partition.partition)
        floor.queue(batch).remove(batch)
        floor.schedule.offer(floor.queue(batch), NOW)
    assert order == [0, 1, 2, 0, 1, 2]


def test_a_request_may_be_filled_to_the_last_byte() -> None:
    floor = Floor(1, 1)
    one, other = floor.batch(0, size=600), floor.batch(1, size=400)
    assert floor.drain(max_bytes=1_000) == [one, other]


def test_who_needs_no_identity_does_not_wait_for_one() -> None:
    floor = Floor(1, identified=False, idempotent=False)
    batch = floor.batch()
    assert floor.drain() == [batch]
    assert not floor.schedule._without_identity


def test_nodes_wait_from_the_first_offer_or_the_last_drain_on() -> None:
    floor = Floor(1, 2, 1)
    schedule = floor.schedule
    first, second = floor.batch(0, size=600), floor.batch(2, size=600)
    assert schedule.waiting_since(NOW) == []
    assert schedule.waiting_since(NOW + 1) == [1]
    assert schedule.drain(1, NOW + 5, 1_000) == [first]
    assert schedule.waiting_since(NOW + 5) == []
    assert schedule.waiting_since(NOW + 6) == [1]
    assert schedule.drain(1, NOW + 7, 1_000) == [second]
    assert schedule.waiting_since(NOW + 99) == []


def test_a_node_that_leads_nothing_any_more_waits_for_nothing() -> None:
    floor = Floor(1)
    floor.batch()
    floor.update(NO_LEADER)
    assert floor.schedule.waiting_since(NOW + 99) == []
    floor.update(2)
    assert floor.schedule.waiting_since(NOW + 99) == [2]
