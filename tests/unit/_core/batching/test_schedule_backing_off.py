"""Batches in backoff: the time of their retry and the events that bring it forward."""

from __future__ import annotations

from math import inf

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import MOVED_BACKOFF_S, PROMPT_RETRIES
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer.errors import BrokerError, NotEnoughReplicas, NotLeaderOrFollower
from tests.unit._core.batching.schedule_rig import ALL, NOW, Floor
from tests.unit.floor_rig import TOPIC, back_off, lose


def test_batch_in_backoff_is_ready_at_its_time() -> None:
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
    assert floor.schedule.next_due() == inf


def test_next_due_is_the_earlier_of_a_linger_and_a_backoff() -> None:
    floor = Floor(1, 1)
    floor.linger(floor.open(0), NOW + 5)
    floor.schedule.back_off(floor.queues[1], NOW + 2)
    assert floor.schedule.next_due() == NOW + 2
    floor.schedule.collect(NOW + 2, hurry=False)
    assert floor.schedule.next_due() == NOW + 5


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


def test_connection_shortens_backoffs_of_its_broker() -> None:
    floor = Floor(1, 2)
    here, there = (backing_off(floor, partition, NOW + 5) for partition in range(2))
    floor.schedule.connected(1, NOW + 1)
    assert floor.schedule.next_due() == NOW + 1
    floor.schedule.collect(NOW + 1, hurry=False)
    assert list(floor.schedule.waiting) == [1]
    assert (here.retry_at, there.retry_at) == (NOW + 1, NOW + 5)
    floor.schedule.collect(NOW + 5, hurry=False)
    assert list(floor.schedule.waiting) == [1, 2]


@pytest.mark.parametrize(("retries", "backoff_s"), [(1, 0.0), (PROMPT_RETRIES, MOVED_BACKOFF_S)])
def test_new_leader_ends_the_backoff(retries: int, backoff_s: float) -> None:
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
def test_topic_is_suspicious_while_a_refused_batch_backs_off(
    error: BrokerError | None, doubtful: set[str]
) -> None:
    floor = Floor(1)
    batch = backing_off(floor, 0, NOW + 5)
    if error is not None:
        batch.refused(error, was_next=True)
    assert floor.schedule.suspicious_topics() == doubtful
    floor.schedule.collect(NOW + 5, hurry=False)
    assert floor.schedule.suspicious_topics() == set()


def test_lost_leader_keeps_the_backoff() -> None:
    floor = Floor(1)
    batch = backing_off(floor, 0, NOW + 5)
    floor.update(NO_LEADER)
    assert batch.retry_at == NOW + 5
