from __future__ import annotations

import asyncio
from functools import partial

import pytest

from aioproducer.batching.batch import Appended
from aioproducer.errors import (
    BufferTimeout,
    MetadataTimeout,
    ProducerClosed,
    RecordTooLarge,
)
from aioproducer.intake.turn import no_such_partition
from aioproducer.testing import in_virtual_time
from tests.unit.intake.turn_bench import CLOSED, FOREVER, Bench
from tests.unit.workbench import TOPIC, settle, topic_info


class TestOrder:
    @in_virtual_time
    async def test_turns_come_in_the_order_of_the_calls(self) -> None:
        bench = Bench()
        order = []

        async def call(number: int, takes_s: float) -> None:
            async with bench.turn():
                await asyncio.sleep(takes_s)
                order.append(number)

        with bench.nothing_left_behind():
            calls = [asyncio.create_task(call(number, 3 - number)) for number in range(3)]
            await settle()
            assert bench.queues.line.length == 3
            assert bench.accumulator.callers == 3
            await asyncio.gather(*calls)
        assert order == [0, 1, 2]

    @in_virtual_time
    async def test_a_turn_that_does_not_come_in_time_is_given_up(self) -> None:
        bench = Bench()
        with bench.nothing_left_behind():
            async with bench.turn():
                await asyncio.sleep(1)
                with pytest.raises(BufferTimeout, match=r"waited 2.000 s for 1 earlier call for 'orders'"):
                    async with bench.turn(deadline=3.0):
                        pytest.fail("it is not its turn")
                assert bench.loop.time() == 3

    @in_virtual_time
    async def test_of_an_unknown_topic_it_was_metadata_that_did_not_come(self) -> None:
        bench = Bench(partitions=0)
        with bench.nothing_left_behind():
            waiting = asyncio.create_task(bench.call([], "it", deadline=2.0))
            await settle()
            with pytest.raises(MetadataTimeout):
                async with bench.turn(deadline=1.0):
                    pytest.fail("it is not its turn")
            await asyncio.wait([waiting])
            assert isinstance(waiting.exception(), TimeoutError)

    @in_virtual_time
    async def test_cancelled_in_line_it_leaves_no_hole(self) -> None:
        bench = Bench()
        with bench.nothing_left_behind():
            async with bench.turn():

                async def call() -> None:
                    async with bench.turn():
                        pass

                cancelled, patient = asyncio.create_task(call()), asyncio.create_task(call())
                await settle()
                cancelled.cancel()
                await asyncio.wait([cancelled])
                assert cancelled.cancelled()
                assert bench.queues.line.length == 2
            await patient

    @in_virtual_time
    async def test_the_last_to_leave_wakes_a_sender_that_waits_for_it(self) -> None:
        bench = Bench()
        async with bench.turn():
            wakes = bench.wakes
        assert bench.wakes == wakes + 1

    @in_virtual_time
    async def test_an_unknown_topic_leaves_no_trace(self) -> None:
        bench = Bench(partitions=0)
        with bench.caller():
            assert TOPIC in bench.accumulator.topics
        assert bench.accumulator.topics == {}

    @in_virtual_time
    async def test_unless_others_are_on_their_way_to_it(self) -> None:
        bench = Bench(partitions=0)
        with bench.caller():
            with bench.caller():
                pass
            assert TOPIC in bench.accumulator.topics
        assert bench.accumulator.topics == {}


class TestServed:
    """Who leaves appends for those behind it, as far as that needs no waiting."""

    @in_virtual_time
    async def test_nothing_is_left_to_do_then(self) -> None:
        bench, order = Bench(), list[str]()
        with bench.nothing_left_behind():
            free = bench.accumulator.memory.free
            with bench.caller(3) as caller:
                async with bench.turn():
                    turn = caller.turn(FOREVER, attempt=partial(bench.serve, order, "served"))
                    entering = asyncio.create_task(turn.__aenter__())
                    await settle()
                assert order == ["served"]
                assert bench.queues.line.length == 0
                assert bench.accumulator.arriving == 0, "the records are in a batch, and to be counted there"
                assert await entering is turn
                assert turn.appended is not None
                await turn.__aexit__(None, None, None)
            bench.accumulator.memory.free = free

    @in_virtual_time
    async def test_what_that_raises_is_for_who_waits(self) -> None:
        def fail() -> Appended:
            raise RecordTooLarge("much")

        bench = Bench()
        with bench.nothing_left_behind():
            async with bench.turn():
                entering = asyncio.create_task(bench.call([], "it", attempt=fail))
                await settle()
            with pytest.raises(RecordTooLarge):
                await entering

    @in_virtual_time
    async def test_nobody_is_served_once_it_is_closed(self) -> None:
        bench = Bench()
        with bench.nothing_left_behind():
            async with bench.turn():
                attempt = partial(pytest.fail, "it is closed")
                entering = asyncio.create_task(bench.call([], "it", attempt=attempt))
                await settle()
                bench.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                await entering


class TestRecordsToCome:
    @in_virtual_time
    async def test_they_are_counted_until_they_are_settled(self) -> None:
        bench = Bench()
        with bench.nothing_left_behind(), bench.caller(10) as caller:
            assert bench.accumulator.arriving == 10
            caller.settled(7)
            assert bench.accumulator.arriving == 3
            with bench.caller(5):
                assert bench.accumulator.arriving == 8
            assert bench.accumulator.arriving == 3

    @in_virtual_time
    async def test_a_call_is_on_its_way_between_two_turns_as_well(self) -> None:
        bench = Bench()
        with bench.nothing_left_behind(), bench.caller(2) as caller:
            for _ in range(2):
                async with caller.turn(FOREVER):
                    pass
                assert (bench.accumulator.callers, bench.queues.callers) == (1, 1)
                assert bench.queues.line.length == 0, "others need not wait"


class TestMemory:
    @in_virtual_time
    async def test_it_is_taken_when_it_is_free(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        async with bench.turn() as turn:
            await turn.memory(600)
            assert bench.accumulator.memory.free == 400

    @in_virtual_time
    async def test_it_is_waited_for_and_nothing_lingers_meanwhile(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        bench.accumulator.memory.free = 100
        async with bench.turn() as turn:
            wakes = bench.wakes
            waiting = asyncio.create_task(turn.memory(600))
            await settle()
            assert bench.wakes > wakes
            assert bench.accumulator.hurry
            bench.accumulator.memory.give_back(900)
            await waiting
            assert bench.accumulator.memory.free == 400

    @in_virtual_time
    async def test_what_does_not_come_in_time_is_given_up(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        bench.accumulator.memory.free = 100
        with bench.nothing_left_behind():
            await asyncio.sleep(1)
            with pytest.raises(BufferTimeout, match=r"waited 2.000 s for 600 of buffer_memory=1,000 bytes"):
                async with bench.turn(deadline=3.0) as turn:
                    await turn.memory(600)

    @in_virtual_time
    async def test_who_has_several_waits_may_move_the_deadline(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        bench.accumulator.memory.free = 100
        async with bench.turn(deadline=1.0) as turn:
            turn.deadline = 5.0
            with pytest.raises(BufferTimeout):
                await turn.memory(600)
        assert bench.loop.time() == 5


class TestClosedMeanwhile:
    @in_virtual_time
    async def test_who_comes_late_has_no_turn(self) -> None:
        bench = Bench()
        with bench.nothing_left_behind():
            bench.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                async with bench.turn():
                    pytest.fail("it is closed")

    @in_virtual_time
    async def test_who_stood_in_line_has_no_turn_either(self) -> None:
        bench = Bench()
        with bench.nothing_left_behind():
            async with bench.turn():
                pending = asyncio.create_task(bench.call([], "it"))
                await settle()
                bench.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                await pending

    @in_virtual_time
    async def test_metadata_that_came_just_before_is_no_use(self) -> None:
        bench = Bench(partitions=0)
        with bench.nothing_left_behind():
            waiting = asyncio.create_task(bench.call([], "it"))
            await settle()
            bench.updater.asked[0][2].set_result(topic_info(TOPIC, 1))
            bench.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                await waiting

    @in_virtual_time
    async def test_memory_that_came_just_before_is_given_back(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        bench.accumulator.memory.free = 100
        async with bench.turn() as turn:
            waiting = asyncio.create_task(turn.memory(600))
            await settle()
            bench.accumulator.memory.give_back(900)
            bench.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                await waiting
        assert bench.accumulator.memory.free == 1_000


@pytest.mark.parametrize(
    ("count", "message"),
    [(1, "partition=7: 'orders' has 1 partition, 0"), (3, "partition=7: 'orders' has 3 partitions, 0 to 2")],
)
def test_a_partition_that_does_not_exist_is_told_with_those_that_do(count: int, message: str) -> None:
    assert str(no_such_partition("partition", "orders", 7, count)) == message
