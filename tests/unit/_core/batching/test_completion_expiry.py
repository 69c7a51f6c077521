from __future__ import annotations

import asyncio
from functools import partial
from math import inf

import pytest

from aioproducer._core.batching.batch import Batch, RecordFuture
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.topic import AGREE_S
from aioproducer._core.batching.waiters import Failure
from aioproducer.errors import DeliveryTimeout, ProducerError, UnknownTopicOrPartition
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.completion_rig import (
    BUMPED,
    LATE,
    SPOILT,
    errors,
    next_sequence,
    nothing_is_left,
    offsets,
)
from tests.unit.floor_rig import NODE, TOPIC, FloorRig


def bulk(rig: FloorRig, count: int) -> SendManyCall:
    call = SendManyCall(TOPIC, count, rig.loop)
    rows = Rows(TOPIC, range(count), [b"value"] * count, None, None, 1_000, None, [19] * count)
    assert rig.accumulator.extend(rig.accumulator.topics[TOPIC], rig.queue(), rows, call) == count
    return call


def give_up(rig: FloorRig, batch: Batch, future: RecordFuture, failure: Failure) -> None:
    """Let the call of *future* reach its own deadline."""
    [index] = batch.indices_of(future) or [0]
    rig.completion.expire_waiters(
        batch, partial(rig.receipts.expire, future), range(index, index + 1), failure
    )


@in_virtual_time
async def test_expire_fails_sent_and_queued_batches_at_their_deadline() -> None:
    rig = FloorRig(partitions=2, delivery_timeout_s=1.0)
    sent, [out] = rig.sent(b"sent")
    waiting = rig.append(partition=1)
    [_, queued] = rig.accumulator.unresolved
    assert rig.completion.expire(0.9, lambda _: SPOILT) == pytest.approx(1.0), "the next is due then"
    assert not out.done()
    asked: list[Batch] = []

    def failure_of(batch: Batch) -> Failure:
        asked.append(batch)
        return LATE

    assert rig.completion.expire(1.0, failure_of) == inf, "there is nothing more to expire"
    assert asked == [sent, queued]
    assert errors([out, waiting]) == [DeliveryTimeout, DeliveryTimeout]
    assert [sent.state, queued.state] == [BatchState.EXPIRED_IN_FLIGHT, BatchState.FAILED]


@in_virtual_time
async def test_batch_may_outlive_its_deadline_while_it_has_a_leader() -> None:
    rig = FloorRig(partitions=2, delivery_timeout_s=1.0, outlives_deadline_if_led=True)
    sent, [out] = rig.sent(b"sent")
    waiting = rig.append(partition=1)
    for now in (1.0, 2.0):
        assert rig.completion.expire(now, lambda _: SPOILT) == pytest.approx(now + 1.0)
        assert sent.deadline == now + 1.0
    rig.accumulator.update_topic(TOPIC, [NODE])
    rig.completion.expire(2.9, lambda _: SPOILT)
    assert not waiting.done()
    rig.completion.expire(3.0, lambda _: LATE)
    assert errors([waiting]) == [DeliveryTimeout]
    assert not out.done()
    rig.completion.complete(sent, 0)
    assert offsets([out]) == [0]
    assert nothing_is_left(rig)


@in_virtual_time
async def test_batch_that_expires_before_it_is_written_bumps_the_epoch() -> None:
    rig = FloorRig()
    batch, _ = rig.sent()
    batch.persistence.not_written()
    rig.completion.fail_or_expire(batch, LATE)
    assert batch.state is BatchState.FAILED
    assert nothing_is_left(rig)
    assert next_sequence(rig) == BUMPED


@in_virtual_time
async def test_waiter_that_expires_before_the_drain_removes_its_record() -> None:
    rig = FloorRig()
    impatient, patient = rig.append(b"impatient"), rig.append(b"patient")
    [batch] = rig.accumulator.unresolved
    give_up(rig, batch, impatient, LATE)
    assert errors([impatient]) == [DeliveryTimeout]
    assert rig.witness.failures == [(batch, 1, LATE)]
    assert len(batch) == 1
    assert rig.accumulator.memory.used == batch.size == 61 + 14 + 7
    later = rig.append(b"later")
    [drained] = rig.drain()
    assert drained.columns.values == [b"patient", b"later"]
    assert drained.withdrawn is None
    rig.completion.complete(drained, 8)
    assert offsets([patient, later]) == [8, 9]


@in_virtual_time
async def test_batch_whose_last_record_expires_ends_without_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = FloorRig()
    call = bulk(rig, 3)
    [batch] = rig.accumulator.unresolved
    [waiters] = call.live
    rig.completion.expire_waiters(
        batch, waiters.fail, range(waiters.start, waiters.start + len(waiters)), LATE
    )
    await call.wait()
    assert len(call.result.failures) == 3
    assert batch.state is BatchState.FAILED
    assert rig.witness.failures == [(batch, 3, LATE)]
    assert not caplog.records
    assert nothing_is_left(rig)


@in_virtual_time
async def test_waiter_that_expires_after_the_drain_leaves_its_record() -> None:
    rig = FloorRig()
    certain = Failure(DeliveryTimeout, "too late")
    batch, [impatient, patient] = rig.sent(b"impatient", b"patient")
    give_up(rig, batch, impatient, certain)
    error = impatient.exception()
    assert isinstance(error, ProducerError)
    assert error.possibly_persisted
    assert rig.witness.failures == []
    rig.completion.complete(batch, 8)
    assert offsets([patient]) == [9]
    assert rig.witness.delivered_batches == [(batch, 8, -1)]


@in_virtual_time
async def test_waiter_is_found_in_the_parts_of_a_split_batch() -> None:
    rig = FloorRig()
    batch, futures = rig.sent(b"a", b"b", b"c", b"d")
    rig.completion.split(batch)
    give_up(rig, batch, futures[3], LATE)
    assert errors([futures[3]]) == [DeliveryTimeout]
    assert not any(future.done() for future in futures[:3])


@in_virtual_time
async def test_waiter_with_an_outcome_does_not_expire() -> None:
    rig = FloorRig()
    batch, [future] = rig.sent()
    rig.completion.complete(batch, 1)
    give_up(rig, batch, future, LATE)
    assert offsets([future]) == [1]
    assert rig.witness.failures == []


@in_virtual_time
async def test_waiter_of_a_failed_batch_does_not_expire() -> None:
    rig = FloorRig()
    future = rig.append()
    [batch] = rig.accumulator.unresolved
    rig.completion.fail(batch, SPOILT)
    give_up(rig, batch, future, LATE)
    assert errors([future]) == [SPOILT.kind]
    assert [count for _, count, _ in rig.witness.failures] == [1]


@in_virtual_time
async def test_withdrawn_records_fail_once_when_their_batch_fails() -> None:
    rig = FloorRig()
    impatient, patient = rig.append(b"impatient"), rig.append(b"patient")
    [batch] = rig.accumulator.unresolved
    give_up(rig, batch, impatient, LATE)
    rig.completion.fail(batch, SPOILT)
    assert [count for _, count, _ in rig.witness.failures] == [1, 1]
    assert errors([impatient, patient]) == [DeliveryTimeout, SPOILT.kind]
    assert nothing_is_left(rig)


@pytest.mark.parametrize("drained", [False, True])
@in_virtual_time
async def test_calls_of_a_batch_may_expire_in_any_order(drained: bool) -> None:
    rig = FloorRig()
    futures = [rig.append(b"%d" % number) for number in range(20)]
    [batch] = rig.accumulator.unresolved
    if drained:
        assert rig.drain() == [batch]

    def expire(index: int) -> None:
        fail = partial(rig.receipts.expire, futures[index])
        rig.completion.expire_waiters(batch, fail, range(index, index + 1), LATE)

    for index in (3, 19, 0, 7):
        expire(index)
    assert sum(future.done() for future in futures) == 4
    assert len(batch) == (20 if drained else 16)
    for index, future in enumerate(futures):
        if not future.done():
            assert not batch.all_waiters_expired
            expire(index)
    if drained:
        assert batch.all_waiters_expired
        rig.completion.complete(batch, 0)
    assert nothing_is_left(rig)
    assert set(errors(futures)) == {DeliveryTimeout}


@in_virtual_time
async def test_cancelled_waiter_does_not_count_as_expired() -> None:
    rig = FloorRig()
    batch, [future] = rig.sent()
    future.cancel()
    assert not batch.all_waiters_expired
    rig.completion.complete(batch, 0)


@in_virtual_time
async def test_partition_whose_only_batch_expired_is_not_ready() -> None:
    """Otherwise the sender would dial an unavailable leader and keep a deleted topic forever."""
    rig = FloorRig()
    batch = rig.fill()
    rig.accumulator.seal(batch, rig.loop.time())
    assert list(rig.accumulator.schedule.waiting) == [1]
    rig.completion.fail_or_expire(batch, LATE)
    assert list(rig.accumulator.schedule.waiting) == []


class TestMissing:
    """Partitions that the topic does not have any more."""

    def shrink(self, rig: FloorRig, topic_id: bytes = b"2" * 16) -> None:
        rig.accumulator.update_topic(TOPIC, [NODE], topic_id)

    async def confirm(self, rig: FloorRig, topics: tuple[str, ...] = (TOPIC,)) -> None:
        for _ in range(2):
            rig.completion.fail_missing(topics, 1, is_only_broker=False)
            await asyncio.sleep(AGREE_S)

    @in_virtual_time
    async def test_records_of_missing_partitions_fail_in_every_state(self) -> None:
        rig = FloorRig(partitions=3)
        rig.accumulator.update_topic(TOPIC, [NODE] * 3, b"1" * 16)
        batch, backing_off = rig.sent(b"a", b"b", partition=2)
        rig.completion.reenqueue(batch, at=60.0)
        kept = rig.append(partition=0)
        gone = rig.append(partition=2)
        assert rig.accumulator.shrunk_topics() == set()
        self.shrink(rig)
        assert rig.accumulator.shrunk_topics() == {TOPIC}
        await self.confirm(rig)
        assert errors([*backing_off, gone]) == [UnknownTopicOrPartition] * 3
        assert [(each.message, each.possibly_persisted) for _, _, each in rig.witness.failures] == [
            ("orders-2: no such partition, 'orders' was recreated with 1 partition, 0", persisted)
            for persisted in (True, False)
        ]
        assert not kept.done()
        assert rig.accumulator.shrunk_topics() == set()
        self.shrink(rig)
        rig.accumulator.update_topic(TOPIC, [NODE] * 3, b"2" * 16)
        assert rig.accumulator.shrunk == set()

    @in_virtual_time
    async def test_answer_about_other_topics_is_no_evidence(self) -> None:
        rig = FloorRig(partitions=3)
        rig.accumulator.update_topic(TOPIC, [NODE] * 3, b"1" * 16)
        waiting = rig.append(partition=2)
        self.shrink(rig)
        await self.confirm(rig, ("other",))
        assert not waiting.done()

    @pytest.mark.parametrize(
        ("node_ids", "is_only_broker", "fails"),
        [((1, 2), False, True), ((1, 1), False, False), ((1, 1), True, True)],
    )
    @in_virtual_time
    async def test_brokers_have_to_agree_without_a_topic_id(
        self, node_ids: tuple[int, int], is_only_broker: bool, fails: bool
    ) -> None:
        rig = FloorRig(partitions=2)
        waiting = rig.append(partition=1)
        rig.accumulator.update_topic(TOPIC, [NODE])
        for node_id in node_ids:
            rig.completion.fail_missing([TOPIC], node_id, is_only_broker=is_only_broker)
            await asyncio.sleep(AGREE_S)
        assert waiting.done() is fails
