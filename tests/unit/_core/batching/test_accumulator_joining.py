"""The time in which records may join an open batch: they share the deadline of its oldest record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.schedule import JOINS_FOR_S
from aioproducer.testing.virtual_time import in_virtual_time
from tests.cases import for_each
from tests.unit._core.batching.accumulator_rig import RECORD, VALUE, counts, room_for, unresolved
from tests.unit.floor_rig import NODE, TOPIC, FloorRig


def join(rig: FloorRig, how: str) -> None:
    """Append one record."""
    accumulator, topic = rig.accumulator, rig.accumulator.topics[TOPIC]
    if how == "value":
        topic.sticky = rig.queue()
        _ = accumulator.append_to_open(topic, VALUE, rig.receipts)
    elif how == "send_many":
        call = SendManyCall(TOPIC, 1, rig.loop)
        rows = Rows(TOPIC, range(1), [VALUE], None, None, 5, None, [RECORD])
        assert accumulator.extend(topic, rig.queue(), rows, call) == 1
    else:
        key, headers = (b"k", ()) if how == "key" else (None, (("name", b"value"),))
        _ = rig.append(VALUE, key=key, headers=headers)


def wait(rig: FloorRig, called_at: float) -> Batch:
    """Append the record of a call that has waited since *called_at*; return its batch."""
    topic, record, future = rig.accumulator.topics[TOPIC], (VALUE, None, (), 1, RECORD), rig.receipts.waiter()
    place = rig.accumulator.append_and_locate(
        topic, rig.queue(), *record, kind=rig.receipts, called_at=called_at, waiter=future
    )
    assert place is not None
    batch, index = place
    assert batch.indices_of(future) == [index]
    return batch


every_way = pytest.mark.parametrize("how", ["value", "key", "headers", "send_many"])


@every_way
@for_each(("linger_s", "joins_for_s"), [(0.0, 1.0), (0.005, 1.0), (1.0, 1.0), (5.0, 5.0)])
@in_virtual_time
async def test_record_joins_a_batch_within_its_window(how: str, linger_s: float, joins_for_s: float) -> None:
    rig = FloorRig(linger_s=linger_s)
    for after_s in (0.0, joins_for_s / 2, joins_for_s / 2 - 0.01, 0.02, joins_for_s - 0.02, 0.0):
        await asyncio.sleep(after_s)
        rig.accumulator.schedule.collect(rig.loop.time(), hurry=False)
        rig.accumulator.windows.seal_old(rig.loop.time())
        join(rig, how)
    assert counts(unresolved(rig)) == [3, 3]
    first, second = unresolved(rig)
    assert second.deadline - first.deadline == pytest.approx(joins_for_s + 0.01)


@in_virtual_time
async def test_accumulator_is_looked_at_when_a_window_ends() -> None:
    rig = FloorRig(partitions=3)
    assert rig.accumulator.windows.seal_old(0.0) == rig.accumulator.windows.check_at == inf
    join(rig, "key")
    assert rig.accumulator.windows.check_at == JOINS_FOR_S
    await asyncio.sleep(0.4)
    batch = rig.fill(partition=1)
    assert rig.accumulator.windows.seal_old(rig.loop.time()) == JOINS_FOR_S
    await asyncio.sleep(JOINS_FOR_S - 0.4)
    assert rig.accumulator.windows.seal_old(rig.loop.time()) == JOINS_FOR_S + 0.4
    assert (rig.queue(0).open, rig.queue(1).open) == (None, batch)
    rig.drain()
    await asyncio.sleep(0.4)
    assert rig.accumulator.windows.seal_old(rig.loop.time()) == inf, "nothing is left to look at"


@in_virtual_time
async def test_busy_partition_is_looked_at_once_per_window() -> None:
    rig = FloorRig(linger_s=0.0)
    for _ in range(50):
        join(rig, "key")
        rig.accumulator.schedule.drain(NODE, rig.loop.time(), 2**31)
        for batch in unresolved(rig):
            rig.completion.complete(batch, 0)
    assert len(rig.accumulator.windows._watched) == 1


@in_virtual_time
async def test_window_and_deadline_count_from_a_call_that_waited() -> None:
    rig = FloorRig(delivery_timeout_s=120.0)
    await asyncio.sleep(50)
    old = wait(rig, 10.0)
    assert (old.deadline, old.joins_until) == (130.0, 10.0 + JOINS_FOR_S)
    assert wait(rig, 10.5) is old
    assert wait(rig, 11.0) is old
    younger = wait(rig, 11.5)
    assert younger.deadline == 131.5
    assert wait(rig, 12.0) is younger
    join(rig, "value")
    join(rig, "key")
    assert counts(unresolved(rig)) == [3, 2, 2]
    assert unresolved(rig)[-1].deadline == 170.0


@in_virtual_time
async def test_calls_that_waited_fill_batches_to_their_full_size() -> None:
    rig = FloorRig(batch_bytes=1_000, batch_max_bytes=4_000)
    await asyncio.sleep(50)
    for _ in range(100):
        wait(rig, 10.0)
    *full, _ = batches = unresolved(rig)
    assert sum(counts(batches)) == 100
    assert all(4_000 - RECORD < batch.size <= 4_000 for batch in full)


@in_virtual_time
async def test_call_that_finds_no_memory_leaves_an_old_batch_closed() -> None:
    rig = FloorRig()
    await asyncio.sleep(50)
    old = wait(rig, 10.5)
    free, rig.accumulator.memory.free = rig.accumulator.memory.free, 0
    topic, args = rig.accumulator.topics[TOPIC], (VALUE, None, (), 1, RECORD)
    assert (
        rig.accumulator.append_and_locate(
            topic, rig.queue(), *args, kind=rig.receipts, called_at=10.0, waiter=rig.receipts.waiter()
        )
        is None
    )
    rig.accumulator.memory.free = free
    assert old.deadline == 130.5
    join(rig, "value")
    assert counts([old]) == [1]


@in_virtual_time
async def test_call_older_than_a_batch_moves_the_deadline_earlier() -> None:
    rig = FloorRig(delivery_timeout_s=30.0)
    await asyncio.sleep(5)
    batch, wakes = rig.fill(), rig.wakes
    assert wait(rig, 4.5) is batch
    assert (batch.deadline, rig.wakes) == (34.5, wakes + 1)
    assert wait(rig, 4.5) is batch
    assert wait(rig, 4.8) is batch
    assert (batch.deadline, rig.wakes) == (34.5, wakes + 1)
    assert rig.accumulator.deadlines.take_due(34.5) == [batch]


def wait_rows(rig: FloorRig, called_at: float, count: int = 1) -> Batch:
    """Append the rows of a `send_many` call that has waited since *called_at*; return their batch."""
    topic, call = rig.accumulator.topics[TOPIC], SendManyCall(TOPIC, count, rig.loop)
    rows = Rows(TOPIC, range(count), [VALUE] * count, None, None, 5, None, [RECORD] * count)
    assert rig.accumulator.extend(topic, rig.queue(), rows, call, called_at=called_at) == count
    [batch] = {waiters.batch for waiters in call.live}
    assert batch is not None
    return batch


every_wait = pytest.mark.parametrize("append", [wait, wait_rows])


@every_wait
@in_virtual_time
async def test_batch_of_calls_that_waited_lingers(append: Callable[[FloorRig, float], Batch]) -> None:
    rig = FloorRig(linger_s=1.0)
    await asyncio.sleep(50)
    old = append(rig, 10.0)
    assert append(rig, 10.5) is old
    assert (old.deadline, old.joins_until, old.ready) == (130.0, 11.0, False)
    assert append(rig, 11.5) is not old


@every_wait
@in_virtual_time
async def test_call_made_after_the_window_does_not_join(append: Callable[[FloorRig, float], Batch]) -> None:
    rig = FloorRig()
    batch = rig.fill()
    await asyncio.sleep(JOINS_FOR_S + 1.0)  # the event loop was blocked: no timer has sealed the batch
    younger = append(rig, JOINS_FOR_S + 0.5)
    assert younger is not batch
    assert younger.deadline == JOINS_FOR_S + 0.5 + 120.0


@every_wait
@in_virtual_time
async def test_window_includes_its_last_moment(append: Callable[[FloorRig, float], Batch]) -> None:
    rig = FloorRig(linger_s=1.0)
    await asyncio.sleep(50)
    batch = append(rig, 49.0)
    join(rig, "value")
    assert (counts([batch]), batch.ready) == ([2], False)


@in_virtual_time
async def test_rows_of_a_call_that_waited_grow_its_batch() -> None:
    rig = FloorRig(batch_bytes=room_for(1, 2), batch_max_bytes=room_for(1, 9))
    await asyncio.sleep(50)
    batch = wait_rows(rig, 10.0, 2)
    assert wait_rows(rig, 10.5, 2) is batch
    assert counts(unresolved(rig)) == [4]
