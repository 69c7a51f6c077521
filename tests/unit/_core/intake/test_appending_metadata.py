from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.intake.appending import WaitingCall, has_partition
from aioproducer.errors import (
    MetadataTimeout,
    ProducerClosed,
    TopicAuthorizationFailed,
)
from aioproducer.testing import in_virtual_time
from tests.fakes import topic_info
from tests.unit._core.intake.appending_rig import CLOSED, FOREVER, Rig
from tests.unit.floor_rig import TOPIC, settle


class TestMetadata:
    @in_virtual_time
    async def test_known_partition_requests_no_metadata(self) -> None:
        rig = Rig()
        async with rig.permit(partition=1):
            assert rig.updater.asked == []

    @in_virtual_time
    async def test_call_waits_for_metadata_of_an_unknown_topic(self) -> None:
        rig, order = Rig(partitions=0), list[str]()
        waiting = asyncio.create_task(rig.call(order, "it"))
        await settle()
        [(name, anew, answered)] = rig.updater.asked
        assert (name, anew) == (TOPIC, False)
        assert rig.queues.append_lock.calls == 1
        answered.set_result(topic_info(TOPIC, 1, -1))
        await waiting
        assert list(rig.queues.leaders) == [1, -1]

    @in_virtual_time
    async def test_newer_metadata_is_not_overwritten_by_the_answer(self) -> None:
        rig = Rig(partitions=0)
        waiting = asyncio.create_task(rig.call([], "it"))
        await settle()
        rig.updater.asked[0][2].set_result(topic_info(TOPIC, 1, 1))
        rig.learn(TOPIC, 1, 2)
        await waiting
        assert list(rig.queues.leaders) == [1, 2]

    @in_virtual_time
    async def test_cluster_error_for_the_topic_is_raised(self) -> None:
        rig = Rig(partitions=0)
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call([], "it"))
            await settle()
            rig.updater.asked[0][2].set_exception(TopicAuthorizationFailed("no"))
            with pytest.raises(TopicAuthorizationFailed):
                await waiting


class TestNewPartition:
    """A partition that the metadata of the topic lacks."""

    @in_virtual_time
    async def test_partition_is_requested_once(self) -> None:
        rig, order = Rig(partitions=2), list[str]()
        waiting = asyncio.create_task(rig.call(order, "it", partition=2))
        await settle()
        [(_, anew, _)] = rig.updater.asked
        assert anew
        rig.answer(1, 1, 1)
        await waiting
        assert has_partition(rig.queues, 2)
        assert order == ["it"]

    @in_virtual_time
    async def test_call_that_waits_for_memory_lets_earlier_calls_go_first(self) -> None:
        rig, order = Rig(partitions=2), list[str]()
        earlier = asyncio.create_task(rig.call(order, "earlier", partition=2))
        await settle()

        async def reserve() -> None:
            async with rig.permit() as call:
                assert await call.reserve(rig.accumulator.memory.limit) == rig.accumulator.memory.limit
                order.append("later")
                rig.accumulator.memory.give_back(rig.accumulator.memory.limit)

        rig.accumulator.memory.free -= 1
        later = asyncio.create_task(reserve())
        await settle()
        rig.answer(1, 1, 1)
        rig.accumulator.memory.give_back(1)
        await asyncio.gather(earlier, later)
        assert order == ["earlier", "later"]
        assert rig.accumulator.memory.used == 0

    @in_virtual_time
    async def test_call_without_memory_may_be_served_by_an_earlier_call(self) -> None:
        rig, order = Rig(partitions=2), list[str]()
        earlier = asyncio.create_task(rig.call(order, "earlier", partition=2))
        await settle()
        pending = rig.pending(lambda: order.append("later"))
        memory = rig.accumulator.memory

        async def reserve() -> int:
            with rig.caller(1, pending):
                assert not await pending.take_turn(FOREVER)
                return await pending.reserve(memory.limit)

        memory.free -= 1
        later = asyncio.create_task(reserve())
        await settle()
        rig.answer(1, 1, 1)
        memory.give_back(1)
        await asyncio.gather(earlier, later)
        assert order == ["earlier", "later"]
        assert later.result() == 0
        assert pending.place == (rig.queue().open, 0)

    @in_virtual_time
    async def test_serializing_call_lets_earlier_calls_go_first(self) -> None:
        rig, order, serialized = Rig(partitions=2), list[str](), asyncio.Event()

        class Serializing(WaitingCall):
            async def serialize(self) -> None:
                await serialized.wait()

        async def serialize() -> None:
            with rig.caller(call=Serializing()) as call:
                assert not await call.take_turn(FOREVER)
                order.append("later")

        with rig.nothing_left_behind():
            earlier = asyncio.create_task(rig.call(order, "earlier", partition=2))
            await settle()
            later = asyncio.create_task(serialize())
            await settle()
            rig.answer(1, 1, 1)
            serialized.set()
            await asyncio.gather(earlier, later)
        assert order == ["earlier", "later"]

    @in_virtual_time
    async def test_metadata_timeout_ends_the_wait_for_a_partition(self) -> None:
        rig = Rig(partitions=2)
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call([], "it", partition=2))
            await settle()
            rig.updater.asked[0][2].set_exception(MetadataTimeout("late"))
            with pytest.raises(MetadataTimeout):
                await waiting

    @in_virtual_time
    async def test_partition_found_at_the_timeout_gets_its_turn(self) -> None:
        rig, order = Rig(partitions=2), list[str]()
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call(order, "it", partition=2))
            await settle()
            rig.updater.asked[0][2].set_exception(MetadataTimeout("late"))
            rig.learn(TOPIC, 1, 1, 1)
            await waiting
        assert order == ["it"]

    @in_virtual_time
    async def test_missing_partition_raises_value_error(self) -> None:
        rig = Rig(partitions=2)
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call([], "it", partition=2, argument="partitions[3]"))
            await settle()
            rig.answer(1, 1)
            with pytest.raises(ValueError, match=r"^partitions\[3\]=2: 'orders' has 2 partitions, 0 to 1$"):
                await waiting

    @in_virtual_time
    async def test_call_for_a_new_partition_does_not_block_the_topic(self) -> None:
        rig, order = Rig(partitions=2), list[str]()
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call(order, "it", partition=2))
            await settle()
            assert rig.queues.append_lock.calls == 0
            await rig.call(order, "another")
            assert (len(rig.accumulator.pending_calls), rig.accumulator.arriving) == (1, 1)
            assert not rig.queues.idle
            rig.answer(1, 1, 1)
            await waiting
        assert order == ["another", "it"]

    @in_virtual_time
    async def test_call_does_not_block_when_the_partition_is_missing(self) -> None:
        rig, order = Rig(partitions=0), list[int]()
        with rig.nothing_left_behind():
            waiting = [
                asyncio.create_task(rig.call(order, partition, partition=partition))
                for partition in (2, 0, 2)
            ]
            await settle()
            assert rig.queues.append_lock.calls == 3
            rig.answer(1, 1)
            await settle()
            assert order == [0]
            assert rig.queues.append_lock.calls == 0
            rig.answer(1, 1)
            for each in waiting[::2]:
                with pytest.raises(ValueError, match="partition=2"):
                    await each

    @in_virtual_time
    async def test_calls_for_a_new_partition_are_served_in_call_order(self) -> None:
        rig, order = Rig(partitions=0), list[str]()

        def call(name: str) -> asyncio.Task[None]:
            return asyncio.create_task(rig.served(rig.pending(lambda: order.append(name), partition=2)))

        waiting = [call("a")]
        await settle()  # a has its turn, b is behind it
        waiting.append(call("b"))
        await asyncio.sleep(0)
        rig.answer(1, 1)
        waiting.append(call("c"))  # comes before a and b learn that their partition is not there
        await settle()
        assert order == []
        rig.answer(1, 1, 1)
        assert order == ["a", "b", "c"], "before anybody else runs"
        assert rig.queues.append_lock.calls == 0
        await asyncio.gather(*waiting)

    @in_virtual_time
    async def test_calls_for_a_new_partition_go_before_later_calls(self) -> None:
        rig, order = Rig(), list[str]()

        async def short_of_memory(name: str) -> None:
            async with rig.permit() as permit:
                await permit.reserve(600)
                order.append(name)

        rig.accumulator.memory.free = 100
        calls = [
            asyncio.create_task(short_of_memory("first")),
            asyncio.create_task(rig.call(order, "second")),
        ]
        await settle()
        calls.append(asyncio.create_task(rig.call(order, "new", partition=2)))
        await settle()
        calls.append(asyncio.create_task(rig.call(order, "last")))
        await settle()
        rig.answer(1, 1, 1)
        rig.accumulator.memory.give_back(900)
        await asyncio.gather(*calls)
        assert order == ["first", "second", "new", "last"]

    @in_virtual_time
    async def test_partition_may_be_deleted_before_the_turn_of_its_call(self) -> None:
        rig, order = Rig(), list[str]()
        async with rig.permit():
            waiting = asyncio.create_task(rig.call(order, "it", partition=2))
            await settle()
            rig.answer(1, 1, 1)
            await settle()
            rig.learn(TOPIC, 1)
        await settle()
        assert order == []
        rig.answer(1)
        with pytest.raises(ValueError, match="'orders' has 1 partition"):
            await waiting

    @in_virtual_time
    async def test_cluster_error_for_the_topic_is_raised(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call([], "it", partition=2))
            await settle()
            rig.updater.asked[0][2].set_exception(TopicAuthorizationFailed("no"))
            with pytest.raises(TopicAuthorizationFailed):
                await waiting

    @in_virtual_time
    async def test_cancelled_call_leaves_no_trace(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call([], "it", partition=2))
            await settle()
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()

    @in_virtual_time
    async def test_call_cancelled_as_its_turn_comes_passes_it_on(self) -> None:
        rig, order = Rig(), list[str]()
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call(order, "it", partition=2))
            await settle()
            rig.answer(1, 1, 1)
            assert rig.queues.append_lock.calls == 1, "it is its turn"
            waiting.cancel()
            behind = asyncio.create_task(rig.call(order, "behind"))
            await asyncio.wait([waiting, behind])
            assert waiting.cancelled()
        assert order == ["behind"]

    @in_virtual_time
    async def test_call_raises_producer_closed_after_close(self) -> None:
        rig = Rig()
        with rig.nothing_left_behind():
            waiting = asyncio.create_task(rig.call([], "it", partition=2))
            await settle()
            rig.updater.asked[0][2].set_result(topic_info(TOPIC, 1, 1))
            rig.accumulator.close(CLOSED)
            with pytest.raises(ProducerClosed):
                await waiting
