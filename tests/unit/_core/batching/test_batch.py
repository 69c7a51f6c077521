from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import TRANSITIONS, BatchEvent, BatchState
from aioproducer._core.batching.waiters import FutureWaiters, Waiters
from aioproducer._core.idempotence import REFUSALS_AS_PROOF, BatchSequence, Persistence
from aioproducer._core.records.columns import BATCH_OVERHEAD, RecordColumns, record_size_bound
from aioproducer.errors import NotEnoughReplicas, OutOfOrderSequenceNumber, ProducerError, RequestTimedOut
from aioproducer.testing.virtual_time import in_virtual_time
from tests.cases import for_each
from tests.unit._core.batching.batch_rig import HAPPEN, HEADERS, batch_in, mixed, send
from tests.unit.floor_rig import FIRST, lose, lost

STAMP = BatchSequence(FIRST, 4)
SEALED_AGAIN = (BatchState.SEALED, BatchEvent.SEAL)
"""The one thing that may happen to a batch twice: it is sealed when it is full, and again when it is taken."""
REFUSED = NotEnoughReplicas("before the append")
LEFT_OPEN = RequestTimedOut("after the append, maybe")
LOST = lost()
Note = Callable[[Batch], None]


def written(batch: Batch) -> None:
    batch.persistence.written()


def not_written(batch: Batch) -> None:
    batch.persistence.not_written()


def answered(batch: Batch) -> None:
    batch.persistence.answered()


def answer_not_understood(batch: Batch) -> None:
    batch.persistence.answer_not_understood()


def ruled_out(batch: Batch) -> None:
    batch.persistence.ruled_out()


def test_new_batch_is_open_and_empty_and_holds_header_memory() -> None:
    batch = batch_in()
    assert batch.state is BatchState.OPEN
    assert len(batch) == 0
    assert batch.size == BATCH_OVERHEAD
    assert batch.stretches == []
    assert batch.kind is batch.plain_kind is batch.last is batch.withdrawn is None
    assert batch.ready is False
    assert (batch.limit, batch.rate) == (0, 1.0), "the defaults"
    assert (batch.sequence, batch.numbered_before) == (None, 0)


def test_batch_may_start_with_columns_and_stretches_of_another() -> None:
    columns, stretches = RecordColumns(), list[Waiters]([FutureWaiters([])])
    place = batch_in().topic_partition
    child = Batch(
        place,
        (5, 0),
        created_at=1.0,
        deadline=2.0,
        columns=columns,
        stretches=stretches,
        state=BatchState.BACKOFF,
    )
    assert child.columns is columns
    assert child.stretches is stretches
    assert child.state is BatchState.BACKOFF


@in_virtual_time
async def test_repr_shows_partition_order_state_and_length() -> None:
    batch = batch_in()
    _ = send(batch)
    assert repr(batch) == "<Batch orders-3 (5,) OPEN records=1 sequence=None>"


def seen(batch: Batch) -> dict[str, Any]:
    """Return the whole state of *batch*, including its persistence."""
    fields = {name: getattr(batch, name) for name in Batch.__slots__}
    return fields | {name: getattr(batch.persistence, name) for name in Persistence.__annotations__}


class TestEvents:
    @for_each(("state", "event"), TRANSITIONS)
    def test_allowed_event_moves_the_batch_as_in_the_table(
        self, state: BatchState, event: BatchEvent
    ) -> None:
        batch = batch_in(state)
        HAPPEN[event](batch)
        assert batch.state is TRANSITIONS[state, event]

    @for_each(
        ("state", "event"),
        [pair for pair in product(BatchState, BatchEvent) if pair not in {*TRANSITIONS, SEALED_AGAIN}],
    )
    def test_forbidden_event_raises_and_changes_nothing(self, state: BatchState, event: BatchEvent) -> None:
        batch = batch_in(state)
        batch.assign_sequence(STAMP, 7)
        before = seen(batch)
        with pytest.raises(AssertionError, match=f"is {state.name} cannot {event.name}"):
            HAPPEN[event](batch)
        assert seen(batch) == before

    def test_seal_may_be_repeated_and_makes_the_batch_ready(self) -> None:
        batch = batch_in()
        batch.seal()
        assert batch.ready
        before = seen(batch)
        batch.seal()
        assert seen(batch) == before

    def test_drain_counts_an_attempt(self) -> None:
        batch = batch_in(BatchState.BACKOFF)
        assert batch.attempts == 1
        batch.drain()
        assert batch.attempts == 2

    def test_retry_is_counted_with_its_time_and_sequence(self) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        batch.assign_sequence(STAMP, 7)
        batch.retry(5.0)
        assert (batch.retries, batch.retry_at, batch.sequence, batch.numbered_before) == (1, 5.0, STAMP, 7)

    @pytest.mark.parametrize("state", [BatchState.IN_FLIGHT, BatchState.BACKOFF])
    def test_renumbered_batch_has_no_sequence(self, state: BatchState) -> None:
        batch = batch_in(state)
        batch.assign_sequence(STAMP, 7)
        batch.renumber()
        assert batch.sequence is None

    def test_given_back_batch_counts_no_retry(self) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        batch.assign_sequence(STAMP, 7)
        batch.give_back()
        assert (batch.state, batch.retries, batch.sequence) == (BatchState.BACKOFF, 0, STAMP)

    @in_virtual_time
    async def test_split_batch_has_successors_and_no_waiters(self) -> None:
        batch, _, _ = mixed()
        parts = batch_in(), batch_in()
        batch.seal()
        batch.drain()
        batch.split(parts)
        assert batch.successors == parts
        assert batch.stretches == []
        assert batch.kind is batch.plain_kind is batch.last is None

    @pytest.mark.parametrize("state", BatchState)
    @in_virtual_time
    async def test_abandoned_batch_has_failed_in_any_state(self, state: BatchState) -> None:
        batch = batch_in(state)
        batch.abandon()
        assert (batch.state, batch.successors) == (BatchState.FAILED, ())


class TestPersistenceAndErrors:
    @for_each(
        ("notes", "possibly", "last_error"),
        [
            ([], False, None),
            ([written], True, None),
            ([written, not_written], False, None),
            ([written, answered], False, None),
            ([written, lambda batch: batch.refused(REFUSED, was_next=True)], False, REFUSED),
            ([written, lambda batch: batch.refused(LEFT_OPEN, was_next=True)], True, LEFT_OPEN),
            ([written, lambda batch: batch.connection_lost(LOST, reached_socket=True)], True, LOST),
            ([written, lambda batch: batch.connection_lost(LOST, reached_socket=False)], False, LOST),
            ([written, answered, answer_not_understood], True, None),
            ([written, answered, answer_not_understood, ruled_out], False, None),
        ],
    )
    def test_attempt_records_persistence_and_last_error(
        self, notes: list[Note], possibly: bool, last_error: ProducerError | None
    ) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        for note in notes:
            note(batch)
        assert batch.possibly_persisted is possibly
        assert batch.last_error is last_error

    @pytest.mark.parametrize("oldest", [True, False])
    def test_denial_removes_doubt_only_for_the_oldest_batch(self, *, oldest: bool) -> None:
        """`possibly_persisted` stays true, because a leader may have forgotten the batch."""
        batch = batch_in(BatchState.IN_FLIGHT)
        written(batch)
        lose(batch)
        for _ in range(REFUSALS_AS_PROOF):
            batch.refused(OutOfOrderSequenceNumber("no"), was_next=oldest)
        assert batch.persistence.in_doubt is not oldest
        assert batch.possibly_persisted

    def test_denial_before_the_newest_was_asked_leaves_doubt(self) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        written(batch)
        lose(batch)
        for _ in range(REFUSALS_AS_PROOF):
            batch.refused(OutOfOrderSequenceNumber("no"), was_next=True, newest=False)
        assert batch.persistence.in_doubt

    def test_ready_batch_stays_open(self) -> None:
        batch = batch_in()
        assert not batch.ready
        batch.mark_ready()
        assert batch.ready
        assert batch.state is BatchState.OPEN

    def test_encoded_bytes_are_kept_until_release(self) -> None:
        batch, encoded = batch_in(BatchState.IN_FLIGHT), bytearray(b"bytes")
        batch.assign_sequence(STAMP, 0)
        batch.keep_encoded(encoded)
        batch.renumber()
        assert (batch.encoded, batch.encoded_sequence) == (encoded, STAMP)
        batch.release()
        assert batch.encoded is None

    @in_virtual_time
    async def test_released_batch_has_no_waiters(self) -> None:
        batch, _, _ = mixed()
        batch.release()
        assert batch.stretches == []
        assert batch.kind is batch.plain_kind is batch.last is None

    @pytest.mark.parametrize(("rate", "sent"), [(1.0, 61), (0.5, 30), (2.0, 122)])
    def test_bytes_to_send_are_estimated_until_the_batch_is_encoded(self, rate: float, sent: int) -> None:
        batch = Batch(batch_in().topic_partition, (5,), 1.0, 121.0, 0, rate)
        assert (batch.size, batch.bytes_to_send()) == (61, sent)
        batch.keep_encoded(bytearray(7))
        assert batch.bytes_to_send() == 7

    def test_backoff_is_counted_and_can_only_be_shortened(self) -> None:
        batch = batch_in(BatchState.SEALED)
        batch.back_off(5.0)
        batch.back_off(6.0)
        assert (batch.retries, batch.retry_at) == (2, 6.0)
        batch.retry_by(7.0)
        assert batch.retry_at == 6.0
        batch.retry_by(4.0)
        assert (batch.retries, batch.retry_at) == (2, 4.0)

    def test_deadline_can_only_move_earlier(self) -> None:
        batch = batch_in()
        batch.expire_by(130.0)
        assert batch.deadline == 121.0
        batch.expire_by(60.0)
        assert batch.deadline == 60.0

    def test_postponed_batch_has_a_later_deadline(self) -> None:
        batch = batch_in()
        batch.postpone(130.0)
        assert batch.deadline == 130.0


class TestParts:
    @in_virtual_time
    async def test_part_has_its_records_and_the_place_of_its_batch(self) -> None:
        batch, futures, _ = mixed()
        part = batch.part([0, 5], 1, BatchState.SEALED)
        assert (part.order, part.state, part.ready) == ((5, 1), BatchState.SEALED, True)
        assert (part.topic_partition, part.created_at, part.deadline) == (batch.topic_partition, 1.0, 121.0)
        assert part.columns.values == [b"zero", b"five"]
        assert part.size == BATCH_OVERHEAD + sum(
            record_size_bound(value, None, ()) for value in (b"zero", b"five")
        )
        part.resolve(40, -1)
        assert [futures[0].result().offset, futures[2].result().offset] == [40, 41]
        assert not futures[1].done()

    @in_virtual_time
    async def test_keys_and_headers_count_in_its_size(self) -> None:
        batch, _, _ = mixed()
        assert batch.part([1, 2], 0, BatchState.SEALED).size == BATCH_OVERHEAD + sum(
            (record_size_bound(b"one", b"key", ()), record_size_bound(b"many", None, HEADERS))
        )

    def test_part_inherits_the_history_of_its_batch(self) -> None:
        batch = batch_in(BatchState.BACKOFF)
        batch.assign_sequence(STAMP, 7)
        batch.drain()
        batch.refused(REFUSED, was_next=True)
        part = batch.part([], 0, BatchState.BACKOFF, sequence=STAMP)
        assert (part.attempts, part.retries, part.last_error) == (2, 1, REFUSED)
        assert (part.sequence, part.numbered_before) == (STAMP, 7)
        assert part.retry_at == 0.0
        assert (part.encoded, part.encoded_sequence) == (None, None)

    @for_each(
        ("sequence", "doubted", "possibly", "half"),
        [
            (None, False, False, False),
            (None, True, True, False),
            (STAMP, False, False, False),
            (STAMP, True, True, True),
        ],
    )
    def test_part_is_half_of_a_possibly_persisted_batch(
        self, sequence: BatchSequence | None, doubted: bool, possibly: bool, half: bool
    ) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        written(batch)
        if doubted:
            lose(batch)
        answered(batch)
        part = batch.part([], 0, BatchState.BACKOFF, sequence=sequence)
        assert part.possibly_persisted is possibly
        assert part.persistence.half_of_possibly_persisted is half


class TestWaitingForTheOutcome:
    @pytest.mark.parametrize("state", [BatchState.DELIVERED, BatchState.FAILED, BatchState.EXPIRED_IN_FLIGHT])
    @in_virtual_time
    async def test_wait_resolved_returns_for_a_resolved_batch(self, state: BatchState) -> None:
        await batch_in(state).wait_resolved()  # waiting for ever would be a Deadlock in virtual time

    @pytest.mark.parametrize("outcome", [BatchEvent.ACKNOWLEDGE, BatchEvent.FAIL, BatchEvent.EXPIRE])
    @in_virtual_time
    async def test_wait_resolved_returns_only_with_the_outcome(self, outcome: BatchEvent) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        waiting = [asyncio.create_task(batch.wait_resolved()) for _ in range(2)]
        await asyncio.sleep(0)
        batch.retry(5.0)
        batch.drain()
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        HAPPEN[outcome](batch)
        await asyncio.gather(*waiting)

    @in_virtual_time
    async def test_answer_to_an_abandoned_batch_adds_no_second_outcome(self) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        waiting = asyncio.create_task(batch.wait_resolved())
        await asyncio.sleep(0)
        batch.expire()
        batch.acknowledge()
        await waiting

    @in_virtual_time
    async def test_split_batch_is_resolved_once_its_successors_are(self) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        first, second = batch_in(BatchState.IN_FLIGHT), batch_in(BatchState.IN_FLIGHT)
        waiting = asyncio.create_task(batch.wait_resolved())
        await asyncio.sleep(0)
        batch.split((first, second))
        second.fail()
        done, _ = await asyncio.wait([waiting], timeout=1)
        assert not done
        first.acknowledge()
        await waiting

    @in_virtual_time
    async def test_cancelled_waiter_does_not_stop_the_others(self) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        impatient, patient = (asyncio.create_task(batch.wait_resolved()) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait([impatient])
        assert impatient.cancelled()
        batch.acknowledge()
        await patient
