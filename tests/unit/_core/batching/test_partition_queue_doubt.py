"""Batches of a queue that may or may not be in the log."""

from __future__ import annotations

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.idempotence import REFUSALS_AS_PROOF, IdentityKeeper
from aioproducer.errors import OutOfOrderSequenceNumber, TimeoutReason
from tests.cases import for_each
from tests.unit.floor_rig import FIRST, back_off, batching_settings, lose


def queue_of(count: int, *, records: int = 1) -> tuple[PartitionQueue, list[Batch]]:
    """Return a queue and its batches, in flight and handed to a socket."""
    identities = IdentityKeeper()
    identities.assign(*FIRST)
    queue = PartitionQueue("orders", 3, batching_settings(), identities)
    assert queue.sequences.may_assign(identities, unsettled=())
    queue.sequences.acknowledged_here = True
    batches = []
    for _ in range(count):
        batch = Batch(queue.topic_partition, queue.next_order(), created_at=0.0, deadline=120.0)
        for _ in range(records):
            batch.columns.append(b"value", None, (), 0)
        batch.mark_ready()
        queue.add(batch)
        queue.take(batch)
        batch.persistence.written()
        batches.append(batch)
    return queue, batches


def doubted(count: int) -> tuple[PartitionQueue, list[Batch]]:
    """Return a queue and its batches, each of which was lost with its connection and waits to be sent again."""
    queue, batches = queue_of(count)
    lose(*batches)
    for batch in batches:
        back_off(queue, batch, 1.0)
    return queue, batches


def deny(batch: Batch, times: int = REFUSALS_AS_PROOF) -> None:
    for _ in range(times):
        batch.refused(OutOfOrderSequenceNumber("no"), was_next=True, newest=False)


def acknowledge(queue: PartitionQueue, batch: Batch, base_offset: int) -> None:
    queue.remove(batch)
    assert batch.sequence is not None
    queue.sequences.acknowledge(batch.sequence, batch.order, len(batch), base_offset, alone=False)


def test_batch_stores_how_many_were_numbered_before_it() -> None:
    _, batches = queue_of(3)
    assert [batch.numbered_before for batch in batches] == [0, 1, 2]


def test_batch_is_alone_without_other_unsettled_batches() -> None:
    queue, [first, second] = queue_of(2)
    assert not queue.is_alone(first)
    back_off(queue, second, 1.0)
    assert not queue.is_alone(first)
    queue.remove(second)
    assert queue.is_alone(first)
    assert not queue.is_alone(second)


class TestProof:
    def test_uncertain_batch_is_confirmed_by_a_later_one(self) -> None:
        queue, [first, second] = queue_of(2)
        assert not queue.is_confirmed(first)
        acknowledge(queue, second, -1)
        assert queue.is_confirmed(first)
        assert not queue.is_confirmed(second)

    @pytest.mark.parametrize(("base_offset", "proved"), [(2, False), (3, True)])
    def test_uncertain_batch_is_confirmed_if_offsets_leave_room(self, base_offset: int, proved: bool) -> None:
        queue, [first, second] = queue_of(2, records=3)
        acknowledge(queue, second, base_offset)
        assert queue.is_confirmed(first) is proved


class TestNewest:
    """A leader recognises at most the newest batch that it may have."""

    @pytest.mark.parametrize("are_out", [False, True])
    def test_newest_batch_is_the_last_that_may_be_in_the_log(self, are_out: bool) -> None:
        queue, batches = queue_of(3) if are_out else doubted(3)
        assert [queue.is_newest(batch) for batch in batches] == [False, False, True]

    def test_denied_batch_is_not_the_newest(self) -> None:
        queue, batches = doubted(3)
        deny(batches[2], times=1)
        assert [queue.is_newest(batch) for batch in batches] == [False, True, True]

    def test_half_of_a_batch_is_not_the_newest(self) -> None:
        queue, batches = doubted(2)
        batches[1].persistence.half_of_possibly_persisted = True
        assert queue.is_newest(batches[0])

    def test_unwritten_batch_is_not_the_newest(self) -> None:
        queue, batches = queue_of(2)
        batches[1].persistence.not_written()
        assert queue.is_newest(batches[0])

    def test_batch_before_an_acknowledged_one_is_not_the_newest(self) -> None:
        queue, [first, second] = queue_of(2)
        acknowledge(queue, second, -1)
        assert not queue.is_newest(first)


class TestLeaderDeniesOldest:
    def test_leader_is_asked_for_newest_batch_first(self) -> None:
        queue, [first, second, third] = doubted(3)
        deny(first, REFUSALS_AS_PROOF - 1)
        assert queue.next_batch(1.0) is first
        deny(first, 1)
        assert queue.next_batch(1.0) is third
        deny(third, 1)
        assert queue.next_batch(1.0) is second
        deny(second, 1)
        assert queue.next_batch(1.0) is first

    def test_batch_in_backoff_is_asked_for_at_its_time(self) -> None:
        queue, [first, second] = doubted(2)
        deny(first)
        second.back_off(5.0)
        assert queue.next_batch(4.9) is TimeoutReason.BACKING_OFF
        assert queue.next_batch(5.0) is second

    def test_leader_is_asked_for_one_batch_at_a_time(self) -> None:
        queue, [first, second, _] = doubted(3)
        deny(first)
        queue.take(second)
        assert queue.next_batch(1.0) is TimeoutReason.IN_FLIGHT_LIMIT

    def test_oldest_batch_is_asked_for_once_it_is_proved(self) -> None:
        queue, [first, second, third] = doubted(3)
        deny(first)
        queue.take(second)
        acknowledge(queue, third, -1)
        assert queue.next_batch(1.0) is first

    def test_reset_sequence_refusals_clears_all_denials(self) -> None:
        queue, batches = doubted(2)
        for batch in batches:
            deny(batch)
        queue.reset_sequence_refusals()
        assert [batch.persistence.sequence_refusals for batch in batches] == [0, 0]


class TestWriteAfterCompression:
    def test_batch_is_written_behind_batches_in_flight(self) -> None:
        queue, batches = queue_of(2)
        assert [*map(queue.may_write, batches)] == [True, True]

    def test_batch_is_not_written_before_a_retried_batch(self) -> None:
        queue, [first, second, third] = queue_of(3)
        back_off(queue, second, 1.0)
        assert [*map(queue.may_write, [first, third])] == [True, False]

    def test_batch_is_not_written_before_an_unwritten_earlier_batch(self) -> None:
        queue, [first, second, third] = queue_of(3)
        second.persistence.not_written()
        assert [*map(queue.may_write, [first, second, third])] == [True, True, False]

    def test_only_oldest_batch_is_written_to_a_new_log(self) -> None:
        queue, [first, second] = queue_of(2)
        queue.sequences.forget_log(second.order)
        assert [*map(queue.may_write, [first, second])] == [True, False]

    def test_newest_batch_is_written_where_the_oldest_is_denied(self) -> None:
        queue, [first, _, third] = doubted(3)
        deny(first)
        queue.take(third)
        assert queue.may_write(third)
        first.persistence.reset_sequence_refusals()
        assert not queue.may_write(third)

    def test_batch_is_not_written_under_an_identity_that_ends(self) -> None:
        queue, [refused, later] = queue_of(2)
        refused.persistence.answered()
        queue.remove(refused)
        queue.request_epoch_bump(refused)
        assert not queue.may_write(later)
        lose(later)
        assert not queue.may_write(later)  # behind the gap, so certainly not in the log

    def test_batch_in_doubt_is_written_under_an_identity_that_ends(self) -> None:
        queue, [in_doubt, failed] = queue_of(2)
        lose(in_doubt)
        failed.persistence.answered()
        queue.remove(failed)
        queue.request_epoch_bump(failed)
        assert queue.may_write(in_doubt)


class TestEpochBump:
    def test_epoch_bump_leaves_a_gap_for_a_batch_not_in_the_log(self) -> None:
        queue, [first] = queue_of(1)
        first.persistence.answered()
        queue.request_epoch_bump(first)
        assert queue.sequences.needs_epoch_bump
        assert queue.sequences.gap_at == first.order

    def test_epoch_bump_leaves_no_gap_for_an_uncertain_batch(self) -> None:
        queue, [first] = queue_of(1)
        queue.request_epoch_bump(first)
        assert queue.sequences.needs_epoch_bump
        assert queue.sequences.gap_at is None

    def test_batches_behind_a_gap_are_renumbered_in_place(self) -> None:
        queue, [first, second, third] = doubted(3)
        queue.remove(first)
        first.persistence.ruled_out()
        queue.request_epoch_bump(first)
        assert queue.retrying == ()
        assert list(queue.batches) == [second, third]
        for batch in (second, third):
            assert (batch.state, batch.sequence) == (BatchState.SEALED, None)
            assert not batch.possibly_persisted

    def test_uncertain_batch_before_the_gap_keeps_its_sequence(self) -> None:
        queue, [first, second, third] = doubted(3)
        second.persistence.ruled_out()
        queue.request_epoch_bump(first)
        assert queue.retrying == (first,)
        assert queue.sequences.gap_at == second.order
        assert list(queue.batches) == [second, third]


def test_batch_stays_in_doubt_when_a_later_batch_failed_in_doubt() -> None:
    """If the leader recognises only the later batch, the leader denies the earlier batches."""
    queue, (denied, later) = doubted(2)
    deny(denied)
    queue.remove(later)
    queue.request_epoch_bump(later)
    assert not queue.is_newest(denied)


def test_batch_is_the_newest_when_a_later_batch_failed_unwritten() -> None:
    queue, (denied, later) = doubted(2)
    deny(denied)
    queue.remove(later)
    later.persistence.ruled_out()
    queue.request_epoch_bump(later)
    assert queue.is_newest(denied)


def test_lost_batch_has_no_newer_lost_batch() -> None:
    queue, (lost_batch,) = doubted(1)
    deny(lost_batch)
    queue.note_gone(lost_batch)
    assert queue.newest_lost_in_doubt == lost_batch.order
    assert queue.is_newest(lost_batch)
    assert not queue.is_refused_without_proof(lost_batch)


class TestDeniedWithoutProof:
    """The leader may recognise only a batch that was lost, so its denials never rule out earlier batches."""

    @staticmethod
    def queue_before_gone(count: int) -> tuple[PartitionQueue, list[Batch]]:
        queue, [*batches, gone] = doubted(count + 1)
        queue.remove(gone)
        queue.request_epoch_bump(gone)
        return queue, batches

    @for_each("denials", range(REFUSALS_AS_PROOF + 1))
    def test_oldest_batch_is_refused_without_proof_after_denials(self, denials: int) -> None:
        queue, [oldest] = self.queue_before_gone(1)
        deny(oldest, times=denials)
        assert queue.is_refused_without_proof(oldest) is (denials == REFUSALS_AS_PROOF)

    @pytest.mark.parametrize("asked", [False, True])
    def test_batch_behind_the_oldest_is_asked_for_before(self, asked: bool) -> None:
        queue, [oldest, behind] = self.queue_before_gone(2)
        deny(oldest)
        deny(behind, times=asked)
        assert queue.is_refused_without_proof(oldest) is asked

    def test_batch_is_not_refused_without_proof_if_none_is_lost(self) -> None:
        queue, [earlier, oldest] = doubted(2)
        queue.remove(earlier)
        queue.request_epoch_bump(earlier)
        deny(oldest)
        assert not queue.is_refused_without_proof(oldest)

    def test_before_gone_lists_earlier_batches_in_backoff(self) -> None:
        queue, [first, second, gone, _] = doubted(4)
        queue.remove(gone)
        queue.request_epoch_bump(gone)
        assert queue.before_gone == [first, second]

    def test_lost_batch_is_forgotten_behind_a_gap(self) -> None:
        queue, [first, second] = self.queue_before_gone(2)
        queue.remove(first)
        first.persistence.ruled_out()
        queue.request_epoch_bump(first)
        assert queue.newest_lost_in_doubt == ()
        assert list(queue.batches) == [second]

    def test_lost_batch_is_forgotten_behind_a_gap_of_the_same_bump(self) -> None:
        queue, [first, second, gone] = doubted(3)
        second.persistence.ruled_out()
        queue.remove(gone)
        queue.request_epoch_bump(gone)
        assert queue.newest_lost_in_doubt == ()
        deny(first)
        assert queue.is_newest(first)
        assert not queue.is_refused_without_proof(first)
