from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.batching.admission import MemoryBudget
from aioproducer.errors import ProducerClosed
from aioproducer.testing.virtual_time import in_virtual_time

NEVER = 1e9


async def in_line(memory: MemoryBudget, *sizes: int) -> list[asyncio.Task[None]]:
    """Return calls that wait for the given numbers of bytes, in this order."""
    calls = [asyncio.create_task(memory.take(size, NEVER)) for size in sizes]
    await asyncio.sleep(0)
    return calls


async def served(*calls: asyncio.Task[None]) -> list[bool]:
    """Run ready callbacks, and return for each of *calls* whether the call has its bytes."""
    await asyncio.sleep(0)
    return [call.done() for call in calls]


async def test_free_memory_is_taken_without_waiting() -> None:
    memory = MemoryBudget(100)
    await memory.take(60, NEVER)
    await memory.take(40, NEVER)
    assert (memory.free, memory.used) == (0, 100)


async def test_call_waits_until_enough_memory_is_given_back() -> None:
    memory = MemoryBudget(100)
    await memory.take(60, NEVER)
    (call,) = await in_line(memory, 50)
    memory.give_back(5)
    assert await served(call) == [False]
    memory.give_back(5)
    assert await served(call) == [True]
    assert (memory.used, len(memory.waiters)) == (100, 0)


async def test_memory_is_granted_in_order_of_arrival() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER)
    calls = await in_line(memory, 80, 10)
    memory.give_back(50)
    assert await served(*calls) == [False, False]
    (late,) = await in_line(memory, 10)
    assert await served(late) == [False]
    memory.give_back(50)
    assert await served(*calls, late) == [True, True, True]
    assert memory.used == 100


async def test_give_back_serves_as_many_calls_as_fit() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER)
    calls = await in_line(memory, 30, 30, 50)
    memory.give_back(90)
    assert await served(*calls) == [True, True, False]
    assert memory.free == 30
    calls[-1].cancel()


@in_virtual_time
async def test_call_past_its_deadline_fails_and_leaves_the_line() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER)
    with pytest.raises(TimeoutError):
        await memory.take(1, deadline=5.0)
    assert asyncio.get_running_loop().time() == pytest.approx(5.0)
    assert (memory.used, len(memory.waiters)) == (100, 0)


async def test_cancelled_large_call_lets_smaller_calls_pass() -> None:
    memory = MemoryBudget(100)
    await memory.take(90, NEVER)
    large, small = await in_line(memory, 80, 10)
    large.cancel()
    assert await served(large, small) == [True, False]
    assert await served(small) == [True]
    assert large.cancelled()
    assert memory.used == 100


async def test_call_cancelled_after_it_was_served_returns_its_bytes() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER)
    first, second = await in_line(memory, 100, 100)
    memory.give_back(100)
    first.cancel()  # it has the bytes, but has not run since
    await served(first)
    assert first.cancelled()
    assert await served(second) == [True]
    assert memory.used == 100


async def test_call_cancelled_before_it_is_served_takes_nothing() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER)
    first, second = await in_line(memory, 100, 100)
    first.cancel()  # it has not run since, and is still in line
    memory.give_back(100)
    await served(first)
    assert first.cancelled()
    assert await served(second) == [True]
    assert memory.used == 100


async def test_fail_waiters_gives_each_call_its_own_error() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER)
    cancelled, *calls = await in_line(memory, 10, 10, 10)
    cancelled.cancel()
    memory.fail_waiters(lambda: ProducerClosed("closed"))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ProducerClosed, ProducerClosed]
    assert outcomes[0] is not outcomes[1]
    assert cancelled.cancelled()
    assert (memory.used, len(memory.waiters)) == (100, 0)


async def test_call_failed_and_cancelled_raises_cancelled_error() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER)
    (call,) = await in_line(memory, 10)
    memory.fail_waiters(lambda: ProducerClosed("closed"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert memory.used == 100


@in_virtual_time
async def test_waited_s_adds_up_served_and_unserved_calls() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER)
    assert memory.waited_s == 0
    calls = await in_line(memory, 60, 50)
    await asyncio.sleep(2)
    memory.give_back(60)
    await asyncio.sleep(1)
    calls[1].cancel()
    with pytest.raises(TimeoutError):
        await memory.take(10, asyncio.get_running_loop().time() + 4)
    await asyncio.gather(*calls, return_exceptions=True)
    assert memory.waited_s == 2 + 3 + 4


async def test_granted_bytes_stay_with_the_owner_until_used() -> None:
    memory = MemoryBudget(100)
    await memory.take(60, NEVER, "owner")
    assert memory.granted == {"owner": 60}
    assert (memory.use("owner"), memory.use("owner")) == (60, 0)
    assert memory.granted == {}


async def test_waiting_owner_is_granted_its_bytes() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER, "first")
    waiting = asyncio.create_task(memory.take(60, NEVER, "second"))
    await asyncio.sleep(0)
    memory.give_back(memory.use("first"))
    await waiting
    assert (memory.use("second"), memory.free) == (60, 40)


async def test_owner_cancelled_after_its_grant_has_no_bytes() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER, "first")
    waiting = asyncio.create_task(memory.take(60, NEVER, "second"))
    await asyncio.sleep(0)
    memory.give_back(memory.use("first"))
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (memory.use("second"), memory.free) == (0, 100)


async def test_forgotten_owner_waits_no_more() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER, "first")
    waiting = [asyncio.create_task(memory.take(50, NEVER, owner)) for owner in ("second", "third")]
    await asyncio.sleep(0)
    memory.forget("first")
    memory.forget("second")
    assert (memory.granted, [owner for *_, owner in memory.waiters]) == ({}, ["third"])
    for call in waiting:
        call.cancel()
    await asyncio.wait(waiting)


async def test_interrupted_grant_takes_the_bytes_once() -> None:
    memory = MemoryBudget(100)
    await memory.take(100, NEVER, "first")
    waiting = asyncio.create_task(memory.take(60, NEVER, "second"))
    await asyncio.sleep(0)
    # An exception interrupts the grant before the call is woken.
    memory.granted["second"] = 60
    memory.free -= 60
    memory.give_back(memory.use("first"))
    memory.give_back(20)
    await waiting
    assert (memory.use("second"), memory.free) == (60, 60)
