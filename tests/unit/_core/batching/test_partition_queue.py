from __future__ import annotations

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.idempotence import BatchSequence, IdentityKeeper, ProducerIdentity
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer.errors import ConnectionFailed, TimeoutReason
from aioproducer.types import TopicPartition
from tests.unit._core.batching.partition_queue_rig import Rig
from tests.unit.floor_rig import FIRST, back_off, batching_settings


def test_str_is_topic_and_partition() -> None:
    assert str(Rig().queue) == "orders-3"


def test_new_queue_has_no_leader_and_is_not_watched() -> None:
    queue = Rig().queue
    assert (queue.leader, queue.is_watched) == (NO_LEADER, False)


def test_places_are_given_out_in_order() -> None:
    queue = Rig().queue
    assert [queue.next_order() for _ in range(3)] == [(1,), (2,), (3,)]


def test_queue_is_idle_without_unanswered_batches() -> None:
    rig = Rig()
    assert rig.queue.idle
    batch = rig.add()
    assert not rig.queue.idle
    rig.take()
    assert not rig.queue.idle
    back_off(rig.queue, batch, 1.0)
    assert not rig.queue.idle
    rig.take(1.0)
    rig.answered(batch)
    assert rig.queue.idle


def test_batch_is_sent_only_when_ready() -> None:
    rig = Rig()
    assert rig.queue.next_batch(0.0) is None
    batch = rig.add(ready=False)
    assert rig.queue.next_batch(0.0) is None
    batch.mark_ready()
    assert rig.queue.next_batch(0.0) is batch


def test_batch_taken_is_in_flight_with_a_sequence() -> None:
    rig = Rig()
    batch = rig.add(records=3)
    rig.take()
    assert batch.state is BatchState.IN_FLIGHT
    assert batch.sequence == BatchSequence(FIRST, 0)
    assert batch.attempts == 1
    assert rig.queue.open is None
    assert not rig.queue.batches
    assert rig.queue.in_flight == (batch,)
    rig.add()
    assert rig.take().sequence == BatchSequence(FIRST, 3)


def test_queue_keeps_no_container_when_it_is_idle() -> None:
    rig = Rig()
    alone = rig.add()
    line = rig.queue.batches
    assert rig.take() is alone
    assert rig.queue.in_flight is line, "the tuple is reused"
    rig.answered(alone)
    batches = [rig.add() for _ in range(3)]
    assert list(rig.queue.batches) == batches
    for batch in batches:
        assert rig.take() is batch
    for batch in batches:
        rig.answered(batch)
    assert (rig.queue.batches, rig.queue.in_flight, rig.queue.retrying) == ((), (), ())


def test_sealing_twice_does_no_harm() -> None:
    rig = Rig()
    batch = rig.add(ready=False)
    rig.queue.seal(batch)
    assert (batch.state, batch.ready, rig.queue.open) == (BatchState.SEALED, True, None)
    newer = rig.add()
    rig.queue.seal(batch)
    assert rig.queue.open is newer
    assert newer.state is BatchState.OPEN


def test_retried_batch_keeps_its_sequence() -> None:
    rig = Rig()
    batch = rig.add()
    rig.take()
    back_off(rig.queue, batch, 1.0)
    assert rig.queue.next_batch(0.9) is TimeoutReason.BACKING_OFF
    assert rig.take(1.0) is batch
    assert batch.sequence == BatchSequence(FIRST, 0)
    assert batch.attempts == 2
    assert not rig.queue.retrying


def test_batch_waits_for_a_producer_id() -> None:
    rig = Rig(identified=False)
    rig.add()
    assert rig.queue.needs_identity
    assert rig.queue.next_batch(0.0) is TimeoutReason.PRODUCER_ID


def test_identity_is_needed_only_for_a_ready_unnumbered_batch() -> None:
    rig = Rig()
    assert not rig.queue.needs_identity
    batch = rig.add(ready=False)
    assert not rig.queue.needs_identity
    batch.mark_ready()
    assert rig.queue.needs_identity
    rig.take()
    rig.add()
    back_off(rig.queue, batch, 1.0)
    assert not rig.queue.needs_identity


def test_batches_in_flight_are_limited_to_max_in_flight() -> None:
    rig = Rig(max_in_flight=2)
    first, _, third = rig.add(), rig.add(), rig.add()
    rig.take()
    rig.take()
    assert rig.queue.next_batch(0.0) is TimeoutReason.IN_FLIGHT_LIMIT
    rig.answered(first)
    assert rig.take() is third


def test_retry_may_be_followed_by_at_most_max_in_flight_batches() -> None:
    """A broker remembers a limited number of batches per producer."""
    rig = Rig(max_in_flight=3)
    first, second, third, fourth = [rig.add() for _ in range(4)]
    for _ in range(3):
        rig.take()
    back_off(rig.queue, first, 0.0)
    assert rig.take() is first
    rig.answered(second)
    rig.answered(third)
    assert rig.queue.next_batch(0.0) is TimeoutReason.IN_FLIGHT_LIMIT
    rig.answered(first)
    assert rig.take() is fourth


def test_batches_go_one_by_one_until_the_leader_has_the_producer() -> None:
    rig = Rig(acknowledged_here=False)
    first, second = rig.add(), rig.add()
    assert rig.take() is first
    assert rig.queue.next_batch(0.0) is TimeoutReason.IN_FLIGHT_LIMIT
    assert first.sequence is not None
    rig.queue.sequences.acknowledge(first.sequence, first.order, 1, 0, alone=False)
    assert rig.take() is second


def test_epoch_bump_waits_until_all_in_flight_is_settled() -> None:
    rig = Rig()
    first, second = rig.add(), rig.add()
    rig.take()
    rig.queue.sequences.request_epoch_bump((1,), absent=False)
    assert rig.queue.next_batch(0.0) is TimeoutReason.IN_FLIGHT_LIMIT
    assert rig.queue.sequences.needs_epoch_bump
    rig.answered(first)
    assert rig.take() is second
    assert second.sequence == BatchSequence(ProducerIdentity(7, 1), 0)


def test_batch_refused_for_its_sequence_waits_for_its_time() -> None:
    rig = Rig()
    batch = rig.add()
    batch.back_off(2.0)
    assert rig.queue.next_batch(1.9) is TimeoutReason.BACKING_OFF
    assert rig.queue.next_batch(2.0) is batch


def test_retried_batch_goes_before_new_batches() -> None:
    rig = Rig()
    old, new = rig.add(), rig.add()
    rig.take()
    back_off(rig.queue, old, 1.0)
    assert rig.queue.next_batch(0.0) is TimeoutReason.BACKING_OFF
    assert rig.take(1.0) is old
    assert rig.take(1.0) is new


def test_retried_batches_go_oldest_first() -> None:
    rig = Rig()
    first, second = rig.add(), rig.add()
    rig.take()
    rig.take()
    back_off(rig.queue, second, 0.0)
    assert rig.queue.next_batch(0.0) is TimeoutReason.IN_FLIGHT_LIMIT  # `first` may still fail
    back_off(rig.queue, first, 0.0)
    assert rig.queue.retrying == (first, second)
    assert rig.take() is first
    assert rig.queue.next_batch(0.0) is TimeoutReason.IN_FLIGHT_LIMIT
    rig.answered(first)
    assert rig.take() is second


def test_older_batch_is_retried_while_newer_ones_are_in_flight() -> None:
    rig = Rig()
    first, second = rig.add(), rig.add()
    rig.take()
    rig.take()
    back_off(rig.queue, first, 0.0)
    assert rig.take() is first
    assert rig.queue.in_flight == (first, second)


def test_batches_without_idempotence_go_one_by_one_unnumbered() -> None:
    rig = Rig(identified=False, acknowledged_here=False, idempotent=False)
    first, second = rig.add(), rig.add()
    assert not rig.queue.needs_identity
    assert rig.take() is first
    assert first.sequence is None
    assert rig.queue.next_batch(0.0) is TimeoutReason.IN_FLIGHT_LIMIT
    rig.answered(first)
    assert rig.take() is second


def test_retry_without_idempotence_waits_for_the_batch_in_flight() -> None:
    rig = Rig(identified=False, acknowledged_here=False, idempotent=False)
    first, second = rig.add(), rig.add()
    rig.take()
    back_off(rig.queue, first, 0.0)
    rig.queue.take(second)
    assert rig.queue.next_batch(0.0) is TimeoutReason.IN_FLIGHT_LIMIT
    rig.answered(second)
    assert rig.take() is first


def test_batch_put_back_returns_to_its_place() -> None:
    rig = Rig()
    first, second, third = rig.add(), rig.add(), rig.add()
    for batch in (first, second):
        rig.take()
        rig.queue.remove(batch)
        batch.renumber()
    rig.queue.put_back(second)
    rig.queue.put_back(first)
    assert list(rig.queue.batches) == [first, second, third]


def test_batch_put_back_last_goes_to_the_end() -> None:
    rig = Rig()
    batch = rig.add()
    rig.take()
    rig.queue.remove(batch)
    batch.renumber()
    rig.queue.put_back(batch)
    assert list(rig.queue.batches) == [batch]


def test_removed_batch_is_no_longer_open() -> None:
    rig = Rig()
    sealed, still_open = rig.add(), rig.add()
    rig.queue.remove(sealed)
    assert rig.queue.open is still_open
    rig.queue.remove(still_open)
    assert rig.queue.open is None
    assert rig.queue.idle


def test_batch_in_backoff_can_be_removed() -> None:
    rig = Rig()
    batch = rig.add()
    rig.take()
    back_off(rig.queue, batch, 1.0)
    rig.queue.remove(batch)
    assert rig.queue.idle


def test_oldest_unsettled_is_in_flight_or_in_backoff() -> None:
    rig = Rig()
    assert rig.queue.oldest_unsettled is None
    first, second = rig.add(), rig.add()
    assert rig.queue.oldest_unsettled is None
    rig.take()
    rig.take()
    assert rig.queue.oldest_unsettled is first
    back_off(rig.queue, first, 1.0)
    assert rig.queue.oldest_unsettled is first
    rig.answered(second)
    assert rig.queue.oldest_unsettled is first


def test_taken_bytes_counts_every_append_once() -> None:
    rig = Rig()
    assert rig.queue.taken_bytes() == rig.queue.backlog_bytes == 0
    first = rig.add()
    first.size += 100
    assert rig.queue.taken_bytes() == 100
    assert rig.take() is first
    second = rig.add()
    second.size += 20
    assert rig.queue.taken_bytes() == 120
    assert rig.queue.backlog_bytes == first.size + second.size
    rig.answered(first)
    assert (rig.queue.taken_bytes(), rig.queue.backlog_bytes) == (120, second.size)
    rig.queue.seal(second)
    rig.queue.seal(second)
    assert rig.queue.taken_bytes() == 120


def test_backlog_includes_batches_in_backoff() -> None:
    rig = Rig()
    batch = rig.add()
    assert rig.take() is batch
    back_off(rig.queue, batch, 5.0)
    assert rig.queue.backlog_bytes == batch.size


def test_partition_gets_a_sequence_once_it_is_admitted() -> None:
    class Keeper(IdentityKeeper):
        admitted: TopicPartition | None = None

        def admits(self, where: TopicPartition) -> bool:
            return self.admitted == where

    rig = Rig(acknowledged_here=False)
    keeper = Keeper(bumps_partitions=False)
    keeper.assign(*FIRST)
    rig.queue = PartitionQueue("orders", 3, batching_settings(), keeper)
    batch = rig.add()
    assert rig.queue.next_batch(0.0) is TimeoutReason.TRANSACTION
    keeper.admitted = TopicPartition("orders", 3)
    assert rig.queue.next_batch(0.0) is batch
    keeper.leave_cluster()
    assert rig.queue.next_batch(0.0) is TimeoutReason.TRANSACTION, "there is no producer id"


class TestAnotherCluster:
    def test_batches_with_a_sequence_are_renumbered(self) -> None:
        rig = Rig()
        first, second = rig.add(), rig.add()
        for each in rig.take(), rig.take():
            each.persistence.written()
        for each in second, first:
            rig.queue.remove(each)
            each.connection_lost(ConnectionFailed("lost"), reached_socket=True)
            each.retry(0.0)
            rig.queue.retry(each)
        rig.identities.leave_cluster()
        rig.queue.leave_cluster()
        assert list(rig.queue.batches) == [first, second]
        assert not isinstance(rig.queue.next_batch(0.0), Batch), "there is no producer id"
        rig.identities.assign(*FIRST)  # the other cluster gives the same
        assert rig.take() is first
        assert first.sequence == BatchSequence(FIRST, 0)
        assert first.persistence.possibly_persisted, "the old cluster may have it"
        assert not first.persistence.in_doubt

    def test_batch_that_is_being_encoded_is_renumbered_later(self) -> None:
        rig = Rig()
        batch = rig.add()
        rig.take()
        rig.identities.leave_cluster()
        rig.queue.leave_cluster()
        rig.identities.assign(*FIRST)
        rig.add()
        assert not isinstance(rig.queue.next_batch(0.0), Batch), "a batch holds an old sequence"
        rig.queue.remove(batch)
        batch.give_back()
        rig.queue.retry(batch)
        rig.queue.renumber_retrying()
        assert rig.take() is batch
        assert batch.sequence == BatchSequence(FIRST, 0)
        assert not batch.possibly_persisted

    def test_batch_without_a_sequence_is_retried_in_the_new_cluster(self) -> None:
        rig = Rig(idempotent=False, identified=False, acknowledged_here=False)
        batch = rig.add()
        assert rig.take() is batch
        back_off(rig.queue, batch, 1.0)
        rig.queue.leave_cluster()
        assert rig.queue.next_batch(0.5) is TimeoutReason.BACKING_OFF
        assert rig.take(1.0) is batch
        assert batch.sequence is None
