from __future__ import annotations

from typing import Any

from aioproducer.batching.batch import Batch
from aioproducer.batching.queues import MOVED_PAUSE_S, PROMPT_RETRIES, PartitionQueue
from aioproducer.batching.state import BatchState
from aioproducer.errors import BrokerError, NotEnoughReplicas, ProducerError
from aioproducer.idempotence.identity import IdentityKeeper, ProducerIdentity
from aioproducer.idempotence.sequences import Stamp
from tests.unit.workbench import FIRST, back_off, batching_settings, lost


class Bench:
    """One partition's queue."""

    def __init__(self, *, identified: bool = True, recognised: bool = True, **settings: Any) -> None:
        self.identities = IdentityKeeper()
        if identified:
            self.identities.assign(*FIRST)
        self.queue = PartitionQueue("orders", 3, batching_settings(**settings), self.identities)
        if recognised:
            assert self.queue.sequences.may_stamp(self.identities, unsettled=False) == identified
            self.queue.sequences.recognised = True

    def add(self, records: int = 1, *, due: bool = True) -> Batch:
        """Append an open batch; those before it are sealed."""
        if self.queue.open is not None:
            self.queue.seal(self.queue.open)
        batch = Batch(self.queue, self.queue.next_order(), created_at=0.0, deadline=120.0)
        for _ in range(records):
            batch.columns.append(b"value", None, (), 0)
        if due:
            batch.mark_due()
        self.queue.open = batch
        self.queue.batches.append(batch)
        return batch

    def take(self, now: float = 0.0) -> Batch:
        """Do as the schedule does."""
        batch = self.queue.next_batch(now)
        assert batch is not None
        self.queue.take(batch)
        return batch

    def answered(self, batch: Batch) -> None:
        self.queue.remove(batch)
        batch.acknowledge()


def test_a_queue_is_written_as_kafka_writes_partitions() -> None:
    assert str(Bench().queue) == "orders-3"


def test_places_are_given_out_in_order() -> None:
    queue = Bench().queue
    assert [queue.next_order() for _ in range(3)] == [(1,), (2,), (3,)]


def test_it_is_idle_while_nothing_of_it_is_anywhere() -> None:
    bench = Bench()
    assert bench.queue.idle
    batch = bench.add()
    assert not bench.queue.idle
    bench.take()
    assert not bench.queue.idle
    back_off(batch, 1.0)
    assert not bench.queue.idle
    bench.take(1.0)
    bench.answered(batch)
    assert bench.queue.idle


def test_a_batch_is_sent_only_when_due() -> None:
    bench = Bench()
    assert bench.queue.next_batch(0.0) is None
    batch = bench.add(due=False)
    assert bench.queue.next_batch(0.0) is None
    batch.mark_due()
    assert bench.queue.next_batch(0.0) is batch


def test_taken_it_is_sealed_in_flight_and_stamped() -> None:
    bench = Bench()
    batch = bench.add(records=3)
    bench.take()
    assert batch.state is BatchState.IN_FLIGHT
    assert batch.stamp == Stamp(FIRST, 0)
    assert batch.attempts == 1
    assert bench.queue.open is None
    assert not bench.queue.batches
    assert bench.queue.in_flight == [batch]
    bench.add()
    assert bench.take().stamp == Stamp(FIRST, 3)


def test_sealing_twice_does_no_harm() -> None:
    bench = Bench()
    batch = bench.add(due=False)
    bench.queue.seal(batch)
    assert (batch.state, batch.due, bench.queue.open) == (BatchState.SEALED, True, None)
    newer = bench.add()
    bench.queue.seal(batch)
    assert bench.queue.open is newer
    assert newer.state is BatchState.OPEN


def test_sent_again_it_keeps_its_stamp() -> None:
    bench = Bench()
    batch = bench.add()
    bench.take()
    back_off(batch, 1.0)
    assert bench.queue.next_batch(0.9) is None
    assert bench.take(1.0) is batch
    assert batch.stamp == Stamp(FIRST, 0)
    assert batch.attempts == 2
    assert not bench.queue.retrying


def test_without_an_identity_nothing_goes() -> None:
    bench = Bench(identified=False)
    bench.add()
    assert bench.queue.needs_identity
    assert bench.queue.next_batch(0.0) is None


def test_an_identity_is_needed_only_for_a_due_batch_that_has_no_sequence() -> None:
    bench = Bench()
    assert not bench.queue.needs_identity
    batch = bench.add(due=False)
    assert not bench.queue.needs_identity
    batch.mark_due()
    assert bench.queue.needs_identity
    bench.take()
    bench.add()
    back_off(batch, 1.0)
    assert not bench.queue.needs_identity


def test_no_more_than_max_in_flight_are_unanswered() -> None:
    bench = Bench(max_in_flight=2)
    first, _, third = bench.add(), bench.add(), bench.add()
    bench.take()
    bench.take()
    assert bench.queue.next_batch(0.0) is None
    bench.answered(first)
    assert bench.take() is third


def test_no_more_than_max_in_flight_follow_one_that_may_have_to_be_sent_again() -> None:
    """The broker would not remember it."""
    bench = Bench(max_in_flight=3)
    first, second, third, fourth = [bench.add() for _ in range(4)]
    for _ in range(3):
        bench.take()
    back_off(first, 0.0)
    assert bench.take() is first
    bench.answered(second)
    bench.answered(third)
    assert bench.queue.next_batch(0.0) is None
    bench.answered(first)
    assert bench.take() is fourth


def test_until_the_leader_recognises_the_producer_one_batch_goes_at_a_time() -> None:
    bench = Bench(recognised=False)
    first, second = bench.add(), bench.add()
    assert bench.take() is first
    assert bench.queue.next_batch(0.0) is None
    assert first.stamp is not None
    bench.queue.sequences.acknowledge(first.stamp, first.order, 1, 0)
    assert bench.take() is second


def test_a_broken_sequence_gives_out_nothing_until_all_in_flight_is_settled() -> None:
    bench = Bench()
    first, second = bench.add(), bench.add()
    bench.take()
    bench.queue.sequences.break_off((1,), absent=False)
    assert bench.queue.next_batch(0.0) is None
    bench.answered(first)
    assert bench.take() is second
    assert second.stamp == Stamp(ProducerIdentity(7, 1), 0)


def test_a_batch_refused_for_its_sequence_waits_for_its_time() -> None:
    bench = Bench()
    batch = bench.add()
    batch.pause(2.0)
    assert bench.queue.next_batch(1.9) is None
    assert bench.queue.next_batch(2.0) is batch


def test_what_is_sent_again_goes_before_anything_new() -> None:
    bench = Bench()
    old, new = bench.add(), bench.add()
    bench.take()
    back_off(old, 1.0)
    assert bench.queue.next_batch(0.0) is None
    assert bench.take(1.0) is old
    assert bench.take(1.0) is new


def test_what_is_sent_again_goes_oldest_first_and_waits_for_what_is_older() -> None:
    bench = Bench()
    first, second = bench.add(), bench.add()
    bench.take()
    bench.take()
    back_off(second, 0.0)
    assert bench.queue.next_batch(0.0) is None  # `first` may still fail
    back_off(first, 0.0)
    assert bench.queue.retrying == [first, second]
    assert bench.take() is first
    assert bench.queue.next_batch(0.0) is None
    bench.answered(first)
    assert bench.take() is second


def test_an_older_one_is_sent_again_while_newer_ones_are_in_flight() -> None:
    bench = Bench()
    first, second = bench.add(), bench.add()
    bench.take()
    bench.take()
    back_off(first, 0.0)
    assert bench.take() is first
    assert bench.queue.in_flight == [first, second]


def test_without_idempotence_one_batch_is_in_flight_and_none_is_stamped() -> None:
    bench = Bench(identified=False, recognised=False, idempotent=False)
    first, second = bench.add(), bench.add()
    assert not bench.queue.needs_identity
    assert bench.take() is first
    assert first.stamp is None
    assert bench.queue.next_batch(0.0) is None
    bench.answered(first)
    assert bench.take() is second


def test_without_idempotence_nothing_is_sent_again_beside_another() -> None:
    bench = Bench(identified=False, recognised=False, idempotent=False)
    first, second = bench.add(), bench.add()
    bench.take()
    back_off(first, 0.0)
    bench.queue.batches.clear()
    second.seal()
    second.drain()
    bench.queue.in_flight.append(second)
    assert bench.queue.next_batch(0.0) is None
    bench.answered(second)
    assert bench.take() is first


def test_what_is_put_back_stands_where_it_stood() -> None:
    bench = Bench()
    first, second, third = bench.add(), bench.add(), bench.add()
    for batch in (first, second):
        bench.take()
        bench.queue.remove(batch)
        batch.renumber()
    bench.queue.put_back(second)
    bench.queue.put_back(first)
    assert list(bench.queue.batches) == [first, second, third]


def test_what_is_put_back_behind_all_others_goes_to_the_end() -> None:
    bench = Bench()
    batch = bench.add()
    bench.take()
    bench.queue.remove(batch)
    batch.renumber()
    bench.queue.put_back(batch)
    assert list(bench.queue.batches) == [batch]


def test_a_removed_batch_is_open_no_more() -> None:
    bench = Bench()
    sealed, still_open = bench.add(), bench.add()
    bench.queue.remove(sealed)
    assert bench.queue.open is still_open
    bench.queue.remove(still_open)
    assert bench.queue.open is None
    assert bench.queue.idle


def test_a_batch_in_backoff_can_be_removed() -> None:
    bench = Bench()
    batch = bench.add()
    bench.take()
    back_off(batch, 1.0)
    bench.queue.remove(batch)
    assert bench.queue.idle


def test_the_oldest_unsettled_is_in_flight_or_waits_to_be_sent_again() -> None:
    bench = Bench()
    assert bench.queue.oldest_unsettled is None
    first, second = bench.add(), bench.add()
    assert bench.queue.oldest_unsettled is None
    bench.take()
    bench.take()
    assert bench.queue.oldest_unsettled is first
    back_off(first, 1.0)
    assert bench.queue.oldest_unsettled is first
    bench.answered(second)
    assert bench.queue.oldest_unsettled is first


class TestPauses:
    @staticmethod
    def paused(bench: Bench, *at: float, error: ProducerError | None = None) -> list[Batch]:
        batches = [bench.add() for _ in at]
        for _ in batches:
            _ = bench.take()
        for batch, retry_at in zip(batches, at, strict=True):
            if isinstance(error, BrokerError):
                batch.refused(error, in_turn=True)
            elif error is not None:
                batch.connection_lost(error, reached_socket=True)
            back_off(batch, retry_at)
        return batches

    def test_a_new_leader_ends_them(self) -> None:
        bench = Bench()
        one, other = self.paused(bench, 5.0, 0.5)
        assert bench.queue.follow_leader(1.0) == 0.5
        assert (one.retry_at, other.retry_at) == (1.0, 0.5)

    def test_after_some_retries_it_shortens_them(self) -> None:
        bench = Bench()
        [batch] = self.paused(bench, 5.0)
        for _ in range(PROMPT_RETRIES):
            batch.pause(5.0)
        assert bench.queue.follow_leader(1.0) == batch.retry_at == 1.0 + MOVED_PAUSE_S

    def test_it_ends_that_of_a_batch_refused_for_its_sequence(self) -> None:
        bench = Bench()
        batch = bench.add()
        bench.queue.seal(batch)
        batch.pause(5.0)
        _ = bench.add()
        assert bench.queue.next_batch(1.0) is None
        assert bench.queue.follow_leader(1.0) == 1.0
        assert bench.queue.next_batch(1.0) is batch

    def test_where_there_is_none_nothing_is_to_be_waited_for(self) -> None:
        bench = Bench()
        _ = bench.add()
        assert bench.queue.follow_leader(1.0) == 1.0

    def test_a_connection_shortens_those_after_a_lost_one(self) -> None:
        bench = Bench()
        [batch] = self.paused(bench, 5.0, error=lost())
        assert bench.queue.retry_by(1.0)
        assert batch.retry_at == 1.0
        assert not bench.queue.retry_by(2.0)
        assert batch.retry_at == 1.0

    def test_but_not_those_after_a_refusal(self) -> None:
        bench = Bench()
        [batch] = self.paused(bench, 5.0, error=NotEnoughReplicas("no"))
        assert not bench.queue.retry_by(1.0)
        assert batch.retry_at == 5.0
