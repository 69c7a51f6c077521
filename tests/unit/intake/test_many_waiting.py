from __future__ import annotations

import asyncio

from aioproducer.batching.failure import Failure
from aioproducer.errors import BufferTimeout, DeliveryTimeout, MetadataTimeout, ProducerClosed
from aioproducer.intake.many import CHUNK_RECORDS
from aioproducer.testing import in_virtual_time
from tests.unit.intake.intake_bench import Spy
from tests.unit.intake.many_bench import Bench
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

    @in_virtual_time
    async def test_later_calls_for_the_topic_queue_behind_it(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        sending = bench.send([b"x" * 86] * 20)
        await settle()
        later = bench.send([b"later"])
        assert (await bench.delivered(sending)).delivered == 20
        result = await bench.delivered(later)
        assert result.offset(0) == 20

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


class TestMetadata:
    @in_virtual_time
    async def test_an_unknown_topic_is_waited_for(self) -> None:
        bench = Bench(partitions=0)
        sending = bench.send([b"a"])
        await settle()
        bench.refresher.asked[0][2].set_result(topic_info(TOPIC, 1))
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
