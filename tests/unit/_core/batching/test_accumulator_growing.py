"""Batches that grow beyond the size at which they are ready, for as long as they are not sent (KIP-782)."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from math import inf

import pytest

from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.schedule import JOINS_FOR_S
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.accumulator_rig import RECORD, VALUE, counts, put, room_for, unresolved
from tests.unit.floor_rig import NODE, TOPIC, FloorRig

READY, FULL = room_for(1, 2), room_for(1, 6)


def growing(**settings: object) -> FloorRig:
    return FloorRig(batch_bytes=READY, batch_max_bytes=FULL, **settings)  # type: ignore[arg-type]


def extend(rig: FloorRig, count: int, partition: int | None = 0) -> None:
    rows = Rows(TOPIC, range(count), [VALUE] * count, None, None, 5, None, [RECORD] * count)
    queue = None if partition is None else rig.queue(partition)
    call = SendManyCall(TOPIC, count, rig.loop)
    assert rig.accumulator.extend(rig.accumulator.topics[TOPIC], queue, rows, call) == count


def ready(rig: FloorRig) -> bool:
    return NODE in rig.accumulator.schedule.waiting


@in_virtual_time
async def test_ready_batch_grows_until_it_is_drained() -> None:
    rig = growing()
    for _ in range(2):
        put(rig)
    assert not ready(rig)
    wakes = rig.wakes
    put(rig)
    assert ready(rig)
    assert rig.wakes == wakes + 1
    put(rig)
    put(rig)
    [batch] = unresolved(rig)
    assert (batch.state, len(batch)) == (BatchState.OPEN, 5)
    assert rig.wakes == wakes + 1
    assert rig.accumulator.memory.used == batch.size == room_for(1, 5)
    assert rig.accumulator.schedule.next_due() == inf, "the batch no longer lingers"
    assert rig.accumulator.schedule.drain(NODE, rig.loop.time(), 2**31) == [batch]
    put(rig)
    assert counts(unresolved(rig)) == [5, 1]


@in_virtual_time
async def test_batch_at_its_limit_grows_to_four_times() -> None:
    rig = FloorRig(batch_bytes=READY, batch_max_bytes=room_for(1, 100))
    limits = []
    for _ in range(64):
        put(rig)
        [batch] = unresolved(rig)
        if batch.limit not in limits:
            limits.append(batch.limit)
    assert limits[:2] == [READY, 4 * READY]
    assert all(limit > 3.4 * before for before, limit in pairwise(limits[:-1]))


@in_virtual_time
async def test_batch_takes_one_record_larger_than_its_content() -> None:
    rig = growing()
    put(rig)
    topic, large = rig.accumulator.topics[TOPIC], 5 * RECORD
    assert rig.accumulator.append(topic, rig.queue(0), VALUE, None, (), 1_000, large, rig.receipts)
    [batch] = unresolved(rig)
    assert (len(batch), batch.size, batch.state) == (2, FULL, BatchState.OPEN)


@in_virtual_time
async def test_new_batch_starts_with_the_expected_compression_rate() -> None:
    rig = growing()
    rig.accumulator.topics[TOPIC].limits.rate = 0.25
    put(rig)
    [batch] = unresolved(rig)
    assert batch.bytes_to_send() == batch.size // 4


@in_virtual_time
async def test_growing_batch_is_full_at_its_limit() -> None:
    rig = growing()
    for _ in range(7):
        put(rig)
    one, two = unresolved(rig)
    assert (len(one), one.size, one.state) == (6, FULL, BatchState.SEALED)
    assert (len(two), two.ready) == (1, False)


@in_virtual_time
async def test_old_batch_does_not_grow_beyond_its_ready_size() -> None:
    """All records of a batch share the deadline of its first record."""
    rig = growing()
    put(rig)
    await asyncio.sleep(JOINS_FOR_S + 0.1)
    for _ in range(2):
        put(rig)
    assert counts(unresolved(rig)) == [2, 1]


@in_virtual_time
async def test_growing_batch_respects_a_lowered_limit() -> None:
    rig = growing()
    for _ in range(3):
        put(rig)
    [batch] = unresolved(rig)
    rig.accumulator.topics[TOPIC].refused(batch, READY, rig.loop.time())
    put(rig)
    assert counts(unresolved(rig)) == [3, 1]


@pytest.mark.parametrize(("count", "batches"), [(5, [5]), (7, [6, 1])])
@in_virtual_time
async def test_rows_of_a_partition_fill_a_large_batch_at_once(count: int, batches: list[int]) -> None:
    rig = growing()
    extend(rig, count)
    assert counts(unresolved(rig)) == batches
    assert ready(rig)
    assert [batch.ready for batch in unresolved(rig)] == [True, False][: len(batches)]


@in_virtual_time
async def test_batch_of_few_rows_waits_for_more() -> None:
    rig = growing()
    extend(rig, 2)
    assert not ready(rig)
    put(rig)
    assert ready(rig)
    assert counts(unresolved(rig)) == [3]


@in_virtual_time
async def test_rows_do_not_grow_a_batch_that_was_opened_long_ago() -> None:
    rig = growing()
    put(rig)
    await asyncio.sleep(JOINS_FOR_S + 0.1)
    extend(rig, 4)
    assert counts(unresolved(rig)) == [2, 3]


@in_virtual_time
async def test_rows_for_any_partition_are_shared_out_among_all() -> None:
    rig = growing(partitions=2)
    extend(rig, 8, None)
    batches = unresolved(rig)
    assert counts(batches) == [4, 4]
    assert set(rig.accumulator.schedule.drain(NODE, rig.loop.time(), 2**31)) == set(batches)
    assert {batch.topic_partition.partition for batch in batches} == {0, 1}


@in_virtual_time
async def test_keyless_rows_return_to_batches_that_are_ready() -> None:
    rig = growing(partitions=2)
    for _ in range(3):
        extend(rig, 4, None)
    assert sorted(counts(unresolved(rig))) == [6, 6]
