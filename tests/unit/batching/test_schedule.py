from __future__ import annotations

import sys
from typing import Any

import pytest

from aioproducer.batching.batch import Batch
from aioproducer.batching.partition_queue import MOVED_BACKOFF_S, PROMPT_RETRIES, PartitionQueue
from aioproducer.batching.schedule import Schedule
from aioproducer.batching.topic import TopicQueues
from aioproducer.errors import BrokerError, NotEnoughReplicas, NotLeaderOrFollower
from aioproducer.idempotence.identity import IdentityKeeper
from aioproducer.metadata.snapshot import NO_LEADER
from aioproducer.records.sizes import BATCH_OVERHEAD
from tests.unit.floor_rig import TOPIC, back_off, batching_settings, lose

NOW = 100.0
ALL = 2**31


class Floor:
    """A schedule and the queues of one topic, without an accumulator."""

    def __init__(self, *leaders: int, identified: bool = True, **settings: Any) -> None:
        self.identities = IdentityKeeper()
        if identified:
            self.identities.assign(7, 0)
        self.queues = TopicQueues(TOPIC, batching_settings(**settings), self.identities)
        self.queues.update(leaders)
        self.schedule = Schedule(self.identities)

    def batch(self, partition: int = 0, *, size: int = BATCH_OVERHEAD) -> Batch:
        """Put a sealed batch into a queue, and offer that."""
        batch = self.open(partition, size=size)
        self.queue(batch).seal(batch)
        self.schedule.offer(self.queue(batch), NOW)
        return batch

    def open(self, partition: int = 0, *, size: int = BATCH_OVERHEAD) -> Batch:
        queue = self.queues[partition]
        batch = Batch(queue.topic_partition, queue.next_order(), created_at=NOW, deadline=NOW + 120)
        batch.columns.append(b"value", None, (), 0)
        batch.size = size
        queue.batches.append(batch)
        queue.open = batch
        return batch

    def queue(self, batch: Batch) -> PartitionQueue:
        return self.queues[batch.topic_partition.partition]

    def linger(self, batch: Batch, until: float) -> bool:
        return self.schedule.linger(self.queue(batch), batch, until)

    def drain(self, node_id: int = 1, max_bytes: int = ALL) -> list[Batch]:
        return self.schedule.drain(node_id, NOW, max_bytes)

    def update(self, *leaders: int) -> None:
        self.schedule.offer_all(self.queues.update(leaders), NOW)


def settle(floor: Floor, batch: Batch) -> None:
    floor.queue(batch).remove(batch)
    batch.acknowledge()
    assert batch.sequence is not None
    floor.queue(batch).sequences.acknowledge(batch.sequence, batch.order, len(batch), 0)


def test_nothing_is_ready_at_first() -> None:
    floor = Floor(1)
    assert floor.schedule.nodes() == []
    assert floor.schedule.next_due() is None
    assert floor.drain() == []


def test_what_is_due_is_ready_for_the_node_that_leads_it() -> None:
    floor = Floor(1, 2)
    one, other = floor.batch(0), floor.batch(1)
    assert floor.schedule.nodes() == [1, 2]
    assert floor.schedule.is_ready(1)
    assert floor.drain(1) == [one]
    assert not floor.schedule.is_ready(1)
    assert floor.schedule.nodes() == [2]
    assert floor.drain(2) == [other]
    assert floor.schedule.nodes() == []


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
    assert floor.schedule.nodes() == [1]
    assert floor.drain() == [second]


def test_a_request_is_no_larger_than_its_limit_and_the_one_that_did_not_fit_is_the_next() -> None:
    floor = Floor(1, 1, 1)
    batches = [floor.batch(partition, size=400) for partition in range(3)]
    assert floor.drain(max_bytes=1000) == batches[:2]
    assert floor.schedule.nodes() == [1]
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


def test_what_lingers_goes_along_as_large_as_it_is_when_it_is_sent() -> None:
    floor = Floor(1, 1, 1)
    due, lingering, other = floor.batch(0), floor.open(1, size=4_000), floor.open(2, size=4_000)
    for batch in (lingering, other):
        batch.rate = 0.1
        floor.linger(batch, NOW + 1)
    assert floor.drain(max_bytes=due.size + 400) == [due, lingering]


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
    assert floor.schedule.nodes() == []


def test_a_partition_follows_its_leader_at_once() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.update(2)
    assert floor.schedule.nodes() == [2]
    assert floor.drain(1) == []
    assert floor.drain(2) == [batch]


def test_without_a_leader_a_partition_waits_and_its_topic_is_named() -> None:
    floor = Floor(NO_LEADER)
    batch = floor.batch()
    assert floor.schedule.nodes() == []
    assert floor.schedule.leaderless_topics() == {TOPIC}
    floor.update(3)
    assert floor.schedule.leaderless_topics() == set()
    assert floor.drain(3) == [batch]


def test_a_topic_without_a_leader_is_news_once_and_again_when_something_comes() -> None:
    floor = Floor(NO_LEADER)
    assert floor.schedule.take_leaderless_news() == set()
    floor.batch()
    assert floor.schedule.take_leaderless_news() == {TOPIC}
    assert floor.schedule.take_leaderless_news() == set()
    floor.schedule.offer(floor.queues[0], NOW)
    assert floor.schedule.take_leaderless_news() == {TOPIC}


def test_a_partition_that_loses_its_leader_is_no_longer_ready() -> None:
    floor = Floor(1)
    floor.batch()
    floor.update(NO_LEADER)
    assert floor.schedule.nodes() == []
    assert floor.schedule.leaderless_topics() == {TOPIC}


def test_a_topic_of_which_everything_has_expired_needs_no_leader() -> None:
    floor = Floor(NO_LEADER)
    batch = floor.batch()
    floor.queue(batch).remove(batch)
    assert floor.schedule.leaderless_topics() == set()


def test_an_open_batch_is_ready_when_it_has_lingered() -> None:
    floor = Floor(1, 1)
    first, second = floor.open(0), floor.open(1)
    assert floor.linger(first, NOW + 5)
    assert not floor.linger(second, NOW + 6)
    assert floor.schedule.next_due() == NOW + 5
    floor.schedule.collect(NOW + 4, hurry=False)
    assert floor.schedule.nodes() == []
    floor.schedule.collect(NOW + 5, hurry=False)
    assert floor.schedule.next_due() == NOW + 6
    assert floor.drain(max_bytes=first.size) == [first]
    assert floor.schedule.next_due() == NOW + 6


def test_a_request_that_goes_anyway_takes_along_what_lingers_for_its_node_and_fits() -> None:
    floor = Floor(1, 1, 2, 1, 1)
    ready, *lingering = (floor.batch(0, size=100), *(floor.open(each, size=100) for each in (1, 2, 3, 4)))
    for later, batch in enumerate(lingering):
        floor.linger(batch, NOW + 5 + later)
    assert floor.drain(1, max_bytes=300) == [ready, lingering[0], lingering[2]]
    assert floor.schedule.next_due() == NOW + 6, "that of the other node"
    assert not floor.schedule.is_ready(1)
    floor.schedule.collect(NOW + 8, hurry=False)
    assert (floor.drain(1), floor.drain(2)) == ([lingering[3]], [lingering[1]])


def test_nothing_goes_along_with_nothing() -> None:
    floor = Floor(1)
    floor.linger(floor.open(0), NOW + 5)
    assert floor.drain() == []
    assert floor.schedule.next_due() == NOW + 5


def test_a_request_has_no_second_batch_of_a_partition_that_lingers() -> None:
    floor = Floor(1, 1)
    first, open_ = floor.batch(0), floor.open(0)
    floor.linger(open_, NOW + 5)
    assert floor.drain() == [first]
    assert floor.schedule.next_due() == NOW + 5
    other = floor.batch(1)
    assert floor.drain() == [other], "its leader has acknowledged nothing yet"


def test_nor_does_one_go_along_that_is_led_elsewhere_by_now() -> None:
    floor = Floor(1, 1)
    floor.linger(floor.open(0), NOW + 5)
    floor.update(2, 1)
    ready = floor.batch(1)
    assert floor.drain() == [ready]
    assert floor.schedule.next_due() == NOW + 5


def test_in_a_hurry_nothing_lingers() -> None:
    floor = Floor(1, 1)
    batches = [floor.open(0), floor.open(1)]
    for batch in batches:
        floor.linger(batch, NOW + 5)
    floor.schedule.collect(NOW, hurry=True)
    assert floor.drain() == batches
    assert floor.schedule.next_due() is None


def test_a_batch_that_went_before_its_time_is_not_waited_for() -> None:
    floor = Floor(1, 1)
    full, open_ = floor.open(0), floor.open(1)
    floor.linger(full, NOW + 5)
    floor.linger(open_, NOW + 6)
    floor.schedule.forget(full)
    assert floor.schedule.next_due() == NOW + 6
    floor.schedule.collect(NOW + 10, hurry=False)
    assert floor.drain() == [open_]


def test_what_backs_off_is_ready_when_its_time_has_come() -> None:
    floor = Floor(1, 1, 1)
    batches = [floor.batch(partition) for partition in range(3)]
    assert floor.drain() == batches
    for batch, until in zip(batches, (NOW + 3, NOW + 1, NOW + 1), strict=True):
        back_off(floor.queue(batch), batch, until)
        floor.schedule.back_off(floor.queue(batch), until)
    assert floor.schedule.next_due() == NOW + 1
    floor.schedule.collect(NOW + 1, hurry=True)
    assert floor.schedule.drain(1, NOW + 1, ALL) == batches[1:]
    assert floor.schedule.next_due() == NOW + 3
    floor.schedule.collect(NOW + 3, hurry=False)
    assert floor.schedule.drain(1, NOW + 3, ALL) == batches[:1]
    assert floor.schedule.next_due() is None


def test_the_next_thing_due_is_the_earlier_of_a_linger_and_a_backoff() -> None:
    floor = Floor(1, 1)
    floor.linger(floor.open(0), NOW + 5)
    floor.schedule.back_off(floor.queues[1], NOW + 2)
    assert floor.schedule.next_due() == NOW + 2
    floor.schedule.collect(NOW + 2, hurry=False)
    assert floor.schedule.next_due() == NOW + 5


def test_without_an_identity_partitions_wait_for_one() -> None:
    floor = Floor(1, 1, identified=False)
    batches = [floor.batch(0), floor.batch(1)]
    assert floor.schedule.nodes() == []
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.drain() == batches


def test_news_of_an_identity_that_is_gone_again_leaves_partitions_waiting() -> None:
    floor = Floor(1, identified=False)
    batch = floor.batch()
    floor.schedule.identity_changed(NOW)
    assert floor.schedule.nodes() == []
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.drain() == [batch]


def test_a_partition_that_was_ready_when_the_producer_id_ran_out_waits_for_the_next_one() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.identities.current = None
    floor.schedule.offer(floor.queue(batch), NOW)
    assert floor.schedule.nodes() == []
    floor.identities.assign(8, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.drain() == [batch]


def test_a_partition_whose_batch_has_expired_is_ready_no_more() -> None:
    floor = Floor(1)
    batch = floor.batch()
    floor.queue(batch).remove(batch)
    floor.schedule.offer(floor.queue(batch), NOW)
    assert floor.schedule.nodes() == []


def test_an_open_batch_that_is_not_due_does_not_wait_for_an_identity() -> None:
    floor = Floor(1, identified=False)
    batch = floor.open()
    floor.schedule.offer(floor.queue(batch), NOW)
    floor.identities.assign(7, 0)
    floor.schedule.identity_changed(NOW)
    assert floor.schedule.nodes() == []


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


def backing_off(floor: Floor, partition: int, until: float) -> Batch:
    """Let a batch have been lost with its connection."""
    batch = floor.batch(partition)
    queue = floor.queue(batch)
    queue.take(batch)
    lose(batch)
    back_off(queue, batch, until)
    floor.schedule.back_off(queue, until)
    floor.schedule.offer(queue, NOW)
    return batch


def test_a_connection_shortens_the_pauses_of_what_its_node_leads() -> None:
    floor = Floor(1, 2)
    here, there = (backing_off(floor, partition, NOW + 5) for partition in range(2))
    floor.schedule.connected(1, NOW + 1)
    assert floor.schedule.next_due() == NOW + 1
    floor.schedule.collect(NOW + 1, hurry=False)
    assert floor.schedule.nodes() == [1]
    assert (here.retry_at, there.retry_at) == (NOW + 1, NOW + 5)
    floor.schedule.collect(NOW + 5, hurry=False)
    assert floor.schedule.nodes() == [1, 2]


@pytest.mark.parametrize(("retries", "backoff_s"), [(1, 0.0), (PROMPT_RETRIES, MOVED_BACKOFF_S)])
def test_a_new_leader_ends_the_pause(retries: int, backoff_s: float) -> None:
    floor = Floor(1)
    batch = backing_off(floor, 0, NOW + 5)
    while batch.retries < retries:
        batch.back_off(NOW + 5)
    floor.update(2)
    floor.schedule.collect(NOW + backoff_s, hurry=False)
    assert floor.schedule.drain(2, NOW + backoff_s, ALL) == [batch]


@pytest.mark.parametrize(
    ("error", "doubtful"),
    [(NotLeaderOrFollower("no"), {TOPIC}), (NotEnoughReplicas("no"), set()), (None, set())],
)
def test_a_topic_is_doubtful_while_a_batch_waits_that_its_leader_did_not_want(
    error: BrokerError | None, doubtful: set[str]
) -> None:
    floor = Floor(1)
    batch = backing_off(floor, 0, NOW + 5)
    if error is not None:
        batch.refused(error, in_turn=True)
    assert floor.schedule.doubtful_topics() == doubtful
    floor.schedule.collect(NOW + 5, hurry=False)
    assert floor.schedule.doubtful_topics() == set()


def test_without_a_leader_the_pause_stays() -> None:
    floor = Floor(1)
    batch = backing_off(floor, 0, NOW + 5)
    floor.update(NO_LEADER)
    assert batch.retry_at == NOW + 5


def test_a_batch_that_has_ended_is_kept_by_none_that_lingers() -> None:
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


class TestAdaptiveLinger:
    def test_a_node_is_busy_until_it_has_answered_all(self) -> None:
        schedule = Floor(1).schedule
        assert not schedule.is_busy(1)
        schedule.mark_busy(1)
        assert schedule.is_busy(1)
        assert not schedule.is_busy(2)
        schedule.mark_idle(1, NOW)
        assert not schedule.is_busy(1)

    def test_what_lingers_for_a_node_goes_when_it_is_idle(self) -> None:
        floor = Floor(1, 2)
        ours, others = floor.open(0), floor.open(1)
        floor.linger(ours, NOW + 5)
        floor.linger(others, NOW + 6)
        floor.schedule.mark_idle(1, NOW)
        assert floor.drain(1) == [ours]
        assert floor.drain(2) == []
        assert floor.schedule.next_due() == NOW + 6

    def test_what_was_sealed_meanwhile_is_not_offered_again(self) -> None:
        floor = Floor(1)
        batch = floor.open(0)
        floor.linger(batch, NOW + 5)
        floor.schedule.forget(batch)
        floor.schedule.mark_idle(1, NOW)
        assert not floor.schedule.is_ready(1)
        assert floor.schedule.next_due() is None


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
