from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.idempotence import BatchSequence
from aioproducer.errors import DeliveryTimeout, InvalidRecord, ProducerClosed, TransactionAborted
from aioproducer.testing.virtual_time import in_virtual_time
from tests.cases import for_each
from tests.unit._core.batching.completion_rig import (
    BUMPED,
    LATE,
    SPOILT,
    errors,
    next_sequence,
    nothing_is_left,
    offsets,
)
from tests.unit.floor_rig import FIRST, NODE, TOPIC, FloorRig, doubt, lose


@in_virtual_time
async def test_delivered_records_get_offsets_and_release_memory() -> None:
    rig = FloorRig()
    batch, futures = rig.sent(b"a", b"b")
    rig.completion.complete(batch, 40)
    assert offsets(futures) == [40, 41]
    assert [future.result().timestamp_ms for future in futures] == [1_000, 1_000]
    assert batch.state is BatchState.DELIVERED
    assert rig.witness.delivered_batches == [(batch, 40, -1)]
    assert rig.queue().sequences.acknowledged_here
    assert nothing_is_left(rig)


@in_virtual_time
async def test_log_append_time_is_passed_to_records_and_witness() -> None:
    rig = FloorRig()
    batch, [future] = rig.sent()
    rig.completion.complete(batch, 0, 5_000)
    assert future.result().timestamp_ms == 5_000
    assert future.result().log_append_time
    assert rig.witness.delivered_batches == [(batch, 0, 5_000)]


@in_virtual_time
async def test_completion_has_a_time_by_default_now() -> None:
    rig = FloorRig()
    batch, _ = rig.sent()
    await asyncio.sleep(2.0)
    rig.completion.complete(batch, 0, now=1.5)
    batch, _ = rig.sent()
    rig.completion.complete(batch, 1)
    assert rig.witness.delivered_at == [1.5, 2.0]


@in_virtual_time
async def test_completion_acknowledges_no_sequence_without_idempotence() -> None:
    rig = FloorRig(idempotent=False)
    batch, futures = rig.sent()
    rig.completion.complete(batch, 3)
    assert offsets(futures) == [3]
    assert not rig.queue().sequences.acknowledged_here


@in_virtual_time
async def test_completion_of_a_lone_batch_forgets_older_offsets() -> None:
    rig = FloorRig()
    for base_offset in range(5):
        batch, _ = rig.sent()
        rig.completion.complete(batch, base_offset)
    assert len(rig.queue().sequences._acknowledged) == 1


@for_each("backs_off", [False, True])
@for_each(("base_offset", "proved"), [(11, False), (12, True)])
@in_virtual_time
async def test_uncertain_batch_is_proved_by_a_later_offset(
    base_offset: int, proved: bool, backs_off: bool
) -> None:
    rig = FloorRig()
    first, _ = rig.sent()
    rig.completion.complete(first, 10)
    second, _ = rig.sent()
    third, _ = rig.sent()
    lose(second)
    if backs_off:
        rig.completion.reenqueue(second, 1.0)
    rig.completion.complete(third, base_offset)
    assert rig.queue().is_confirmed(second) is proved


@in_virtual_time
async def test_completion_offers_the_partition_again() -> None:
    rig = FloorRig()
    first, _ = rig.sent(b"first")
    second = rig.fill(b"second")
    assert rig.drain() == []  # the leader has not recognised the producer yet
    rig.completion.complete(first, 0)
    assert rig.drain() == [second]


@in_virtual_time
async def test_failed_records_get_an_error_each_and_bump_the_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = FloorRig()
    batch, futures = rig.sent(b"a", b"b")
    rig.completion.fail(batch, SPOILT)
    assert errors(futures) == [InvalidRecord, InvalidRecord]
    assert futures[0].exception() is not futures[1].exception()
    assert batch.state is BatchState.FAILED
    assert rig.witness.failures == [(batch, 2, SPOILT)]
    assert nothing_is_left(rig)
    assert caplog.messages == [
        'batch.failed partition=orders-0 records=2 attempts=1 possibly_persisted=False error="InvalidRecord: spoilt"'
    ]
    assert next_sequence(rig) == BUMPED


@in_virtual_time
async def test_aborted_batch_is_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer.batching")
    rig = FloorRig()
    for failure in (Failure(TransactionAborted, "aborted"), SPOILT):
        batch, _ = rig.sent(b"a")
        rig.completion.fail(batch, failure)
    assert [each.levelname for each in caplog.records if each.msg.startswith("batch.failed")] == [
        "DEBUG",
        "WARNING",
    ]


@pytest.mark.parametrize("expired", [False, True])
@in_virtual_time
async def test_batch_of_expired_calls_closes_without_a_warning(
    expired: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer.batching")
    rig = FloorRig()
    batch, [future] = rig.sent()
    if expired:
        rig.completion.expire_waiters(batch, partial(rig.receipts.expire, future), range(1), LATE)
    rig.completion.fail(batch, Failure(ProducerClosed, "closed"))
    [record] = [each for each in caplog.records if each.msg.startswith("batch.failed")]
    assert record.levelname == ("DEBUG" if expired else "WARNING")


@in_virtual_time
async def test_failures_are_logged_once_per_topic_and_error(caplog: pytest.LogCaptureFixture) -> None:
    rig = FloorRig()
    rig.learn("payments", NODE)
    for topic, failure in ((TOPIC, SPOILT), (TOPIC, LATE), ("payments", SPOILT), (TOPIC, SPOILT)):
        queue = rig.accumulator.topics[topic][0]
        assert rig.accumulator.append(
            rig.accumulator.topics[topic], queue, b"v", None, (), 1, 15, rig.receipts
        )
        assert queue.open is not None
        rig.completion.fail(queue.open, failure)
    shown = [each.getMessage().split(" records=")[0] for each in caplog.records]
    assert shown == ["batch.failed partition=orders-0"] * 2 + ["batch.failed partition=payments-0"]


@in_virtual_time
async def test_batch_that_fails_before_it_was_sent_keeps_the_sequence() -> None:
    rig = FloorRig()
    future = rig.append()
    [batch] = rig.accumulator.unresolved
    rig.completion.fail(batch, SPOILT)
    assert errors([future]) == [InvalidRecord]
    assert rig.queue().open is None
    assert nothing_is_left(rig)
    assert next_sequence(rig) == BatchSequence(FIRST, 0)


@in_virtual_time
async def test_expired_batch_holds_memory_and_sequence_until_answered() -> None:
    rig = FloorRig()
    batch, futures = rig.sent()
    wakes = rig.wakes
    rig.completion.expire_in_flight(batch, LATE)
    assert rig.wakes == wakes + 1  # a finishing sender may wait only for this wakeup
    assert errors(futures) == [DeliveryTimeout]
    assert rig.witness.failures == [(batch, 1, LATE)]
    assert rig.accumulator.idle
    assert rig.accumulator.unfinished == 1
    assert rig.accumulator.memory.used == batch.size
    assert rig.queue().in_flight == (batch,)


@in_virtual_time
async def test_expired_batch_delivered_late_reports_nothing_more() -> None:
    rig = FloorRig()
    batch, _ = rig.sent()
    rig.completion.expire_in_flight(batch, LATE)
    rig.completion.complete(batch, 0)
    assert rig.witness.delivered_batches == []
    assert rig.queue().sequences.acknowledged_here
    assert nothing_is_left(rig)
    assert next_sequence(rig) == BatchSequence(FIRST, 1)


@in_virtual_time
async def test_expired_batch_that_fails_late_bumps_the_epoch() -> None:
    rig = FloorRig()
    batch, _ = rig.sent()
    rig.completion.expire_in_flight(batch, LATE)
    rig.completion.fail(batch, SPOILT)
    assert rig.witness.failures == [(batch, 1, LATE)]
    assert nothing_is_left(rig)
    assert next_sequence(rig) == BUMPED


@in_virtual_time
async def test_retried_batch_is_sent_at_its_time_with_its_sequence() -> None:
    rig = FloorRig()
    batch, [future] = rig.sent()
    rig.completion.reenqueue(batch, 0.1)
    assert rig.witness.retried_batches == [batch]
    assert batch.state is BatchState.BACKOFF
    assert rig.drain() == []
    assert rig.accumulator.schedule.next_due() == 0.1
    await asyncio.sleep(0.1)
    rig.accumulator.schedule.collect(rig.loop.time(), hurry=False)
    assert rig.drain() == [batch]
    assert batch.sequence == BatchSequence(FIRST, 0)
    assert not future.done()


@in_virtual_time
async def test_returned_batch_keeps_its_sequence_and_counts_no_retry() -> None:
    rig = FloorRig()
    rig.recognise(1)
    first, [future] = rig.sent(b"first")
    second, _ = rig.sent(b"second")
    for each in (second, first):
        rig.completion.give_back(each)
    assert rig.witness.retried_batches == []
    assert (first.state, first.retries) == (BatchState.BACKOFF, 0)
    assert rig.drain() == [first]
    assert first.sequence == BatchSequence(FIRST, 0)
    assert rig.drain() == []  # until everything is in order again
    rig.completion.complete(first, 0)
    assert future.result().offset == 0
    assert rig.drain() == [second]
    assert second.sequence == BatchSequence(FIRST, 1)


@in_virtual_time
async def test_returned_batch_gets_a_new_sequence_behind_a_gap() -> None:
    rig = FloorRig()
    rig.recognise(1)
    lost_for_good, _ = rig.sent(b"first")
    behind, _ = rig.sent(b"second")
    rig.completion.fail(lost_for_good, SPOILT)
    rig.completion.give_back(behind)
    assert (behind.state, behind.sequence) == (BatchState.SEALED, None)
    assert rig.drain() == [behind]
    assert behind.sequence == BUMPED


@in_virtual_time
async def test_renumbered_batch_is_sent_with_a_new_epoch_before_later() -> None:
    rig = FloorRig()
    batch, [future] = rig.sent()
    behind = rig.fill(b"behind")
    rig.completion.renumber(batch, 0.1)
    assert rig.witness.retried_batches == [batch]
    assert batch.state is BatchState.SEALED
    assert batch.sequence is None
    assert list(rig.queue().batches) == [batch, behind]
    assert rig.drain() == []
    await asyncio.sleep(0.1)
    rig.accumulator.schedule.collect(rig.loop.time(), hurry=False)
    assert rig.drain() == [batch]
    assert batch.sequence == BUMPED
    assert not future.done()


@in_virtual_time
async def test_failed_uncertain_batch_keeps_uncertain_sequences() -> None:
    rig = FloorRig()
    rig.recognise(1)
    batch, _ = rig.sent(b"first")
    uncertain, _ = rig.sent(b"uncertain")
    absent, _ = rig.sent(b"absent")
    late, _ = rig.sent(b"late")
    doubt(batch)
    lose(uncertain)
    for each in (absent, late):
        each.persistence.answered()
    for each in (absent, uncertain):
        rig.completion.reenqueue(each, 0.1)
    rig.completion.fail(batch, SPOILT)
    assert (absent.state, absent.sequence) == (BatchState.SEALED, None)
    assert (uncertain.state, uncertain.sequence) == (BatchState.BACKOFF, BatchSequence(FIRST, 1))
    rig.completion.reenqueue(late, 0.1)
    assert (late.state, late.sequence) == (BatchState.SEALED, None)
    assert list(rig.queue().batches) == [absent, late]


@in_virtual_time
async def test_given_up_sequence_rules_out_every_batch_behind_it() -> None:
    """Otherwise later batches would wait for a sequence that is never sent again."""
    rig = FloorRig()
    rig.recognise(1)
    given_up, _ = rig.sent(b"given up")
    uncertain, _ = rig.sent(b"uncertain")
    refused, _ = rig.sent(b"refused")
    lose(uncertain)
    for each in (given_up, refused):
        each.persistence.answered()
    for each in (given_up, uncertain):
        rig.completion.reenqueue(each, 0.1)
    rig.completion.renumber(refused, 0.1)
    assert list(rig.queue().batches) == [given_up, uncertain, refused]
    assert {each.sequence for each in rig.queue().batches} == {None}
    assert not uncertain.possibly_persisted


@in_virtual_time
async def test_batch_behind_a_missing_batch_is_not_in_the_log() -> None:
    rig = FloorRig()
    rig.recognise(1)
    before, _ = rig.sent(b"before")
    gap, _ = rig.sent(b"gap")
    behind, _ = rig.sent(b"behind")
    lose(before, behind)
    for each in (before, behind):
        rig.completion.reenqueue(each, 0.1)
    gap.persistence.answered()
    rig.completion.renumber(gap, 0.1)
    assert before.sequence == BatchSequence(FIRST, 0)
    assert (behind.state, behind.sequence, behind.possibly_persisted) == (BatchState.SEALED, None, False)
    assert list(rig.queue().batches) == [gap, behind]


@in_virtual_time
async def test_fail_everything_reports_whether_a_record_was_persisted() -> None:
    rig = FloorRig(partitions=2)
    written, sent = rig.sent(b"a", b"b")
    queued = [rig.append(partition=1)]
    assert rig.completion.fail_everything(Failure(ProducerClosed, "over")) == 3
    assert errors(sent + queued) == [ProducerClosed] * 3
    assert [failure.possibly_persisted for _, _, failure in rig.witness.failures] == [True, False]
    assert written.state is BatchState.EXPIRED_IN_FLIGHT
    assert rig.accumulator.idle
    assert rig.completion.fail_everything(Failure(ProducerClosed, "over")) == 0


class TestOnFailure:
    """A transaction receives each failure first and returns the failure to report."""

    @staticmethod
    def rig(heard: list[Failure]) -> FloorRig:
        def on_failure(failure: Failure) -> Failure:
            heard.append(failure)
            return failure._replace(abortable=True)

        rig = FloorRig()
        rig.completion = BatchCompletion(rig.accumulator, observer=rig.witness, on_failure=on_failure)
        return rig

    async def test_transaction_is_notified_of_a_failed_batch(self) -> None:
        heard = list[Failure]()
        rig = self.rig(heard)
        batch, [future] = rig.sent()
        refused = SPOILT._replace(of_record=True)
        rig.completion.fail(batch, refused)
        assert heard == [refused]
        error = future.exception()
        assert isinstance(error, InvalidRecord)
        assert error.abortable
        assert [failure.abortable for _, _, failure in rig.witness.failures] == [True]

    async def test_transaction_is_notified_once_of_a_batch_that_expires(self) -> None:
        heard = list[Failure]()
        rig = self.rig(heard)
        batch, _ = rig.sent()
        rig.completion.expire_in_flight(batch, LATE)
        rig.completion.fail(batch, SPOILT)
        assert heard == [LATE]

    @pytest.mark.parametrize("out", [False, True])
    async def test_transaction_is_notified_of_a_call_at_its_deadline(self, out: bool) -> None:
        heard = list[Failure]()
        rig = self.rig(heard)
        if out:
            batch, [future] = rig.sent()
        else:
            future = rig.append()
            [batch] = rig.accumulator.unresolved
        fail = partial(rig.receipts.expire, future)
        rig.completion.expire_waiters(batch, fail, range(1), LATE._replace(possibly_persisted=False))
        error = future.exception()
        assert isinstance(error, DeliveryTimeout)
        assert (error.abortable, error.possibly_persisted) == (True, out)
        assert heard == [LATE._replace(possibly_persisted=False)]
        if out:
            rig.completion.complete(batch, 0)
