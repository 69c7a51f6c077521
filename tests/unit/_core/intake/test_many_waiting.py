from __future__ import annotations

import asyncio
from itertools import groupby

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.intake.many import CHUNK_RECORDS, OrderedCalls
from aioproducer._core.partitioning import CallablePartitioner
from aioproducer._core.records.columns import Records
from aioproducer._core.steps import step_here
from aioproducer.errors import BufferTimeout, DeliveryTimeout, MetadataTimeout, ProducerClosed
from aioproducer.testing import in_virtual_time
from tests.fakes import topic_info
from tests.unit._core.intake.intake_rig import Spy, checked
from tests.unit._core.intake.many_rig import Rig
from tests.unit._core.intake.slow import slow_choice, slow_serializer
from tests.unit.floor_rig import TOPIC, lost, settle

BATCH = 61
"""What a batch takes besides its records."""


class TestMemory:
    @in_virtual_time
    async def test_records_are_sent_in_chunks_that_fit(self) -> None:
        rig = Rig(buffer_bytes=1_000, batch_bytes=400)
        result = await rig.delivered(rig.send([b"x" * 86] * 100))
        assert result.delivered == 100
        assert [result.offset(i) for i in range(100)] == list(range(100))
        assert rig.accumulator.memory.used == 0

    @in_virtual_time
    async def test_records_are_queued_only_up_to_buffer_memory(self) -> None:
        rig = Rig(buffer_bytes=1_000)
        sending = rig.send([b"x" * 86] * 100)
        await settle()
        assert rig.queued == (1_000 - BATCH) // 100
        assert rig.accumulator.arriving == 100 - rig.queued
        await rig.delivered(sending)

    @in_virtual_time
    async def test_wait_for_memory_has_its_own_max_block_each_time(self) -> None:
        rig = Rig(buffer_bytes=1_000, max_block_s=10.0)
        sending = rig.send([b"x" * 86] * 50)
        while not sending.done():
            await asyncio.sleep(9)
            rig.acknowledge()
            await settle()
        assert rig.loop.time() > 20
        assert sending.result().delivered == 50

    @in_virtual_time
    async def test_records_without_memory_fail_and_queued_ones_are_sent(self) -> None:
        spy = Spy()
        rig = Rig(buffer_bytes=1_000, max_block_s=5.0, interceptors=[spy])
        sending = rig.send([b"x" * 86] * 20)
        await asyncio.sleep(6)
        queued = rig.queued
        result = await rig.delivered(sending)
        assert result.delivered == queued
        assert list(result.failures) == list(range(queued, 20))
        assert isinstance(result.failures[19], BufferTimeout)
        assert result.failures[19] is not result.failures[18]
        assert len(spy.errors) == 20 - queued


class TestTurns:
    """Other calls get the lock after each chunk and after each wait for memory."""

    @in_virtual_time
    async def test_event_loop_runs_between_large_chunks(self) -> None:
        rig = Rig(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = rig.send([b"v"] * (CHUNK_RECORDS * 2 + 1))
        await asyncio.sleep(0)
        assert rig.queued == CHUNK_RECORDS
        assert rig.accumulator.arriving == CHUNK_RECORDS + 1
        await asyncio.sleep(0)
        assert rig.queued == CHUNK_RECORDS * 2
        assert (await rig.delivered(sending)).delivered == CHUNK_RECORDS * 2 + 1
        assert rig.accumulator.arriving == 0

    @in_virtual_time
    async def test_enqueue_may_append_between_chunks(self) -> None:
        rig = Rig(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = rig.send([b"v"] * (CHUNK_RECORDS + 1))
        await asyncio.sleep(0)
        rig.put(b"between")
        await settle()
        assert rig.queued_values(0)[CHUNK_RECORDS:] == [b"between", b"v"]
        await rig.delivered(sending)

    @in_virtual_time
    async def test_chunks_of_two_calls_alternate(self) -> None:
        rig = Rig(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = [rig.send([value] * (CHUNK_RECORDS + 1)) for value in (b"a", b"b")]
        await settle()
        values = [value for value in rig.queued_values(0) if value is not None]
        assert [name for name, _ in groupby(values)] == [b"a", b"b", b"a", b"b"]
        for each in sending:
            await rig.delivered(each)

    @in_virtual_time
    async def test_ordered_calls_append_no_chunk_in_between(self) -> None:
        rig, ordered = Rig(buffer_bytes=1_000), OrderedCalls()
        sending = [rig.send([value * 86] * 20, ordered=ordered) for value in (b"a", b"b")]
        await settle()
        alone = rig.send([b"c" * 86])
        [first, second] = [await rig.delivered(each) for each in sending]
        assert first.offset(19) < second.offset(0)
        assert alone.result().offset(0) < first.offset(19)

    @in_virtual_time
    async def test_ordered_call_fails_when_it_waits_too_long(self) -> None:
        rig, ordered = Rig(buffer_bytes=1_000, max_block_s=5.0), OrderedCalls()
        rig.use_up_memory()
        sending = [rig.send([b"v"] * 2, ordered=ordered, timeout_s=timeout_s) for timeout_s in (None, 3.0)]
        await settle()
        assert (len(rig.accumulator.pending_calls), rig.accumulator.arriving) == (2, 4)
        result = await sending[1]
        assert rig.loop.time() == 3
        assert [type(error) for error in result.failures.values()] == [BufferTimeout] * 2
        assert (len(rig.accumulator.pending_calls), rig.accumulator.arriving) == (1, 2)
        assert len((await sending[0]).failures) == 2

    @in_virtual_time
    async def test_call_behind_send_many_waits_for_memory_once(self) -> None:
        rig = Rig(buffer_bytes=1_000)
        sending = rig.send([b"x" * 86] * 100)
        await settle()
        alone = asyncio.create_task(
            rig.intake.append_when_possible(rig.intake.check(TOPIC, b"x" * 86, None, None, (), None), 0, None)
        )
        many = rig.send([b"later"])
        while not (alone.done() and many.done()):
            rig.acknowledge()
            await settle()
        assert alone.result().result().offset == 2 * ((1_000 - BATCH) // 100)
        assert many.result().offset(0) == alone.result().result().offset + 1
        result = await rig.delivered(sending)
        assert result.delivered == 100
        offsets = [result.offset(position) for position in range(100)]
        assert offsets == sorted(offsets)

    @in_virtual_time
    async def test_slow_serializer_does_not_block_the_loop_for_long(self) -> None:
        rig = Rig(value_serializer=slow_serializer)
        sending = rig.send(["v"] * 1_000)
        gaps: list[float] = []
        while rig.queued < 1_000:
            began_at = rig.loop.time()
            await asyncio.sleep(0)
            gaps.append(rig.loop.time() - began_at)
            rig.put("between")
        assert max(gaps) < 0.005
        assert (await rig.delivered(sending)).delivered == 1_000

    @in_virtual_time
    async def test_topic_deleted_between_chunks_loses_no_records(self) -> None:
        rig = Rig(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = rig.send([b"v"] * (CHUNK_RECORDS * 2))
        await asyncio.sleep(0)
        [batch] = rig.drain()
        rig.completion.complete(batch, 0)
        queues = rig.accumulator.topics[TOPIC]
        rig.accumulator.update_topic(TOPIC, ())
        assert rig.accumulator.topics[TOPIC] is queues
        await settle()
        result = await rig.delivered(sending)
        assert result.delivered == CHUNK_RECORDS * 2


class TestMetadata:
    @in_virtual_time
    async def test_call_waits_for_an_unknown_topic(self) -> None:
        rig = Rig(partitions=0)
        sending = rig.send([b"a"])
        await settle()
        rig.updater.asked[0][2].set_result(topic_info(TOPIC, 1))
        assert (await rig.delivered(sending)).delivered == 1

    @in_virtual_time
    async def test_records_without_metadata_fail_unseen_by_interceptors(self) -> None:
        spy = Spy()
        rig = Rig(partitions=0, max_block_s=2.0, interceptors=[spy])
        ahead = asyncio.create_task(
            rig.intake.append_when_possible(rig.intake.check(TOPIC, b"v", None, None, (), None), 0, None)
        )
        await settle()
        result = await rig.send([b"a", b"b"])
        assert all(isinstance(error, MetadataTimeout) for error in result.failures.values())
        assert len(result.failures) == 2
        await asyncio.wait([ahead])
        assert isinstance(ahead.exception(), TimeoutError)
        assert [record.value for record in spy.seen] == [b"v"]


class TestNewPartition:
    @in_virtual_time
    async def test_wait_for_a_new_partition_does_not_block_the_topic(self) -> None:
        rig = Rig(partitions=1)
        sending = [
            rig.send([b"a", b"b"], partition=1),
            rig.send([b"0", b"c"], partitions=[0, 1]),
            rig.send([b"d"], partition=1),
        ]
        await settle()
        assert rig.queued == 0
        rig.put(b"known")
        rig.learn(TOPIC, 1, 1)
        for _, _, answered in rig.updater.asked:
            answered.set_result(topic_info(TOPIC, 1, 1))
        await settle()
        assert rig.queued_values(0) == [b"known", b"0"]
        assert rig.queued_values(1) == [b"a", b"b", b"c", b"d"]
        for each in sending:
            await rig.delivered(each)

    @in_virtual_time
    async def test_missing_partition_appends_nothing(self) -> None:
        rig = Rig(partitions=1)
        sending = rig.send([b"v"] * (CHUNK_RECORDS + 1), partitions=[0] * CHUNK_RECORDS + [7])
        await settle()
        assert (len(rig.accumulator.pending_calls), rig.accumulator.arriving) == (1, CHUNK_RECORDS + 1)
        rig.updater.asked[0][2].set_result(topic_info(TOPIC, 1))
        with pytest.raises(ValueError, match=rf"partitions\[{CHUNK_RECORDS}\]=7: 'orders' has 1 partition"):
            await sending
        assert rig.queued == 0
        assert (len(rig.accumulator.pending_calls), rig.accumulator.arriving) == (0, 0)


class TestTimeout:
    @in_virtual_time
    async def test_timeout_removes_records_that_were_never_sent(self) -> None:
        rig = Rig()
        result = await rig.send([b"a", b"b"], timeout_s=2.0)
        assert rig.loop.time() == 2
        assert rig.queued == 0
        for error in result.failures.values():
            assert isinstance(error, DeliveryTimeout)
            assert not error.possibly_persisted

    @in_virtual_time
    async def test_timeout_error_names_the_reason_of_each_partition(self) -> None:
        rig = Rig(partitions=2)
        rig.unreachable = lost()
        result = await rig.send([b"a", b"b"], partitions=[0, 1], timeout_s=2.0)
        for partition, error in result.failures.items():
            assert str(error).startswith(f"orders-{partition}: delivery timed out: timeout_s=2 due_at=2: ")
            assert str(error).endswith("b1:9092 (node 1): lost")
            assert error.__cause__ is rig.unreachable

    @in_virtual_time
    async def test_timeout_marks_sent_records_as_possibly_persisted(self) -> None:
        rig = Rig()
        sending = rig.send([b"a", b"b"], timeout_s=2.0)
        await settle()
        [batch] = rig.drain()
        result = await sending
        assert [error.possibly_persisted for error in result.failures.values()] == [True, True]
        rig.completion.complete(batch, 0)
        assert result.delivered == 0, "it is too late for that"

    @in_virtual_time
    async def test_timeout_keeps_delivered_records(self) -> None:
        rig = Rig(partitions=2)
        sending = rig.send([b"a", b"b"], partitions=[0, 1], timeout_s=2.0)
        await settle()
        first, _ = rig.drain()
        rig.completion.complete(first, 7)
        result = await sending
        assert result.delivered == 1
        assert len(result.failures) == 1

    @in_virtual_time
    async def test_timeout_fails_records_that_wait_for_memory(self) -> None:
        rig = Rig(buffer_bytes=1_000)
        result = await rig.send([b"x" * 86] * 20, timeout_s=2.0)
        assert len(result.failures) == 20
        assert rig.loop.time() == 2
        assert not any(error.possibly_persisted for error in result.failures.values())

    @in_virtual_time
    async def test_timeout_of_zero_appends_nothing(self) -> None:
        rig = Rig(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = rig.send([b"v"] * (CHUNK_RECORDS * 3), timeout_s=0.0)
        result = await sending
        assert len(result.failures) == CHUNK_RECORDS * 3
        assert rig.queued == 0
        assert isinstance(result.failures[CHUNK_RECORDS * 3 - 1], DeliveryTimeout)

    @in_virtual_time
    async def test_close_by_an_interceptor_ends_a_timeout(self) -> None:
        rig, closed = Rig(partitions=2), Failure(ProducerClosed, "closed")
        sending = rig.send([b"a", b"b"], partitions=[0, 1], timeout_s=2.0)
        await settle()
        failed = rig.witness.failed

        def close(batch: Batch, records: Records, failure: Failure) -> None:
            failed(batch, records, failure)
            step_here().call(rig.completion.fail_everything, closed)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rig.witness, "failed", close)
            result = await sending
        assert [type(error) for error in result.failures.values()] == [DeliveryTimeout, ProducerClosed]
        assert [failure.kind for _, _, failure in rig.witness.failures] == [DeliveryTimeout, ProducerClosed]

    @in_virtual_time
    async def test_outcome_before_the_timeout_cancels_the_timer(self) -> None:
        rig = Rig()
        result = await rig.delivered(rig.send([b"a"], timeout_s=2.0))
        await asyncio.sleep(3)
        assert result.failures == {}


class TestEnd:
    @in_virtual_time
    async def test_cancelled_call_leaves_its_records_in_the_queue(self) -> None:
        rig = Rig()
        sending = rig.send([b"a"])
        await settle()
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        [batch] = rig.acknowledge()
        assert len(batch) == 1

    @in_virtual_time
    async def test_call_cancelled_in_a_wait_for_memory_appends_no_more(self) -> None:
        rig = Rig(buffer_bytes=1_000, linger_s=1_000.0)
        sending = rig.send([b"x" * 86] * 20)
        await settle()
        queued = rig.queued
        sending.cancel()
        await asyncio.wait([sending])
        [batch] = rig.acknowledge()
        assert len(batch) == queued, "it went without lingering"
        await settle()
        assert rig.queued == 0
        assert rig.accumulator.arriving == 0

    @in_virtual_time
    async def test_call_cancelled_between_chunks_appends_no_more(self) -> None:
        spy = Spy()
        rig = Rig(
            partitions=2,
            partitioner=CallablePartitioner(slow_choice),
            interceptors=[spy],
            linger_s=1_000.0,
        )
        sending = rig.send([b"v"] * (CHUNK_RECORDS + 1))
        await asyncio.sleep(0)
        queued, seen = rig.queued, len(spy.seen)
        assert 0 < queued < seen == CHUNK_RECORDS
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        assert len(spy.errors) == seen - queued
        assert (len(rig.accumulator.pending_calls), rig.accumulator.arriving) == (0, 0)
        assert [len(batch) for batch in rig.acknowledge()] == [queued], "it went without lingering"

    @in_virtual_time
    async def test_interrupted_seal_recounts_the_memory(self) -> None:
        rig = Rig(buffer_bytes=1_000)

        def interrupt(batch: Batch, now: float) -> None:
            rig.use_up_memory()
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rig.accumulator, "seal", interrupt)
            with pytest.raises(KeyboardInterrupt):
                await rig.many.send(checked([b"a"]), None)
        [batch] = rig.accumulator.unresolved
        assert rig.accumulator.memory.used == batch.held
        assert not rig.accumulator.pending_calls

    @in_virtual_time
    async def test_close_between_chunks_fails_the_call(self) -> None:
        rig = Rig(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = rig.send([b"v"] * (CHUNK_RECORDS * 2))
        await asyncio.sleep(0)
        closed = Failure(ProducerClosed, "closed")
        arriving = rig.accumulator.arriving
        rig.accumulator.close(closed)
        assert arriving + rig.completion.fail_everything(closed) == CHUNK_RECORDS * 2
        result = await sending
        assert len(result.failures) == CHUNK_RECORDS * 2
        assert all(isinstance(error, ProducerClosed) for error in result.failures.values())
        assert rig.queued == 0
