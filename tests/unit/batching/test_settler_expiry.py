from __future__ import annotations

import pytest

from aioproducer.batching.batch import Batch, RecordFuture
from aioproducer.batching.bulk import SendManyCall
from aioproducer.batching.failure import Failure
from aioproducer.batching.rows import Rows
from aioproducer.batching.state import BatchState
from aioproducer.errors import DeliveryTimeout, ProducerError
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit.batching.settler_bench import (
    BUMPED,
    LATE,
    SPOILT,
    errors,
    next_stamp,
    nothing_is_left,
    offsets,
)
from tests.unit.workbench import TOPIC, Workbench


def bulk(bench: Workbench, count: int) -> SendManyCall:
    call = SendManyCall(TOPIC, count, bench.loop)
    rows = Rows(TOPIC, range(count), [b"value"] * count, None, None, 1_000, None, [19] * count)
    assert bench.accumulator.extend(bench.accumulator.topics[TOPIC], bench.queue(), rows, call) == count
    return call


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
    batch.not_written()
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
async def test_a_partition_whose_only_batch_expired_is_not_ready_any_more() -> None:
    """Else a leader that is away would be dialled for nothing, and a topic that is gone kept for good."""
    bench = Workbench()
    batch = bench.fill()
    bench.accumulator.seal(batch, bench.loop.time())
    assert bench.accumulator.schedule.nodes() == [1]
    bench.settler.give_up(batch, LATE)
    assert bench.accumulator.schedule.nodes() == []
