from __future__ import annotations

import asyncio
from itertools import groupby

import pytest

from aioproducer.batching.failure import Failure
from aioproducer.errors import BufferTimeout, DeliveryTimeout, MetadataTimeout, ProducerClosed
from aioproducer.intake.convoy import Convoy
from aioproducer.intake.many import CHUNK_RECORDS
from aioproducer.partitioning.partitioner import CallablePartitioner
from aioproducer.testing import in_virtual_time
from tests.unit.intake.intake_bench import Spy
from tests.unit.intake.many_bench import Bench
from tests.unit.intake.slow import slow_choice, slow_serializer
from tests.unit.workbench import TOPIC, lost, settle, topic_info

BATCH = 61
"""What a batch takes besides its records."""


class TestMemory:
    @in_virtual_time
    async def test_records_go_in_chunks_that_fit(self) -> None:
        bench = Bench(buffer_bytes=1_000, batch_bytes=400)
        result = await bench.delivered(bench.send([b"x" * 86] * 100))
        assert result.delivered == 100
        assert [result.offset(i) for i in range(100)] == list(range(100))
        assert bench.accumulator.memory.used == 0

    @in_virtual_time
    async def test_no_more_is_queued_than_there_is_memory(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        sending = bench.send([b"x" * 86] * 100)
        await settle()
        assert bench.queued == (1_000 - BATCH) // 100
        assert bench.accumulator.arriving == 100 - bench.queued
        await bench.delivered(sending)

    @in_virtual_time
    async def test_each_wait_has_its_own_max_block(self) -> None:
        bench = Bench(buffer_bytes=1_000, max_block_s=10.0)
        sending = bench.send([b"x" * 86] * 50)
        while not sending.done():
            await asyncio.sleep(9)
            bench.acknowledge()
            await settle()
        assert bench.loop.time() > 20
        assert sending.result().delivered == 50

    @in_virtual_time
    async def test_what_finds_no_room_in_time_fails_and_the_rest_of_it_goes(self) -> None:
        spy = Spy()
        bench = Bench(buffer_bytes=1_000, max_block_s=5.0, interceptors=[spy])
        sending = bench.send([b"x" * 86] * 20)
        await asyncio.sleep(6)
        queued = bench.queued
        result = await bench.delivered(sending)
        assert result.delivered == queued
        assert list(result.failures) == list(range(queued, 20))
        assert isinstance(result.failures[19], BufferTimeout)
        assert result.failures[19] is not result.failures[18]
        assert len(spy.errors) == 20 - queued


class TestTurns:
    """Others have their turn after each chunk, and after each wait for memory."""

    @in_virtual_time
    async def test_the_event_loop_has_its_turn_between_large_chunks(self) -> None:
        bench = Bench(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = bench.send([b"v"] * (CHUNK_RECORDS * 2 + 1))
        await asyncio.sleep(0)
        assert bench.queued == CHUNK_RECORDS
        assert bench.accumulator.arriving == CHUNK_RECORDS + 1
        await asyncio.sleep(0)
        assert bench.queued == CHUNK_RECORDS * 2
        assert (await bench.delivered(sending)).delivered == CHUNK_RECORDS * 2 + 1
        assert bench.accumulator.arriving == 0

    @in_virtual_time
    async def test_what_needs_no_waiting_comes_between_chunks(self) -> None:
        bench = Bench(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = bench.send([b"v"] * (CHUNK_RECORDS + 1))
        await asyncio.sleep(0)
        bench.put(b"between")
        await settle()
        assert bench.queued_values(0)[CHUNK_RECORDS:] == [b"between", b"v"]
        await bench.delivered(sending)

    @in_virtual_time
    async def test_chunks_of_two_calls_alternate(self) -> None:
        bench = Bench(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = [bench.send([value] * (CHUNK_RECORDS + 1)) for value in (b"a", b"b")]
        await settle()
        values = [value for value in bench.queued_values(0) if value is not None]
        assert [name for name, _ in groupby(values)] == [b"a", b"b", b"a", b"b"]
        for each in sending:
            await bench.delivered(each)

    @in_virtual_time
    async def test_those_in_a_convoy_do_not(self) -> None:
        bench, convoy = Bench(buffer_bytes=1_000), Convoy()
        sending = [bench.send([value * 86] * 20, convoy=convoy) for value in (b"a", b"b")]
        await settle()
        alone = bench.send([b"c" * 86])
        [first, second] = [await bench.delivered(each) for each in sending]
        assert first.offset(19) < second.offset(0)
        assert alone.result().offset(0) < first.offset(19)

    @in_virtual_time
    async def test_in_a_convoy_it_may_wait_for_too_long(self) -> None:
        bench, convoy = Bench(buffer_bytes=1_000, max_block_s=5.0), Convoy()
        bench.use_up_memory()
        sending = [bench.send([b"v"] * 2, convoy=convoy, timeout_s=timeout_s) for timeout_s in (None, 3.0)]
        await settle()
        assert (bench.accumulator.callers, bench.accumulator.arriving) == (2, 4)
        result = await sending[1]
        assert bench.loop.time() == 3
        assert [type(error) for error in result.failures.values()] == [BufferTimeout] * 2
        assert (bench.accumulator.callers, bench.accumulator.arriving) == (1, 2)
        assert len((await sending[0]).failures) == 2

    @in_virtual_time
    async def test_who_waits_behind_it_waits_for_memory_once(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        sending = bench.send([b"x" * 86] * 100)
        await settle()
        alone = asyncio.create_task(
            bench.intake.wait(bench.intake.pend(TOPIC, b"x" * 86, None, None, (), None), 0, None)
        )
        many = bench.send([b"later"])
        while not (alone.done() and many.done()):
            bench.acknowledge()
            await settle()
        assert alone.result().result().offset == 2 * ((1_000 - BATCH) // 100)
        assert many.result().offset(0) == alone.result().result().offset + 1
        result = await bench.delivered(sending)
        assert result.delivered == 100
        offsets = [result.offset(position) for position in range(100)]
        assert offsets == sorted(offsets)

    @in_virtual_time
    async def test_slow_code_of_the_user_holds_up_nobody_for_long(self) -> None:
        bench = Bench(value_serializer=slow_serializer)
        sending = bench.send(["v"] * 1_000)
        gaps: list[float] = []
        while bench.queued < 1_000:
            began_at = bench.loop.time()
            await asyncio.sleep(0)
            gaps.append(bench.loop.time() - began_at)
            bench.put("between")
        assert max(gaps) < 0.005
        assert (await bench.delivered(sending)).delivered == 1_000

    @in_virtual_time
    async def test_a_topic_that_goes_away_between_chunks_takes_nothing_along(self) -> None:
        bench = Bench(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = bench.send([b"v"] * (CHUNK_RECORDS * 2))
        await asyncio.sleep(0)
        [batch] = bench.drain()
        bench.settler.deliver(batch, 0)
        queues = bench.accumulator.topics[TOPIC]
        bench.accumulator.update_topic(TOPIC, ())
        assert bench.accumulator.topics[TOPIC] is queues
        await settle()
        result = await bench.delivered(sending)
        assert result.delivered == CHUNK_RECORDS * 2


class TestMetadata:
    @in_virtual_time
    async def test_an_unknown_topic_is_waited_for(self) -> None:
        bench = Bench(partitions=0)
        sending = bench.send([b"a"])
        await settle()
        bench.updater.asked[0][2].set_result(topic_info(TOPIC, 1))
        assert (await bench.delivered(sending)).delivered == 1

    @in_virtual_time
    async def test_what_waited_in_vain_fails_and_interceptors_never_saw_it(self) -> None:
        spy = Spy()
        bench = Bench(partitions=0, max_block_s=2.0, interceptors=[spy])
        ahead = asyncio.create_task(
            bench.intake.wait(bench.intake.pend(TOPIC, b"v", None, None, (), None), 0, None)
        )
        await settle()
        result = await bench.send([b"a", b"b"])
        assert all(isinstance(error, MetadataTimeout) for error in result.failures.values())
        assert len(result.failures) == 2
        await asyncio.wait([ahead])
        assert isinstance(ahead.exception(), TimeoutError)
        assert [record.value for record in spy.seen] == [b"v"]


class TestNewPartition:
    @in_virtual_time
    async def test_it_is_waited_for_and_holds_up_nobody(self) -> None:
        bench = Bench(partitions=1)
        sending = [
            bench.send([b"a", b"b"], partition=1),
            bench.send([b"0", b"c"], partitions=[0, 1]),
            bench.send([b"d"], partition=1),
        ]
        await settle()
        assert bench.queued == 0
        bench.put(b"known")
        bench.learn(TOPIC, 1, 1)
        for _, _, answered in bench.updater.asked:
            answered.set_result(topic_info(TOPIC, 1, 1))
        await settle()
        assert bench.queued_values(0) == [b"known", b"0"]
        assert bench.queued_values(1) == [b"a", b"b", b"c", b"d"]
        for each in sending:
            await bench.delivered(each)

    @in_virtual_time
    async def test_if_it_does_not_exist_nothing_is_appended(self) -> None:
        bench = Bench(partitions=1)
        sending = bench.send([b"v"] * (CHUNK_RECORDS + 1), partitions=[0] * CHUNK_RECORDS + [7])
        await settle()
        assert (bench.accumulator.callers, bench.accumulator.arriving) == (1, CHUNK_RECORDS + 1)
        bench.updater.asked[0][2].set_result(topic_info(TOPIC, 1))
        with pytest.raises(ValueError, match=rf"partitions\[{CHUNK_RECORDS}\]=7: 'orders' has 1 partition"):
            await sending
        assert bench.queued == 0
        assert (bench.accumulator.callers, bench.accumulator.arriving) == (0, 0)


class TestTimeout:
    @in_virtual_time
    async def test_what_was_never_sent_is_taken_out(self) -> None:
        bench = Bench()
        result = await bench.send([b"a", b"b"], timeout_s=2.0)
        assert bench.loop.time() == 2
        assert bench.queued == 0
        for error in result.failures.values():
            assert isinstance(error, DeliveryTimeout)
            assert not error.possibly_persisted

    @in_virtual_time
    async def test_each_error_tells_what_its_partition_waited_for(self) -> None:
        bench = Bench(partitions=2)
        bench.unreachable = lost()
        result = await bench.send([b"a", b"b"], partitions=[0, 1], timeout_s=2.0)
        for partition, error in result.failures.items():
            assert str(error).startswith(
                f"orders-{partition}: not acknowledged within the call's timeout_s=2"
            )
            assert str(error).endswith("b1:9092 (node 1): lost")
            assert error.__cause__ is bench.unreachable

    @in_virtual_time
    async def test_what_was_sent_may_be_in_the_log(self) -> None:
        bench = Bench()
        sending = bench.send([b"a", b"b"], timeout_s=2.0)
        await settle()
        [batch] = bench.drain()
        result = await sending
        assert [error.possibly_persisted for error in result.failures.values()] == [True, True]
        bench.settler.deliver(batch, 0)
        assert result.delivered == 0, "it is too late for that"

    @in_virtual_time
    async def test_what_was_delivered_by_then_stays_so(self) -> None:
        bench = Bench(partitions=2)
        sending = bench.send([b"a", b"b"], partitions=[0, 1], timeout_s=2.0)
        await settle()
        first, _ = bench.drain()
        bench.settler.deliver(first, 7)
        result = await sending
        assert result.delivered == 1
        assert len(result.failures) == 1

    @in_virtual_time
    async def test_what_still_waits_for_memory_fails_too(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        result = await bench.send([b"x" * 86] * 20, timeout_s=2.0)
        assert len(result.failures) == 20
        assert bench.loop.time() == 2
        assert not any(error.possibly_persisted for error in result.failures.values())

    @in_virtual_time
    async def test_nothing_is_appended_after_it(self) -> None:
        bench = Bench(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = bench.send([b"v"] * (CHUNK_RECORDS * 3), timeout_s=0.0)
        result = await sending
        assert len(result.failures) == CHUNK_RECORDS * 3
        assert bench.queued == 0
        assert isinstance(result.failures[CHUNK_RECORDS * 3 - 1], DeliveryTimeout)

    @in_virtual_time
    async def test_an_outcome_before_it_takes_the_timer_along(self) -> None:
        bench = Bench()
        result = await bench.delivered(bench.send([b"a"], timeout_s=2.0))
        await asyncio.sleep(3)
        assert result.failures == {}


class TestEnd:
    @in_virtual_time
    async def test_cancelled_while_waiting_for_the_broker_the_records_go_on(self) -> None:
        bench = Bench()
        sending = bench.send([b"a"])
        await settle()
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        [batch] = bench.acknowledge()
        assert len(batch) == 1

    @in_virtual_time
    async def test_cancelled_while_waiting_for_memory_no_more_is_appended(self) -> None:
        bench = Bench(buffer_bytes=1_000, linger_s=1_000.0)
        sending = bench.send([b"x" * 86] * 20)
        await settle()
        queued = bench.queued
        sending.cancel()
        await asyncio.wait([sending])
        [batch] = bench.acknowledge()
        assert len(batch) == queued, "it went without lingering"
        await settle()
        assert bench.queued == 0
        assert bench.accumulator.arriving == 0

    @in_virtual_time
    async def test_cancelled_between_two_chunks_no_more_is_appended(self) -> None:
        spy = Spy()
        bench = Bench(
            partitions=2,
            partitioner=CallablePartitioner(slow_choice),
            interceptors=[spy],
            linger_s=1_000.0,
        )
        sending = bench.send([b"v"] * (CHUNK_RECORDS + 1))
        await asyncio.sleep(0)
        queued, seen = bench.queued, len(spy.seen)
        assert 0 < queued < seen == CHUNK_RECORDS
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        assert len(spy.errors) == seen - queued
        assert (bench.accumulator.callers, bench.accumulator.arriving) == (0, 0)
        assert [len(batch) for batch in bench.acknowledge()] == [queued], "it went without lingering"

    @in_virtual_time
    async def test_closed_between_two_chunks_no_more_is_appended(self) -> None:
        bench = Bench(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = bench.send([b"v"] * (CHUNK_RECORDS * 2))
        await asyncio.sleep(0)
        closed = Failure(ProducerClosed, "closed")
        arriving = bench.accumulator.arriving
        bench.accumulator.close(closed)
        assert arriving + bench.settler.fail_everything(closed) == CHUNK_RECORDS * 2
        result = await sending
        assert len(result.failures) == CHUNK_RECORDS * 2
        assert all(isinstance(error, ProducerClosed) for error in result.failures.values())
        assert bench.queued == 0
