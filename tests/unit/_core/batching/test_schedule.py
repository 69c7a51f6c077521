from __future__ import annotations

from math import inf

import pytest

from aioproducer._core.metadata.snapshot import NO_LEADER
from tests.unit._core.batching.schedule_rig import NOW, Admitting, Floor, settle
from tests.unit.floor_rig import TOPIC


def test_new_schedule_has_no_ready_partition() -> None:
    floor = Floor(1)
    assert list(floor.schedule.waiting) == []
    assert floor.schedule.next_due() == inf
    assert floor.drain() == []


def test_ready_batch_is_drained_for_its_leader() -> None:
    floor = Floor(1, 2)
    one, other = floor.batch(0), floor.batch(1)
    assert list(floor.schedule.waiting) == [1, 2]
    assert 1 in floor.schedule.waiting
    assert floor.drain(1) == [one]
    assert 1 not in floor.schedule.waiting
    assert list(floor.schedule.waiting) == [2]
    assert floor.drain(2) == [other]
    assert list(floor.schedule.waiting) == []


def test_batch_that_does_not_linger_is_made_ready() -> None:
    floor = Floor(1)
    batch = floor.open()
    assert floor.drain() == []
    floor.schedule.make_ready(batch, floor.queue(batch), NOW)
    assert batch not in floor.schedule.lingering
    assert floor.drain() == [batch]


def test_offering_a_queue_twice_is_offering_it_once() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.schedule.offer(floor.queue(batch), NOW)
    assert floor.drain() == [batch]
    assert floor.drain() == []


def test_request_has_one_batch_per_partition() -> None:
    floor = Floor(1, 1)
    settle_first = floor.batch(0)
    assert floor.drain() == [settle_first]
    settle(floor, settle_first)
    first, second, other = floor.batch(0), floor.batch(0), floor.batch(1)
    assert floor.drain() == [first, other]
    assert list(floor.schedule.waiting) == [1]
    assert floor.drain() == [second]


def test_request_is_limited_and_starts_with_the_batch_left_over() -> None:
    floor = Floor(1, 1, 1)
    batches = [floor.batch(partition, size=400) for partition in range(3)]
    assert floor.drain(max_bytes=1000) == batches[:2]
    assert list(floor.schedule.waiting) == [1]
    more = floor.batch(0)  # behind it, though the partition was the first before
    settle(floor, batches[0])
    floor.schedule.offer(floor.queue(more), NOW)
    assert floor.drain(max_bytes=1000) == [batches[2], more]


def test_request_counts_compressed_bytes_if_they_are_known() -> None:
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


def test_batch_larger_than_a_request_goes_alone() -> None:
    floor = Floor(1, 1)
    large, small = floor.batch(0, size=5000), floor.batch(1)
    assert floor.drain(max_bytes=1000) == [large]
    assert floor.drain(max_bytes=1000) == [small]


def test_queue_whose_batch_was_removed_is_skipped() -> None:
    floor = Floor(1, 1)
    expired, alive = floor.batch(0), floor.batch(1)
    floor.queue(expired).remove(expired)
    assert floor.drain() == [alive]
    assert list(floor.schedule.waiting) == []


def test_partition_follows_its_leader_immediately() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.update(2)
    assert list(floor.schedule.waiting) == [2]
    assert floor.drain(1) == []
    assert floor.drain(2) == [batch]


def test_leaderless_partition_waits_and_its_topic_is_listed() -> None:
    floor = Floor(NO_LEADER)
    batch = floor.batch()
    assert list(floor.schedule.waiting) == []
    assert floor.schedule.leaderless_topics() == {TOPIC}
    floor.update(3)
    assert floor.schedule.leaderless_topics() == set()
    assert floor.drain(3) == [batch]


def test_leaderless_topic_is_reported_once_per_offer() -> None:
    floor = Floor(NO_LEADER)
    assert not floor.schedule.take_new_leaderless()
    floor.batch()
    assert floor.schedule.take_new_leaderless() == {TOPIC}
    assert not floor.schedule.take_new_leaderless()
    floor.schedule.offer(floor.queues[0], NOW)
    assert floor.schedule.take_new_leaderless() == {TOPIC}


def test_partition_that_loses_its_leader_is_no_longer_ready() -> None:
    floor = Floor(1)
    floor.batch()
    floor.update(NO_LEADER)
    assert list(floor.schedule.waiting) == []
    assert floor.schedule.leaderless_topics() == {TOPIC}


def test_topic_with_only_expired_batches_needs_no_leader() -> None:
    floor = Floor(NO_LEADER)
    batch = floor.batch()
    floor.queue(batch).remove(batch)
    assert floor.schedule.leaderless_topics() == set()


def test_partitions_wait_for_a_producer_id() -> None:
    floor = Floor(1, 1, identified=False)
    batches = [floor.batch(0), floor.batch(1)]
    assert list(floor.schedule.waiting) == []
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.drain() == batches


def test_partitions_keep_waiting_if_the_identity_is_lost_again() -> None:
    floor = Floor(1, identified=False)
    batch = floor.batch()
    floor.schedule.identity_changed(NOW)
    assert list(floor.schedule.waiting) == []
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.drain() == [batch]


def test_partition_that_was_ready_waits_for_the_next_producer_id() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.identities.current = None
    floor.schedule.offer(floor.queue(batch), NOW)
    assert list(floor.schedule.waiting) == []
    floor.identities.assign(8, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.drain() == [batch]


def test_offer_skips_a_partition_whose_batch_expired() -> None:
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


def test_open_batch_that_is_not_ready_waits_for_no_identity() -> None:
    floor = Floor(1, identified=False)
    batch = floor.open()
    floor.schedule.offer(floor.queue(batch), NOW)
    assert not floor.schedule._without_identity
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert list(floor.schedule.waiting) == []


def test_admission_is_requested_for_partitions_not_admitted() -> None:
    identities = Admitting(0)
    floor = Floor(1, 2, identities=identities)
    first, other = floor.batch(0), floor.batch(1)
    assert floor.drain(1) == [first]
    floor.batch(0)  # waits for the answer to the first batch
    assert identities.wanted == [1]
    assert floor.schedule.leaders_without_identity() == {2}
    identities.admitted = (0, 1)
    floor.schedule.identity_changed(NOW)
    assert floor.drain(2) == [other]


@pytest.mark.parametrize("partitions", [3])
def test_partitions_take_turns_whatever_their_backlog(partitions: int) -> None:
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


def test_request_may_be_filled_to_the_last_byte() -> None:
    floor = Floor(1, 1)
    one, other = floor.batch(0, size=600), floor.batch(1, size=400)
    assert floor.drain(max_bytes=1_000) == [one, other]


def test_producer_without_idempotence_waits_for_no_identity() -> None:
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


def test_broker_without_partitions_is_not_waiting() -> None:
    floor = Floor(1)
    floor.batch()
    floor.update(NO_LEADER)
    assert floor.schedule.waiting_since(NOW + 99) == []
    floor.update(2)
    assert floor.schedule.waiting_since(NOW + 99) == [2]


def test_interrupted_offer_is_made_again() -> None:
    floor = Floor(1, 2, 2)
    other = floor.batch(2)
    for partition, drained in ((0, []), (1, [other])):
        batch = floor.open(partition)
        queue = floor.queue(batch)
        queue.seal(batch)
        queue.offered_to = queue.leader  # an exception interrupted `offer`
        floor.schedule.offer(queue, NOW)
        assert queue not in floor.schedule._ready.get(queue.leader, ())
        floor.schedule.offer_again(queue, NOW)
        assert floor.drain(queue.leader) == [*drained, batch]


def test_containers_of_lost_nodes_are_dropped_once_empty() -> None:
    floor = Floor(1, 2, 3, 4)
    schedule = floor.schedule
    for partition in range(4):
        floor.batch(partition)
    for partition in range(4):
        floor.linger(floor.open(partition), NOW + 5)
    for node_id in (1, 2):
        assert len(floor.drain(node_id)) == 1
        schedule.mark_idle(node_id, NOW)
        floor.drain(node_id)
    schedule.forget_nodes([1])
    assert set(schedule._ready) == set(schedule._lingering_for) == {1, 3, 4}
