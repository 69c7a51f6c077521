from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.intake.appending import no_such_partition
from aioproducer.errors import (
    BufferTimeout,
    MetadataTimeout,
    ProducerClosed,
    RecordTooLarge,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.fakes import topic_info
from tests.unit._core.intake.appending_rig import CLOSED, FOREVER, Rig
from tests.unit.floor_rig import TOPIC, settle


class TestOrder:
    @in_virtual_time
    async def test_turns_come_in_the_order_of_the_calls(self) -> None:
        rig = Rig()
        order = []

        async def call(number: int, takes_s: float) -> None:
            async with rig.permit():
                await asyncio.sleep(takes_s)
                order.append(number)

        with rig.nothing_left_behind():
            calls = [asyncio.create_task(call(number, 3 - number)) for number in range(3)]
            await settle()
            assert rig.queues.append_lock.calls == 3
            assert len(rig.accumulator.pending_calls) == 3
            await asyncio.gather(*calls)
        assert order == [0, 1, 2]

    @in_virtual_time
    async def test_turn_is_given_up_at_its_deadline(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind():
            async with rig.permit():
                await asyncio.sleep(1)
                with pytest.raises(BufferTimeout, match=r"waited 2.000 s for 1 earlier call for 'orders'"):
                    async with rig.permit(deadline=3.0):
                        pytest.fail("it is not its turn")
                assert rig.loop.time() == 3

    @in_virtual_time
    async def test_turn_for_an_unknown_topic_fails_with_metadata_timeout(self) -> None:
        rig = Rig(partitions=0)
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call([], "it", deadline=2.0))
            await settle()
            with pytest.raises(MetadataTimeout):
                async with rig.permit(deadline=1.0):
                    pytest.fail("it is not its turn")
            await asyncio.wait([waiting])
            assert isinstance(waiting.exception(), TimeoutError)

    @in_virtual_time
    async def test_cancelled_waiting_call_leaves_the_line(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind():
            async with rig.permit():

                async def call() -> None:
                    async with rig.permit():
                        pass

                cancelled, patient = asyncio.create_task(call()), asyncio.create_task(call())
                await settle()
                cancelled.cancel()
                await asyncio.wait([cancelled])
                assert cancelled.cancelled()
                assert rig.queues.append_lock.calls == 2
            await patient

    @in_virtual_time
    async def test_last_call_to_leave_wakes_the_sender(self) -> None:
        rig = Rig()
        async with rig.permit():
            wakes = rig.wakes
        assert rig.wakes == wakes + 1

    @in_virtual_time
    async def test_unknown_topic_is_forgotten_when_its_call_leaves(self) -> None:
        rig = Rig(partitions=0)
        with rig.caller():
            assert TOPIC in rig.accumulator.topics
        assert rig.accumulator.topics == {}

    @in_virtual_time
    async def test_unknown_topic_is_kept_while_other_calls_use_it(self) -> None:
        rig = Rig(partitions=0)
        with rig.caller():
            with rig.caller():
                pass
            assert TOPIC in rig.accumulator.topics
        assert rig.accumulator.topics == {}


@for_each(("error", "free"), [(BufferTimeout("late"), 100), (KeyboardInterrupt(), 1_000)])
@in_virtual_time
async def test_interrupted_call_recounts_the_memory(error: BaseException, free: int) -> None:
    rig = Rig(buffer_bytes=1_000)
    with rig.caller() as call:
        rig.accumulator.memory.free = 100
        call.end(error)
        assert rig.accumulator.memory.free == free


class TestServed:
    """A call that ends its turn appends for the calls behind it if they need no wait."""

    @in_virtual_time
    async def test_served_call_has_its_place_when_its_turn_comes(self) -> None:
        rig, order = Rig(), list[str]()
        with rig.nothing_left_behind():
            free = rig.accumulator.memory.free
            pending = rig.pending(lambda: order.append("served"))
            with rig.caller(3, pending):
                async with rig.permit():
                    waiting = asyncio.create_task(pending.take_turn(FOREVER))
                    await settle()
                assert order == ["served"]
                assert rig.queues.append_lock.calls == 0
                assert rig.accumulator.arriving == 0, "the records are in a batch, and to be counted there"
                assert await waiting
                assert pending.place == (rig.queue().open, 0)
            rig.accumulator.memory.free = free

    @in_virtual_time
    async def test_error_of_a_served_append_is_raised_in_its_call(self) -> None:
        def fail() -> None:
            raise RecordTooLarge("much")

        rig = Rig()
        with rig.nothing_left_behind():
            async with rig.permit():
                waiting = asyncio.create_task(rig.served(rig.pending(fail)))
                await settle()
            with pytest.raises(RecordTooLarge):
                await waiting

    @in_virtual_time
    async def test_waiting_call_is_not_served_after_close(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind():
            async with rig.permit():
                pending = rig.pending(lambda: pytest.fail("it is closed"))
                waiting = asyncio.create_task(rig.served(pending))
                await settle()
                rig.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                await waiting

    @in_virtual_time
    async def test_interrupted_attempt_is_made_once(self) -> None:
        rig, order = Rig(), list[str]()
        with rig.nothing_left_behind():
            free = rig.accumulator.memory.free
            pending = rig.pending(lambda: order.append("served"))
            with rig.caller(1, pending):
                append = rig.accumulator.append_and_locate

                def interrupt(*arguments: Any, **more: Any) -> None:
                    append(*arguments, **more)
                    raise KeyboardInterrupt

                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(rig.accumulator, "append_and_locate", interrupt)
                    with pytest.raises(KeyboardInterrupt):
                        pending.attempt()
                assert pending.attempt()
                assert order == ["served"]
                assert pending.place is not None
                assert len(pending.place[0]) == 1
            rig.accumulator.memory.free = free


class TestRecordsToCome:
    @in_virtual_time
    async def test_records_of_a_call_are_counted_until_they_have_arrived(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind(), rig.caller(10) as call:
            assert rig.accumulator.arriving == 10
            rig.accumulator.arrived(call, 7)
            assert rig.accumulator.arriving == 3
            with rig.caller(5):
                assert rig.accumulator.arriving == 8
            assert rig.accumulator.arriving == 3

    @in_virtual_time
    async def test_call_is_pending_between_two_turns(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind(), rig.caller(2) as call:
            for _ in range(2):
                await call.take_turn(FOREVER)
                call.end_turn()
                assert (len(rig.accumulator.pending_calls), len(rig.queues.pending_calls)) == (1, 1)
                assert rig.queues.append_lock.calls == 0, "others need not wait"


class TestMemory:
    @in_virtual_time
    async def test_free_memory_is_reserved_immediately(self) -> None:
        rig = Rig(buffer_bytes=1_000)
        async with rig.permit() as permit:
            await permit.reserve(600)
            assert rig.accumulator.memory.free == 400

    @in_virtual_time
    async def test_reserve_waits_for_memory_and_ends_lingering(self) -> None:
        rig = Rig(buffer_bytes=1_000)
        rig.accumulator.memory.free = 100
        async with rig.permit() as permit:
            wakes = rig.wakes
            waiting = asyncio.create_task(permit.reserve(600))
            await settle()
            assert rig.wakes > wakes
            assert rig.accumulator.hurries()
            rig.accumulator.memory.give_back(900)
            await waiting
            assert rig.accumulator.memory.free == 400

    @in_virtual_time
    async def test_reserve_fails_at_the_deadline(self) -> None:
        rig = Rig(buffer_bytes=1_000)
        rig.accumulator.memory.free = 100
        with rig.nothing_left_behind():
            await asyncio.sleep(1)
            with pytest.raises(BufferTimeout, match=r"waited 2.000 s for 600 of buffer_memory=1,000 bytes"):
                async with rig.permit(deadline=3.0) as permit:
                    await permit.reserve(600)

    @in_virtual_time
    async def test_reserve_uses_a_later_deadline(self) -> None:
        rig = Rig(buffer_bytes=1_000)
        rig.accumulator.memory.free = 100
        async with rig.permit(deadline=1.0) as permit:
            permit.deadline = 5.0
            with pytest.raises(BufferTimeout):
                await permit.reserve(600)
        assert rig.loop.time() == 5


class TestClosedMeanwhile:
    @in_virtual_time
    async def test_call_after_close_gets_no_turn(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind():
            rig.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                async with rig.permit():
                    pytest.fail("it is closed")

    @in_virtual_time
    async def test_waiting_call_gets_no_turn_after_close(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind():
            async with rig.permit():
                pending = asyncio.create_task(rig.call([], "it"))
                await settle()
                rig.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                await pending

    @in_virtual_time
    async def test_metadata_that_came_just_before_is_no_use(self) -> None:
        rig = Rig(partitions=0)
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call([], "it"))
            await settle()
            rig.updater.asked[0][2].set_result(topic_info(TOPIC, 1))
            rig.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                await waiting

    @in_virtual_time
    async def test_memory_that_came_just_before_is_given_back(self) -> None:
        rig = Rig(buffer_bytes=1_000)
        rig.accumulator.memory.free = 100
        async with rig.permit() as permit:
            waiting = asyncio.create_task(permit.reserve(600))
            await settle()
            rig.accumulator.memory.give_back(900)
            rig.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                await waiting
        assert rig.accumulator.memory.free == 1_000


@pytest.mark.parametrize(
    ("count", "message"),
    [(1, "partition=7: 'orders' has 1 partition, 0"), (3, "partition=7: 'orders' has 3 partitions, 0 to 2")],
)
def test_missing_partition_error_names_the_existing_partitions(count: int, message: str) -> None:
    assert str(no_such_partition("partition", "orders", 7, count)) == message
