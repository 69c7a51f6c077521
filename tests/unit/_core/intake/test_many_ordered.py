from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.intake.many import OrderedCalls
from aioproducer.errors import BufferTimeout
from aioproducer.testing import in_virtual_time
from tests.unit.floor_rig import TOPIC, settle

FOREVER = 1e9


class Road:
    """Calls in a ordered, each of which takes its time to append."""

    def __init__(self) -> None:
        self.ordered = OrderedCalls()
        self.passed: list[str] = []

    async def call(self, name: str, *, takes_s: float, topic: str = TOPIC, deadline: float = FOREVER) -> None:
        async with self.ordered.wait_turn(topic, deadline):
            await asyncio.sleep(takes_s)
            self.passed.append(name)


@in_virtual_time
async def test_ordered_calls_append_one_after_the_other() -> None:
    road = Road()
    await asyncio.gather(
        *(road.call(name, takes_s=takes_s) for name, takes_s in zip("abc", (3, 2, 1), strict=True))
    )
    assert road.passed == ["a", "b", "c"]


@in_virtual_time
async def test_ordered_calls_of_another_topic_do_not_wait() -> None:
    road = Road()
    await asyncio.gather(road.call("a", takes_s=3), road.call("b", takes_s=1, topic="audit"))
    assert road.passed == ["b", "a"]


@in_virtual_time
async def test_ordered_call_leaves_the_queue_at_its_deadline() -> None:
    road = Road()
    waiting = [
        asyncio.create_task(road.call(name, takes_s=3, deadline=deadline))
        for name, deadline in (("a", FOREVER), ("b", 2.0), ("c", FOREVER))
    ]
    with pytest.raises(
        BufferTimeout, match=r"waited 2.000 s for the records of an earlier call for 'orders'"
    ):
        await waiting[1]
    await asyncio.gather(waiting[0], waiting[2])
    assert road.passed == ["a", "c"]


@in_virtual_time
async def test_late_ordered_call_keeps_the_lock_of_a_newer_call() -> None:
    """The call before both of them ends in the same moment, before the late call has noticed its timeout."""
    road = Road()
    loop = asyncio.get_running_loop()
    one_second_later = loop.create_future()
    loop.call_at(1.0, one_second_later.set_result, None)
    async with road.ordered.wait_turn(TOPIC, FOREVER):
        late = asyncio.create_task(road.call("late", takes_s=1, deadline=1.0))
        await one_second_later
    async with road.ordered.wait_turn(TOPIC, FOREVER):
        await asyncio.wait([late])
        behind = asyncio.create_task(road.call("behind", takes_s=0))
        await settle()
        assert road.passed == []
    await behind
    assert isinstance(late.exception(), BufferTimeout)


@in_virtual_time
async def test_failed_ordered_call_releases_the_next_call() -> None:
    road = Road()

    async def fail() -> None:
        async with road.ordered.wait_turn(TOPIC, FOREVER):
            await asyncio.sleep(1)
            raise LookupError

    failing = asyncio.create_task(fail())
    behind = asyncio.create_task(road.call("behind", takes_s=1))
    with pytest.raises(LookupError):
        await failing
    await behind
    assert road.passed == ["behind"]


@in_virtual_time
async def test_wait_all_returns_after_the_present_calls() -> None:
    road = Road()
    await road.ordered.wait_all(TOPIC)
    calls = [asyncio.create_task(road.call(name, takes_s=1)) for name in "ab"]
    await settle()
    waiting = asyncio.create_task(road.ordered.wait_all(TOPIC))
    await settle()
    calls.append(asyncio.create_task(road.call("later", takes_s=1)))
    await waiting
    assert road.passed == ["a", "b"]
    await asyncio.gather(*calls)


@in_virtual_time
async def test_ordered_calls_keep_no_lock_of_an_idle_topic() -> None:
    road = Road()
    await road.call("a", takes_s=1)
    assert road.ordered._locks == {}
