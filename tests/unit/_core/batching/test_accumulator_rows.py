from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.accumulator_rig import BATCH, RECORD, VALUE, counts, put, room_for, unresolved
from tests.unit.floor_rig import TOPIC, FloorRig


def rows(count: int) -> Rows:
    return Rows(TOPIC, range(count), [VALUE] * count, None, None, 5, None, [RECORD] * count)


def extend(rig: FloorRig, part: Rows, partition: int | None = 0, *, reserved: int = 0) -> int:
    call = SendManyCall(TOPIC, len(part), rig.loop)
    queue = None if partition is None else rig.queue(partition)
    stop = rig.accumulator.extend(rig.accumulator.topics[TOPIC], queue, part, call, reserved)
    assert call.partitions == {
        batch.topic_partition.partition for batch in unresolved(rig) if batch.indices_of(call)
    }
    return stop


@in_virtual_time
async def test_rows_fill_one_batch_after_the_other() -> None:
    rig = FloorRig(batch_bytes=room_for(1, 2))
    assert extend(rig, rows(5)) == 5
    batches = unresolved(rig)
    assert counts(batches) == [2, 2, 1]
    assert [batch.size for batch in batches] == [room_for(1, 2), room_for(1, 2), room_for(1, 1)]
    assert batches[0].columns.timestamps == [5, 5]
    assert rig.accumulator.memory.used == room_for(3, 5)
    assert [batch.state for batch in batches] == [BatchState.SEALED, BatchState.SEALED, BatchState.OPEN]


@in_virtual_time
async def test_rows_join_the_batch_that_is_open() -> None:
    rig = FloorRig()
    put(rig)
    assert extend(rig, rows(2)) == 2
    put(rig)
    [batch] = unresolved(rig)
    assert len(batch) == 4
    assert [len(run) for run in batch.stretches] == [1, 2, 1]


@in_virtual_time
async def test_rows_without_a_partition_stick_to_one_per_batch() -> None:
    rig = FloorRig(partitions=2, batch_bytes=room_for(1, 2))
    assert extend(rig, rows(6), None) == 6
    one, two, three = unresolved(rig)
    assert one.topic_partition == three.topic_partition
    assert one.topic_partition != two.topic_partition


@in_virtual_time
async def test_extend_without_rows_does_nothing() -> None:
    rig = FloorRig()
    assert extend(rig, rows(0)) == 0
    assert unresolved(rig) == []


@in_virtual_time
async def test_rows_larger_than_a_batch_have_one_each() -> None:
    rig = FloorRig(batch_bytes=10)
    assert extend(rig, rows(2)) == 2
    assert counts(unresolved(rig)) == [1, 1]


@in_virtual_time
async def test_rows_fill_the_open_batch_up_to_the_memory() -> None:
    rig = FloorRig(buffer_bytes=room_for(1, 3) + 10)
    assert extend(rig, rows(5)) == 3
    assert rig.accumulator.memory.free == 10
    assert counts(unresolved(rig)) == [3]


@in_virtual_time
async def test_rows_stop_without_memory_for_the_next_batch() -> None:
    rig = FloorRig(batch_bytes=room_for(1, 2), buffer_bytes=room_for(2, 3) - 1)
    assert extend(rig, rows(5)) == 2
    assert counts(unresolved(rig)) == [2]


@in_virtual_time
async def test_rows_do_not_overtake_calls_that_wait_for_memory() -> None:
    rig = FloorRig()
    waiting = asyncio.create_task(rig.accumulator.memory.take(10**9, 1.0))
    await asyncio.sleep(0)
    assert extend(rig, rows(2)) == 0
    with pytest.raises(TimeoutError):
        await waiting


@pytest.mark.parametrize("opened", [True, False])
@in_virtual_time
async def test_rows_with_reserved_memory_append_one_if_overdrawn(opened: bool) -> None:
    rig = FloorRig()
    if opened:
        put(rig)
    rig.accumulator.memory.free = -1_000
    assert extend(rig, rows(3), reserved=room_for(1, 1)) == 1
    assert rig.accumulator.memory.free == -1_000 + (BATCH if opened else 0)


@in_virtual_time
async def test_rows_with_reserved_memory_also_use_free_memory() -> None:
    rig = FloorRig(buffer_bytes=room_for(1, 3))
    await rig.accumulator.memory.take(room_for(1, 1), 1.0)
    assert extend(rig, rows(3), reserved=room_for(1, 1)) == 3
    assert rig.accumulator.memory.free == 0
