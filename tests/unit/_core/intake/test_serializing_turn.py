from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, copy_context
from typing import Any

import pytest

from aioproducer._core.batching.admission import AppendLock
from aioproducer._core.intake.serializing import (
    Contents,
    InContext,
    Serialization,
    SerializerAwaits,
    SerializerTurn,
    lock_for,
    withdraw_callers,
)
from aioproducer.errors import BufferTimeout, ProducerClosed, ProducerError, SerializerTimeout
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.intake.appending_rig import CLOSED, Rig
from tests.unit.floor_rig import TOPIC, settle


def serialization(inside: Callable[[], Awaitable[Any]]) -> Serialization:
    async def serialize(value: str) -> bytes:
        await inside()
        return value.encode()

    return Serialization(InContext(None, serialize), (TOPIC, (), None, "v"))


async def contents(rig: Rig, inside: Callable[[], Awaitable[Any]], wait_s: float = 10.0) -> Contents:
    """Await a serializer that calls *inside*, in the turn of a call."""
    began_at = rig.loop.time()
    async with rig.permit() as call:
        turn = SerializerTurn(call, began_at + wait_s)
        return await turn.contents(serialization(inside), rig.accumulator, began_at)


@in_virtual_time
async def test_lock_is_the_turns_only_inside_the_serializer() -> None:
    rig, locks = Rig(), list[AppendLock]()

    async def inside() -> None:
        locks.append(lock_for(rig.queues))
        await asyncio.create_task(in_a_task())

    async def in_a_task() -> None:
        locks.append(lock_for(rig.queues))

    with rig.nothing_left_behind():
        assert (await contents(rig, inside)).value == b"v"
    assert locks[0] is locks[1]
    assert locks[0] is not rig.queues.append_lock
    assert lock_for(rig.queues) is rig.queues.append_lock


@in_virtual_time
async def test_lock_of_another_topic_is_its_own_inside_a_turn() -> None:
    rig = Rig()

    async def inside() -> None:
        other = rig.accumulator.topic("other")
        assert lock_for(other) is other.append_lock

    await contents(rig, inside)


@in_virtual_time
async def test_turn_keeps_no_queues_when_it_is_over() -> None:
    rig, going = Rig(), asyncio.Event()
    found: list[AppendLock] = []

    async def later() -> None:
        await going.wait()
        found.append(lock_for(rig.queues))

    tasks: list[asyncio.Task[None]] = []

    async def inside() -> None:
        tasks.append(asyncio.create_task(later()))

    await contents(rig, inside)
    going.set()
    await asyncio.gather(*tasks)
    assert found == [rig.queues.append_lock]


@in_virtual_time
async def test_deadline_ends_the_wait() -> None:
    rig = Rig()
    with rig.nothing_left_behind(), pytest.raises(SerializerTimeout, match=r"waited 3\.000 s"):
        await contents(rig, asyncio.Event().wait, 3.0)
    assert not rig.accumulator.interrupts


@for_each(
    ("returns", "error", "reason"),
    [
        (False, SerializerTimeout, "serialize has not returned"),
        (True, BufferTimeout, r"waited 3\.000 s for the append of calls made inside a serializer"),
    ],
)
@in_virtual_time
async def test_late_call_reports_what_it_waited_for(
    returns: bool, error: type[ProducerError], reason: str
) -> None:
    rig, tasks, ended = Rig(), list[asyncio.Task[None]](), asyncio.Event()

    async def inside() -> None:
        tasks.append(asyncio.create_task(holding()))
        await settle()
        if not returns:
            await ended.wait()

    async def holding() -> None:
        async with rig.permit():
            await ended.wait()

    with rig.nothing_left_behind():
        with pytest.raises(error, match=reason):
            async with rig.permit(3.0) as call:
                await call.awaited(serialization(inside))
        assert rig.loop.time() == 3
        ended.set()
        await asyncio.gather(*tasks)


@in_virtual_time
async def test_close_counts_while_a_late_serializer_cleans_up() -> None:
    rig = Rig()

    async def inside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(2)

    with rig.nothing_left_behind():
        waiting = asyncio.create_task(contents(rig, inside, 1.0))
        await asyncio.sleep(2)
        rig.accumulator.close(CLOSED)
        with pytest.raises(ProducerClosed):
            await waiting
    assert rig.loop.time() == 3


@in_virtual_time
async def test_closed_accumulator_ends_the_wait() -> None:
    rig = Rig()
    with rig.nothing_left_behind():
        waiting = asyncio.create_task(contents(rig, asyncio.Event().wait))
        await settle()
        rig.accumulator.close(CLOSED)
        with pytest.raises(ProducerClosed):
            await waiting
    assert not rig.accumulator.interrupts


@in_virtual_time
async def test_end_counts_although_the_serializer_returns() -> None:
    rig = Rig()

    async def inside() -> None:
        rig.accumulator.close(CLOSED)

    with rig.nothing_left_behind(), pytest.raises(ProducerClosed):
        await contents(rig, inside)


@in_virtual_time
async def test_withdrawn_call_holds_no_lock() -> None:
    rig = Rig()

    async def inside() -> None:
        withdraw_callers(rig.accumulator)
        assert not rig.queues.append_lock.held
        assert not rig.accumulator.pending_calls
        assert not rig.accumulator.interrupts

    with pytest.raises(ProducerClosed, match="a serializer closed the producer"):
        await contents(rig, inside)


@in_virtual_time
async def test_closing_another_producer_withdraws_no_call() -> None:
    rig, other = Rig(), Rig()

    async def inside() -> None:
        withdraw_callers(other.accumulator)
        assert rig.queues.append_lock.held

    with rig.nothing_left_behind():
        assert (await contents(rig, inside)).value == b"v"


@in_virtual_time
async def test_turn_reaches_the_context_of_a_running_awaitable() -> None:
    class Running:
        """Awaitable with a context, as a task since Python 3.12."""

        def __init__(self) -> None:
            self.context = copy_context()

        def get_context(self) -> Context:
            return self.context

        def __await__(self) -> Generator[Any, None, bytes]:
            locks.append(self.context.run(lock_for, rig.queues))
            return b"v"
            yield

    rig, locks = Rig(), list[AppendLock]()
    waits = SerializerAwaits("value", Running())
    record = Serialization(InContext(None, lambda _: b""), (TOPIC, (), None, "v"), begun=waits)
    async with rig.permit() as call:
        turn = SerializerTurn(call, 10.0)
        assert (await turn.contents(record, rig.accumulator, 0.0)).value == b"v"
    assert locks == [turn.lock]


@in_virtual_time
async def test_call_from_inside_may_wait_for_a_new_partition() -> None:
    rig, order, tasks = Rig(partitions=2), list[str](), list[asyncio.Task[None]]()

    async def inside() -> None:
        tasks.append(asyncio.create_task(rig.call(order, "inside", partition=2)))
        await settle()
        assert not rig.queues.awaiting_partition
        rig.answer(1, 1, 1)
        await tasks[0]

    with rig.nothing_left_behind():
        await contents(rig, inside)
    assert order == ["inside"]


@in_virtual_time
async def test_call_waits_for_the_calls_from_inside() -> None:
    rig, order = Rig(), list[str]()

    async def inside() -> None:
        tasks.append(asyncio.create_task(holding()))
        await settle()

    async def holding() -> None:
        async with rig.permit():
            await asyncio.sleep(1)
            order.append("inside")

    tasks: list[asyncio.Task[None]] = []
    with rig.nothing_left_behind():
        await contents(rig, inside)
        order.append("outer")
        await asyncio.gather(*tasks)
    assert order == ["inside", "outer"]
