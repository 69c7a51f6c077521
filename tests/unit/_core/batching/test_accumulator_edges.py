"""Records, batches and memory at their limits, and the choice of partitions."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.accumulator_rig import RECORD, VALUE, counts, put, room_for, unresolved
from tests.unit.floor_rig import NODE, TOPIC, FloorRig

READY, FULL = room_for(1, 2), room_for(1, 4)


def extend(rig: FloorRig, count: int, partition: int | None = 0) -> int:
    rows = Rows(TOPIC, range(count), [VALUE] * count, None, None, 5, None, [RECORD] * count)
    queue = None if partition is None else rig.queue(partition)
    call = SendManyCall(TOPIC, count, rig.loop)
    return rig.accumulator.extend(rig.accumulator.topics[TOPIC], queue, rows, call)


def stuck_to(rig: FloorRig, partition: int) -> None:
    """Let records without a partition go to *partition*."""
    topic = rig.accumulator.topics[TOPIC]
    while topic.sticky is not rig.queue(partition):
        topic.switch()


def partitions(rig: FloorRig) -> list[int]:
    return [batch.topic_partition.partition for batch in unresolved(rig)]


class TestMemory:
    @in_virtual_time
    async def test_joining_record_may_take_the_last_byte(self) -> None:
        rig = FloorRig(buffer_bytes=room_for(1, 2))
        assert put(rig) is not None
        assert put(rig) is not None
        assert rig.accumulator.memory.free == 0

    @pytest.mark.parametrize(("missing", "went"), [(0, 1), (1, 0)])
    @in_virtual_time
    async def test_first_row_may_take_the_last_byte(self, missing: int, went: int) -> None:
        rig = FloorRig()
        rig.accumulator.memory.free = rig.accumulator.settings.room_for(RECORD) - missing
        assert extend(rig, 3) == went

    @in_virtual_time
    async def test_failed_batch_is_resolved_and_wakes_the_sender_once(self) -> None:
        rig = FloorRig()
        batch = rig.fill()
        for _ in range(2):  # its call may have given up before its deadline did
            rig.accumulator.resolved(batch)
            assert unresolved(rig) == []
        assert rig.wakes == 2


class TestJoining:
    @in_virtual_time
    async def test_keyless_record_joins_without_making_the_batch_ready(self) -> None:
        rig = FloorRig(batch_bytes=READY, batch_max_bytes=FULL)
        put(rig, None)
        put(rig, None)
        [batch] = unresolved(rig)
        assert (len(batch), batch.ready) == (2, False)

    @in_virtual_time
    async def test_growing_batch_is_filled_to_the_last_byte(self) -> None:
        rig = FloorRig(batch_bytes=READY, batch_max_bytes=room_for(1, 3))
        for _ in range(3):
            put(rig)
        [batch] = unresolved(rig)
        assert (len(batch), batch.state, batch.ready) == (3, BatchState.OPEN, True)

    @pytest.mark.parametrize("fits", [True, False])
    @in_virtual_time
    async def test_batch_of_the_next_partition_is_ready_if_it_has_no_room(self, fits: bool) -> None:
        rig = FloorRig(partitions=2, batch_bytes=READY, batch_max_bytes=READY if fits else FULL)
        stuck_to(rig, 0)
        for _ in range(1 if fits else 2):
            put(rig, 1)
        for _ in range(3):
            put(rig, None)
        there = next(batch for batch in unresolved(rig) if batch.topic_partition.partition == 1)
        assert there.ready is not fits
        assert len(there) == (2 if fits else 3)


class TestPartition:
    """Rows and records for one partition while a partition is sticky."""

    @in_virtual_time
    async def test_rows_for_a_partition_leave_the_sticky_one_alone(self) -> None:
        rig = FloorRig(partitions=3, batch_bytes=READY)
        stuck_to(rig, 1)
        assert extend(rig, 5, 2) == 5
        assert partitions(rig) == [2, 2, 2]

    @in_virtual_time
    async def test_full_batch_of_another_partition_keeps_the_sticky_one(self) -> None:
        rig = FloorRig(partitions=3, batch_bytes=READY)
        stuck_to(rig, 1)
        for _ in range(3):
            put(rig, 2)
        assert rig.accumulator.topics[TOPIC].sticky is rig.queue(1)

    @in_virtual_time
    async def test_full_batch_of_the_sticky_partition_switches(self) -> None:
        rig = FloorRig(partitions=3, batch_bytes=READY)
        stuck_to(rig, 1)
        for _ in range(3):
            put(rig, 1)
        assert rig.accumulator.topics[TOPIC].sticky is not rig.queue(1)
        assert partitions(rig) == [1, 1]

    @in_virtual_time
    async def test_rows_for_one_of_several_fill_a_batch_at_once(self) -> None:
        rig = FloorRig(partitions=3, batch_bytes=READY, batch_max_bytes=room_for(1, 9))
        assert extend(rig, 9, 2) == 9
        assert counts(unresolved(rig)) == [9]

    @in_virtual_time
    async def test_rows_for_any_that_are_shared_out_stay_together(self) -> None:
        rig = FloorRig(partitions=2, batch_bytes=READY, batch_max_bytes=FULL)
        values = [b"%d" % number for number in range(8)]
        rows = Rows(TOPIC, range(8), values, None, None, 5, None, [RECORD] * 8)
        call = SendManyCall(TOPIC, 8, rig.loop)
        assert rig.accumulator.extend(rig.accumulator.topics[TOPIC], None, rows, call) == 8
        assert [batch.columns.values for batch in unresolved(rig)] == [values[:4], values[4:]]

    @in_virtual_time
    async def test_sticky_partition_gets_at_most_its_share_of_bytes(self) -> None:
        rig = FloorRig(partitions=2, batch_bytes=90, batch_max_bytes=FULL)
        rows = Rows(TOPIC, range(3), [b"a", b"b", b"c"], None, None, 5, None, [50, 50, 99])
        call = SendManyCall(TOPIC, 3, rig.loop)
        assert rig.accumulator.extend(rig.accumulator.topics[TOPIC], None, rows, call) == 3
        assert unresolved(rig)[0].columns.values[:2] != [b"a", b"b"]

    @in_virtual_time
    async def test_keyless_rows_stay_in_the_sticky_partition(self) -> None:
        rig = FloorRig(partitions=3)
        stuck_to(rig, 1)
        for _ in range(5):
            assert extend(rig, 1, None) == 1
        assert partitions(rig) == [1]

    @in_virtual_time
    async def test_timeout_of_zero_excludes_no_broker(self) -> None:
        rig = FloorRig(partitions=0, availability_timeout_s=0.0, partitioning_is_adaptive=False)
        topic = rig.learn(TOPIC, NODE, 2)
        rig.accumulator.seal(rig.fill(partition=0), rig.loop.time())
        await asyncio.sleep(60)
        assert {topic.switch().partition for _ in range(50)} == {0, 1}


async def test_unused_topic_is_kept_until_its_last_call_leaves() -> None:
    rig = FloorRig(partitions=0)
    topic = rig.accumulator.topic("nowhere")
    for call in ("one", "other"):
        rig.accumulator.enter(call, topic, 1)
    rig.accumulator.leave("one", topic)
    assert "nowhere" in rig.accumulator.topics
    rig.accumulator.leave("other", topic)
    assert "nowhere" not in rig.accumulator.topics


async def test_recount_keeps_memory_of_batches_and_calls() -> None:
    rig = FloorRig()
    batch = rig.fill()
    memory = rig.accumulator.memory
    await memory.take(100, 1.0, "call")
    used = memory.used
    memory.free -= 7  # an exception came between two writes
    rig.accumulator.recount()
    assert memory.used == used == batch.size + 100
