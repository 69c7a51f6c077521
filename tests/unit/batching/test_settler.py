from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from aioproducer.batching.batch import Batch, RecordFuture
from aioproducer.batching.failure import Failure
from aioproducer.batching.rows import Rows
from aioproducer.batching.runs import SendManyCall
from aioproducer.batching.state import BatchState
from aioproducer.errors import DeliveryTimeout, InvalidRecord, ProducerClosed, ProducerError
from aioproducer.idempotence.identity import ProducerIdentity
from aioproducer.idempotence.sequences import Stamp
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit.workbench import NODE, TOPIC, Workbench

FIRST = ProducerIdentity(7, 0)
BUMPED = Stamp(ProducerIdentity(7, 1), 0)
"""What comes after a gap in the sequences of `FIRST`."""
LATE = Failure(DeliveryTimeout, "too late", possibly_persisted=True)
SPOILT = Failure(InvalidRecord, "spoilt")


def offsets(futures: Iterable[RecordFuture]) -> list[int]:
    return [future.result().offset for future in futures]


def errors(futures: Iterable[RecordFuture]) -> list[type[BaseException | None]]:
    return [type(future.exception()) for future in futures]


def nothing_is_left(bench: Workbench) -> bool:
    accumulator = bench.accumulator
    return (
        accumulator.memory.used == 0
        and accumulator.unfinished == 0
        and accumulator.idle
        and accumulator.deadlines.next_due() is None
        and bench.queue().idle
    )


def next_stamp(bench: Workbench) -> Stamp | None:
    """Return what the next batch of the partition is stamped with."""
    batch, _ = bench.sent()
    return batch.stamp


def bulk(bench: Workbench, count: int) -> SendManyCall:
    call = SendManyCall(TOPIC, count, bench.loop)
    rows = Rows(TOPIC, range(count), [b"value"] * count, None, None, 1_000, None, [19] * count)
    assert bench.accumulator.extend(bench.accumulator.topics[TOPIC], bench.queue(), rows, call) == count
    return call


@in_virtual_time
async def test_delivered_records_learn_their_offsets_and_give_everything_back() -> None:
    bench = Workbench()
    batch, futures = bench.sent(b"a", b"b")
    wakes = bench.wakes
    bench.settler.deliver(batch, 40)
    assert bench.wakes == wakes  # there is nothing to do
    assert offsets(futures) == [40, 41]
    assert [future.result().timestamp_ms for future in futures] == [1_000, 1_000]
    assert batch.state is BatchState.DELIVERED
    assert bench.witness.delivered_batches == [(batch, 40, -1)]
    assert bench.queue().sequences.recognised
    assert nothing_is_left(bench)


@in_virtual_time
async def test_the_time_of_the_log_is_passed_on() -> None:
    bench = Workbench()
    batch, [future] = bench.sent()
    bench.settler.deliver(batch, 0, 5_000)
    assert future.result().timestamp_ms == 5_000
    assert future.result().log_append_time
    assert bench.witness.delivered_batches == [(batch, 0, 5_000)]


@in_virtual_time
async def test_without_idempotence_there_is_no_sequence_to_acknowledge() -> None:
    bench = Workbench(idempotent=False)
    batch, futures = bench.sent()
    bench.settler.deliver(batch, 3)
    assert offsets(futures) == [3]
    assert not bench.queue().sequences.recognised


@in_virtual_time
async def test_an_outcome_offers_the_partition_again() -> None:
    bench = Workbench()
    first, _ = bench.sent(b"first")
    second = bench.fill(b"second")
    assert bench.drain() == []  # the leader has not recognised the producer yet
    bench.settler.deliver(first, 0)
    assert bench.drain() == [second]


@pytest.mark.parametrize("why", ["more is ready", "somebody flushes", "the end is near"])
@in_virtual_time
async def test_an_outcome_wakes_the_sender_if_there_is_something_to_do(why: str) -> None:
    bench = Workbench(partitions=2)
    batch, _ = bench.sent(b"first")
    if why == "more is ready":
        bench.accumulator.seal(bench.fill(b"second", partition=1), 0.0)
    elif why == "somebody flushes":
        bench.accumulator.flushing = 1
    else:
        bench.accumulator.finishing = True
    wakes = bench.wakes
    bench.settler.deliver(batch, 0)
    assert bench.wakes == wakes + 1


@in_virtual_time
async def test_failed_records_get_an_error_each_and_the_sequence_is_broken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Workbench()
    batch, futures = bench.sent(b"a", b"b")
    bench.settler.fail(batch, SPOILT)
    assert errors(futures) == [InvalidRecord, InvalidRecord]
    assert futures[0].exception() is not futures[1].exception()
    assert batch.state is BatchState.FAILED
    assert bench.witness.failures == [(batch, 2, SPOILT)]
    assert nothing_is_left(bench)
    assert "batch.failed partition=orders-0 records=2 attempts=1 possibly_persisted=False" in caplog.text
    assert next_stamp(bench) == BUMPED


@in_virtual_time
async def test_a_batch_that_fails_before_it_was_sent_breaks_no_sequence() -> None:
    bench = Workbench()
    future = bench.append()
    [batch] = bench.accumulator.unresolved
    bench.settler.fail(batch, SPOILT)
    assert errors([future]) == [InvalidRecord]
    assert bench.queue().open is None
    assert nothing_is_left(bench)
    assert next_stamp(bench) == Stamp(FIRST, 0)


@in_virtual_time
async def test_abandoned_records_fail_but_hold_memory_and_sequence_until_the_answer() -> None:
    bench = Workbench()
    batch, futures = bench.sent()
    wakes = bench.wakes
    bench.settler.abandon(batch, LATE)
    assert bench.wakes == wakes + 1  # a sender that is to end may wait for nothing else
    assert errors(futures) == [DeliveryTimeout]
    assert bench.witness.failures == [(batch, 1, LATE)]
    assert bench.accumulator.idle
    assert bench.accumulator.unfinished == 1
    assert bench.accumulator.memory.used == batch.size
    assert bench.queue().in_flight == [batch]


@in_virtual_time
async def test_an_abandoned_batch_that_arrived_after_all_is_told_nobody_and_the_sequence_goes_on() -> None:
    bench = Workbench()
    batch, _ = bench.sent()
    bench.settler.abandon(batch, LATE)
    bench.settler.deliver(batch, 0)
    assert bench.witness.delivered_batches == []
    assert bench.queue().sequences.recognised
    assert nothing_is_left(bench)
    assert next_stamp(bench) == Stamp(FIRST, 1)


@in_virtual_time
async def test_an_abandoned_batch_that_fails_is_told_nobody_twice_and_breaks_the_sequence() -> None:
    bench = Workbench()
    batch, _ = bench.sent()
    bench.settler.abandon(batch, LATE)
    bench.settler.fail(batch, SPOILT)
    assert bench.witness.failures == [(batch, 1, LATE)]
    assert nothing_is_left(bench)
    assert next_stamp(bench) == BUMPED


@in_virtual_time
async def test_a_retried_batch_goes_again_at_its_time_under_its_stamp() -> None:
    bench = Workbench()
    batch, [future] = bench.sent()
    bench.settler.retry(batch, 0.1)
    assert batch.state is BatchState.BACKOFF
    assert bench.drain() == []
    assert bench.accumulator.schedule.next_due() == 0.1
    await asyncio.sleep(0.1)
    bench.accumulator.schedule.collect(bench.loop.time(), hurry=False)
    assert bench.drain() == [batch]
    assert batch.stamp == Stamp(FIRST, 0)
    assert not future.done()


@in_virtual_time
async def test_a_restamped_batch_goes_again_under_a_new_identity_before_what_is_behind_it() -> None:
    bench = Workbench()
    batch, [future] = bench.sent()
    behind = bench.fill(b"behind")
    bench.settler.restamp(batch, 0.1)
    assert batch.state is BatchState.SEALED
    assert batch.stamp is None
    assert list(bench.queue().batches) == [batch, behind]
    assert bench.drain() == []
    await asyncio.sleep(0.1)
    bench.accumulator.schedule.collect(bench.loop.time(), hurry=False)
    assert bench.drain() == [batch]
    assert batch.stamp == BUMPED
    assert not future.done()


@in_virtual_time
async def test_if_one_may_be_in_the_log_and_fails_what_may_be_behind_it_keeps_its_sequence() -> None:
    bench = Workbench()
    bench.recognise(1)
    batch, _ = bench.sent(b"first")
    absent, _ = bench.sent(b"absent")
    uncertain, _ = bench.sent(b"uncertain")
    late, _ = bench.sent(b"late")
    batch.uncertain = uncertain.uncertain = True
    for each in (absent, uncertain, late):
        each.unanswered = False
    for each in (absent, uncertain):
        bench.settler.retry(each, 0.1)
    bench.settler.fail(batch, SPOILT)
    assert (absent.state, absent.stamp) == (BatchState.SEALED, None)
    assert (uncertain.state, uncertain.stamp) == (BatchState.BACKOFF, Stamp(FIRST, 2))
    bench.settler.retry(late, 0.1)
    assert (late.state, late.stamp) == (BatchState.SEALED, None)
    assert list(bench.queue().batches) == [absent, late]


@in_virtual_time
async def test_behind_one_that_is_surely_not_in_the_log_nothing_is() -> None:
    bench = Workbench()
    bench.recognise(1)
    before, _ = bench.sent(b"before")
    hole, _ = bench.sent(b"hole")
    behind, _ = bench.sent(b"behind")
    for each in (before, behind):
        each.uncertain, each.unanswered = True, False
        bench.settler.retry(each, 0.1)
    hole.unanswered = False
    bench.settler.restamp(hole, 0.1)
    assert before.stamp == Stamp(FIRST, 0)
    assert (behind.state, behind.stamp, behind.possibly_persisted) == (BatchState.SEALED, None, False)
    assert list(bench.queue().batches) == [hole, behind]


@in_virtual_time
async def test_behind_a_gap_the_halves_of_a_split_batch_get_new_sequences() -> None:
    bench = Workbench()
    bench.recognise(1)
    batch, _ = bench.sent(b"first")
    large, _ = bench.sent(b"a", b"b")
    bench.settler.fail(batch, SPOILT)
    bench.settler.split(large)
    assert list(bench.queue().batches) == list(large.successors)
    assert [part.stamp for part in large.successors] == [None, None]
    assert bench.drain() == [large.successors[0]]
    assert large.successors[0].stamp == BUMPED


@in_virtual_time
async def test_a_split_batch_goes_in_two_halves_that_share_its_sequences() -> None:
    bench = Workbench()
    bench.recognise(1)
    batch, futures = bench.sent(b"a", b"b", b"c", b"d")
    batch.uncertain = True
    batch.last_error = SPOILT.error()
    bench.settler.split(batch)
    assert batch.state is BatchState.SPLIT
    left, right = batch.successors
    assert [part.columns.values for part in (left, right)] == [[b"a", b"b"], [b"c", b"d"]]
    assert [part.stamp for part in (left, right)] == [Stamp(FIRST, 0), Stamp(FIRST, 2)]
    assert [part.order for part in (left, right)] == [(1, 0), (1, 1)]
    assert {part.stamped_before for part in (left, right)} == {batch.stamped_before}
    for part in (left, right):
        assert part.deadline == batch.deadline
        assert (part.attempts, part.uncertain, part.last_error) == (1, True, batch.last_error)
    assert list(bench.accumulator.unresolved) == [left, right]
    assert bench.accumulator.memory.used == left.size + right.size == batch.size + 61
    assert bench.accumulator.topics[TOPIC].batch_bytes == left.size
    for part, base in ((left, 10), (right, 12)):
        assert bench.drain() == [part]
        bench.settler.deliver(part, base)
    assert offsets(futures) == [10, 11, 12, 13]
    assert nothing_is_left(bench)
    assert next_stamp(bench) == Stamp(FIRST, 4)


@in_virtual_time
async def test_halves_follow_each_other_as_any_batches_do_until_the_leader_knows_the_producer() -> None:
    """It would take the second half also if the first one had failed."""
    bench = Workbench()
    batch, _ = bench.sent(b"a", b"b", b"c", b"d")
    bench.settler.split(batch)
    left, right = batch.successors
    assert [part.stamp for part in (left, right)] == [None, None]
    assert bench.drain() == [left]
    assert left.stamp == Stamp(FIRST, 0)
    assert bench.drain() == []
    bench.settler.deliver(left, 10)
    assert bench.drain() == [right]
    assert right.stamp == Stamp(FIRST, 2)


@in_virtual_time
async def test_halves_keep_their_sequences_if_something_behind_them_has_its_own() -> None:
    bench = Workbench()
    bench.recognise(1)
    batch, _ = bench.sent(b"a", b"b")
    bench.sent(b"c")
    bench.learn(TOPIC, NODE + 1)  # who knows nothing of us yet
    bench.settler.split(batch)
    assert [part.stamp for part in batch.successors] == [Stamp(FIRST, 0), Stamp(FIRST, 1)]


@pytest.mark.parametrize(
    ("lengths", "left"), [([1_000, 1, 1], 1), ([1, 1, 1_000], 2), ([100, 100, 100, 100, 400], 3)]
)
@in_virtual_time
async def test_halves_are_of_bytes_and_never_empty(lengths: list[int], left: int) -> None:
    bench = Workbench()
    batch, _ = bench.sent(*(bytes(length) for length in lengths))
    bench.settler.split(batch)
    assert [len(part) for part in batch.successors] == [left, len(lengths) - left]


@in_virtual_time
async def test_without_idempotence_the_halves_have_no_stamps() -> None:
    bench = Workbench(idempotent=False)
    batch, _ = bench.sent(b"a", b"b")
    bench.settler.split(batch)
    assert [part.stamp for part in batch.successors] == [None, None]
    assert bench.drain() == [batch.successors[0]]
    assert bench.queue().retrying == [batch.successors[1]]


@in_virtual_time
async def test_of_refused_records_the_others_go_again_under_new_sequences() -> None:
    bench = Workbench()
    batch, futures = bench.sent(b"a", b"bad", b"c", b"worse")
    bench.settler.reject_records(batch, {3: LATE, 1: SPOILT})
    assert bench.witness.failures == [(batch, 1, SPOILT), (batch, 1, LATE)]
    assert errors([futures[1], futures[3]]) == [InvalidRecord, DeliveryTimeout]
    assert batch.state is BatchState.SPLIT
    [rest] = batch.successors
    assert rest.columns.values == [b"a", b"c"]
    assert bench.accumulator.memory.used == rest.size
    assert bench.drain() == [rest]
    assert rest.stamp == BUMPED
    bench.settler.deliver(rest, 5)
    assert offsets([futures[0], futures[2]]) == [5, 6]
    assert nothing_is_left(bench)


@in_virtual_time
async def test_of_refused_records_the_others_wait_for_what_is_in_flight_beside_them() -> None:
    bench = Workbench()
    bench.recognise(1)
    batch, _ = bench.sent(b"a", b"bad")
    beside, _ = bench.sent(b"beside")
    bench.settler.reject_records(batch, {1: SPOILT})
    assert bench.drain() == []
    bench.settler.deliver(beside, 5)
    assert bench.drain() == list(batch.successors)


@in_virtual_time
async def test_without_idempotence_the_others_go_before_anything_new() -> None:
    bench = Workbench(idempotent=False)
    batch, _ = bench.sent(b"bad", b"b")
    _ = bench.fill(b"new")
    bench.settler.reject_records(batch, {0: SPOILT})
    [rest] = batch.successors
    assert rest.state is BatchState.BACKOFF
    assert bench.drain() == [rest]


@in_virtual_time
async def test_what_is_past_its_deadline_fails_wherever_it_is() -> None:
    bench = Workbench(partitions=2, delivery_timeout_s=1.0)
    sent, [out] = bench.sent(b"sent")
    waiting = bench.append(partition=1)
    [_, queued] = bench.accumulator.unresolved
    bench.settler.expire(0.9, lambda _: SPOILT)
    assert not out.done()
    asked: list[Batch] = []

    def failure_of(batch: Batch) -> Failure:
        asked.append(batch)
        return LATE

    bench.settler.expire(1.0, failure_of)
    assert asked == [sent, queued]
    assert errors([out, waiting]) == [DeliveryTimeout, DeliveryTimeout]
    assert [sent.state, queued.state] == [BatchState.ABANDONED, BatchState.FAILED]


@in_virtual_time
async def test_a_batch_that_expires_before_it_is_written_leaves_its_sequence_behind() -> None:
    bench = Workbench()
    batch, _ = bench.sent()
    batch.unanswered = False
    bench.settler.give_up(batch, LATE)
    assert batch.state is BatchState.FAILED
    assert nothing_is_left(bench)
    assert next_stamp(bench) == BUMPED


@in_virtual_time
async def test_a_waiter_that_expires_before_the_first_drain_takes_its_record_along() -> None:
    bench = Workbench()
    impatient, patient = bench.append(b"impatient"), bench.append(b"patient")
    [batch] = bench.accumulator.unresolved
    bench.settler.expire_waiter(batch, impatient, LATE)
    assert errors([impatient]) == [DeliveryTimeout]
    assert bench.witness.failures == [(batch, 1, LATE)]
    assert batch.columns.values == [b"patient"]
    assert bench.accumulator.memory.used == batch.size == 61 + 14 + 7
    later = bench.append(b"later")
    [drained] = bench.drain()
    bench.settler.deliver(drained, 8)
    assert offsets([patient, later]) == [8, 9]


@in_virtual_time
async def test_a_batch_of_which_the_last_record_expires_ends_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Workbench()
    call = bulk(bench, 3)
    [batch] = bench.accumulator.unresolved
    bench.settler.expire_waiter(batch, call, LATE)
    await call.wait()
    assert len(call.result.failures) == 3
    assert batch.state is BatchState.FAILED
    assert bench.witness.failures == [(batch, 3, LATE)]
    assert not caplog.records
    assert nothing_is_left(bench)


@in_virtual_time
async def test_a_waiter_that_expires_after_the_drain_leaves_its_record_in_the_batch() -> None:
    bench = Workbench()
    certain = Failure(DeliveryTimeout, "too late")
    batch, [impatient, patient] = bench.sent(b"impatient", b"patient")
    bench.settler.expire_waiter(batch, impatient, certain)
    error = impatient.exception()
    assert isinstance(error, ProducerError)
    assert error.possibly_persisted
    assert bench.witness.failures == []
    bench.settler.deliver(batch, 8)
    assert offsets([patient]) == [9]
    assert bench.witness.delivered_batches == [(batch, 8, -1)]


@in_virtual_time
async def test_a_waiter_is_found_where_its_record_went() -> None:
    bench = Workbench()
    batch, futures = bench.sent(b"a", b"b", b"c", b"d")
    bench.settler.split(batch)
    bench.settler.expire_waiter(batch, futures[3], LATE)
    assert errors([futures[3]]) == [DeliveryTimeout]
    assert not any(future.done() for future in futures[:3])


@in_virtual_time
async def test_a_waiter_of_another_batch_expires_without_harm() -> None:
    bench = Workbench()
    future = bench.append()
    [batch] = bench.accumulator.unresolved
    stranger: RecordFuture = bench.loop.create_future()
    bench.settler.expire_waiter(batch, stranger, LATE)
    assert len(batch) == 1
    assert not future.done()
    assert not stranger.done()


@in_virtual_time
async def test_a_waiter_that_has_its_outcome_does_not_expire() -> None:
    bench = Workbench()
    batch, [future] = bench.sent()
    bench.settler.deliver(batch, 1)
    bench.settler.expire_waiter(batch, future, LATE)
    assert offsets([future]) == [1]
    assert bench.witness.failures == []


@in_virtual_time
async def test_everything_fails_and_each_error_says_whether_its_record_may_be_in_the_log() -> None:
    bench = Workbench(partitions=2)
    written, sent = bench.sent(b"a", b"b")
    queued = [bench.append(partition=1)]
    assert bench.settler.fail_everything(Failure(ProducerClosed, "over")) == 3
    assert errors(sent + queued) == [ProducerClosed] * 3
    assert [failure.possibly_persisted for _, _, failure in bench.witness.failures] == [True, False]
    assert written.state is BatchState.ABANDONED
    assert bench.accumulator.idle
    assert bench.settler.fail_everything(Failure(ProducerClosed, "over")) == 0


@in_virtual_time
async def test_a_partition_whose_only_batch_expired_is_not_ready_any_more() -> None:
    """Else a leader that is away would be dialled for nothing, and a topic that is gone kept for good."""
    bench = Workbench()
    batch = bench.fill()
    bench.accumulator.seal(batch, bench.loop.time())
    assert bench.accumulator.schedule.nodes() == [1]
    bench.settler.give_up(batch, LATE)
    assert bench.accumulator.schedule.nodes() == []
