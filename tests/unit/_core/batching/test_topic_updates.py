"""Queues of a topic when its leaders, its id or the cluster change."""

from __future__ import annotations

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.schedule import BrokerLatencies
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.idempotence import IdentityKeeper
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer.errors import OutOfOrderSequenceNumber
from tests.unit.floor_rig import FIRST, back_off, batching_settings

ONE, OTHER = b"1" * 16, b"2" * 16


class Topic(TopicQueues):
    """Topic whose partitions 0 and 1 have leader 1."""

    def __init__(self) -> None:
        identities = IdentityKeeper()
        identities.assign(*FIRST)
        super().__init__("orders", batching_settings(), identities, BrokerLatencies(lambda: 0.0))
        self.update([1, 1])
        for partition in range(2):
            assert self[partition].sequences.may_assign(identities, ())


def sent(queue: PartitionQueue) -> Batch:
    """Return a batch of *queue* in flight."""
    batch = Batch(queue.topic_partition, queue.next_order(), created_at=0.0, deadline=120.0)
    batch.columns.append(b"value", None, (), 0)
    queue.add(batch)
    queue.take(batch)
    return batch


def denied(queue: PartitionQueue) -> Batch:
    """Return a batch of *queue* in backoff, whose sequence the leader refused."""
    batch = sent(queue)
    batch.refused(OutOfOrderSequenceNumber("no"), was_next=True)
    back_off(queue, batch, 5.0)
    assert batch.persistence.sequence_refusals == 1
    return batch


def test_new_topic_is_unused_and_has_no_id() -> None:
    queues = TopicQueues("orders", batching_settings(), IdentityKeeper(), BrokerLatencies(lambda: 0.0))
    assert (queues.topic_id, queues.used_until) == (NO_TOPIC_ID, 0.0)
    assert (queues.leaders, queues.available, queues.sticky, queues.missing) == ((), (), None, None)
    assert queues.next_sticky(100) is queues[0]


@pytest.mark.parametrize(("leaders", "topic_id"), [([1, 2], NO_TOPIC_ID), ([1, 1], ONE)])
def test_new_leader_or_log_is_asked_again(leaders: list[int], topic_id: bytes) -> None:
    topic = Topic()
    kept, asked = denied(topic[0]), denied(topic[1])
    topic.update(leaders, topic_id)
    assert kept.persistence.sequence_refusals == int(topic_id == NO_TOPIC_ID)
    assert asked.persistence.sequence_refusals == 0


def test_answers_for_batches_in_flight_concern_the_old_log() -> None:
    topic = Topic()
    sequences = topic[0].sequences
    first, newest = sent(topic[0]), sent(topic[0])
    topic.update([1, 1], ONE)
    for batch in (first, newest, sent(topic[0])):
        assert batch.sequence is not None
        sequences.acknowledge(batch.sequence, batch.order, 1, 5, alone=False)
        assert sequences.acknowledged_here is (batch not in {first, newest})


def test_recreated_topic_offers_all_its_queues() -> None:
    topic = Topic()
    queues = [topic[0], topic[1]]
    assert topic.update([1, 1], ONE) == []
    assert topic.update([1, 1], OTHER) == queues
    assert topic.update([1, 1], OTHER) == []


def test_topic_leaves_the_cluster_with_all_its_queues() -> None:
    topic = Topic()
    topic.leave_cluster()
    assert [topic[partition].sequences.identity for partition in range(2)] == [None, None]


def test_batches_behind_a_deletion_are_acknowledged() -> None:
    topic = Topic()
    topic.update([1, 1], ONE)
    batch = sent(topic[0])
    assert batch.sequence is not None
    topic[0].sequences.acknowledge(batch.sequence, batch.order, 1, 5, alone=False)
    assert topic[0].sequences.acknowledged_here
