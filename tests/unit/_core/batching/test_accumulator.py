from __future__ import annotations

import asyncio
from math import inf

import pytest

from aioproducer._core.batching.accumulator import USED_FOR_S
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.clock import TURN_AFTER_S
from aioproducer._core.idempotence import ProducerIdentity
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer.errors import ProducerClosed
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.types import Headers
from tests.unit._core.batching.accumulator_rig import BATCH, RECORD, VALUE, counts, put, room_for, unresolved
from tests.unit.floor_rig import NODE, TOPIC, FloorRig
from tests.unit.producer_rig import advance


@in_virtual_time
async def test_first_record_opens_a_batch_and_takes_memory() -> None:
    rig = FloorRig(delivery_timeout_s=30.0)
    assert rig.accumulator.idle
    future = put(rig)
    assert future is not None
    [batch] = unresolved(rig)
    assert rig.queue().open is batch
    assert batch.indices_of(future) == [0]
    assert (batch.columns.values, batch.columns.timestamps) == ([VALUE], [1_000])
    assert batch.size == rig.accumulator.memory.used == room_for(1, 1)
    assert batch.deadline == rig.accumulator.deadlines.next_due() == 30.0
    assert rig.accumulator.unfinished == 1
    assert not rig.accumulator.idle
    assert rig.updater.touched == [TOPIC]


@in_virtual_time
async def test_topic_counts_as_used_once_per_second() -> None:
    rig = FloorRig()
    for expected in (1, 1, 2):
        put(rig)
        assert rig.updater.touched == [TOPIC] * expected
        assert rig.updater.used_until == {TOPIC: expected * USED_FOR_S}
        rig.accumulator.seal(unresolved(rig)[-1], rig.loop.time())
        advance(0.5)


@in_virtual_time
async def test_second_record_joins_the_open_batch_without_a_wakeup() -> None:
    rig = FloorRig()
    put(rig)
    wakes = rig.wakes
    put(rig)
    [batch] = unresolved(rig)
    assert len(batch) == 2
    assert rig.wakes == wakes
    assert rig.accumulator.memory.used == room_for(1, 2)


@in_virtual_time
async def test_keys_and_headers_are_kept_per_record() -> None:
    rig = FloorRig()
    parts: list[tuple[bytes | None, Headers]] = [(b"k", ()), (None, (("h", b"1"),)), (None, ())]
    for key, headers in parts:
        assert rig.accumulator.append(
            rig.accumulator.topics[TOPIC], rig.queue(), VALUE, key, headers, 1, RECORD, rig.receipts
        )
    [batch] = unresolved(rig)
    assert batch.columns.keys == [b"k", None, None]
    assert batch.columns.headers == [(), (("h", b"1"),), ()]
    assert len(batch.stretches) == 1


@in_virtual_time
async def test_new_batch_wakes_the_sender_only_if_it_is_due_next() -> None:
    rig = FloorRig(partitions=2)
    put(rig, 0)
    wakes = rig.wakes
    assert rig.accumulator.schedule.next_due() == 0.005
    put(rig, 1)
    assert rig.wakes == wakes


@in_virtual_time
async def test_new_batch_wakes_the_sender_during_a_flush() -> None:
    rig = FloorRig(partitions=2)
    put(rig, 0)
    rig.accumulator.flushing.add(1)
    wakes = rig.wakes
    put(rig, 1)
    assert rig.wakes == wakes + 1


@in_virtual_time
async def test_full_batch_is_sealed_and_the_next_batch_opened() -> None:
    rig = FloorRig(batch_bytes=room_for(1, 2))
    for _ in range(3):
        put(rig)
    full, rest = unresolved(rig)
    assert (len(full), full.state) == (2, BatchState.SEALED)
    assert (len(rest), rest.state) == (1, BatchState.OPEN)
    assert list(rig.accumulator.schedule.waiting) == [NODE]


@in_virtual_time
async def test_record_larger_than_a_batch_gets_its_own_batch() -> None:
    rig = FloorRig(batch_bytes=10)
    put(rig)
    put(rig)
    assert [(len(batch), batch.limit) for batch in unresolved(rig)] == [(1, room_for(1, 1))] * 2


@in_virtual_time
async def test_keyless_records_fill_a_batch_before_they_switch() -> None:
    rig = FloorRig(partitions=2, batch_bytes=room_for(1, 2))
    for _ in range(4):
        put(rig, None)
    one, other = unresolved(rig)
    assert (len(one), len(other)) == (2, 2)
    assert {one.topic_partition.partition, other.topic_partition.partition} == {0, 1}
    assert one.state is BatchState.SEALED


@in_virtual_time
async def test_partition_switch_joins_an_open_batch_with_room() -> None:
    rig = FloorRig(partitions=2, batch_bytes=room_for(1, 2))
    put(rig, None)
    [full] = unresolved(rig)
    put(rig, 1 - full.topic_partition.partition)
    put(rig, None)
    put(rig, None)
    _, there = unresolved(rig)
    assert (len(full), full.state) == (2, BatchState.SEALED)
    assert (len(there), there.state) == (2, BatchState.OPEN)


@in_virtual_time
async def test_partition_switch_seals_a_batch_without_room() -> None:
    rig = FloorRig(partitions=2, batch_bytes=room_for(1, 2))
    put(rig, None)
    sticky = unresolved(rig)[0].topic_partition.partition
    put(rig, 1 - sticky)
    put(rig, 1 - sticky)
    put(rig, None)
    put(rig, None)
    batches = unresolved(rig)
    assert [batch.topic_partition.partition for batch in batches] == [sticky, 1 - sticky, 1 - sticky]
    assert counts(batches) == [2, 2, 1]
    assert [batch.state for batch in batches] == [BatchState.SEALED, BatchState.SEALED, BatchState.OPEN]


@in_virtual_time
async def test_append_changes_nothing_without_memory_for_a_batch() -> None:
    rig = FloorRig(buffer_bytes=room_for(1, 1) - 1)
    assert put(rig) is None
    assert rig.accumulator.memory.used == 0
    assert unresolved(rig) == []


@in_virtual_time
async def test_open_batch_is_unchanged_without_memory_for_a_record() -> None:
    rig = FloorRig(buffer_bytes=room_for(1, 2) - 1)
    assert put(rig) is not None
    assert put(rig) is None
    [batch] = unresolved(rig)
    assert len(batch) == 1
    assert rig.accumulator.memory.used == room_for(1, 1)


@in_virtual_time
async def test_append_waits_behind_calls_that_wait_for_memory() -> None:
    rig = FloorRig()
    waiting = asyncio.create_task(rig.accumulator.memory.take(10**9, 1.0))
    await asyncio.sleep(0)
    assert rig.accumulator.hurries()
    assert put(rig) is None
    with pytest.raises(TimeoutError):
        await waiting
    assert not rig.accumulator.hurries()
    assert put(rig) is not None


@in_virtual_time
async def test_reserved_append_returns_the_rest() -> None:
    rig = FloorRig(buffer_bytes=room_for(2, 2))
    put(rig)
    memory = rig.accumulator.memory
    await memory.take(room_for(1, 1), 1.0)
    next_in_line = asyncio.create_task(memory.take(BATCH, 1.0))
    await asyncio.sleep(0)
    assert put(rig, reserved=room_for(1, 1)) is not None  # needed no batch
    await next_in_line
    assert memory.used == room_for(1, 2) + BATCH


@pytest.mark.parametrize("opened", [True, False])
@in_virtual_time
async def test_reserved_append_works_if_memory_is_overdrawn(opened: bool) -> None:
    rig = FloorRig()
    if opened:
        put(rig)
    rig.accumulator.memory.free = -1_000
    assert put(rig, reserved=room_for(1, 1)) is not None
    assert rig.accumulator.memory.free == -1_000 + (BATCH if opened else 0)


@in_virtual_time
async def test_append_and_locate_returns_batch_and_index() -> None:
    rig = FloorRig()
    topic = rig.accumulator.topics[TOPIC]
    for queue in (rig.queue(), None):
        record, future = (VALUE, None, (), 1, RECORD), rig.receipts.waiter()
        place = rig.accumulator.append_and_locate(
            topic, queue, *record, kind=rig.receipts, called_at=0.0, waiter=future
        )
        assert place is not None
        batch, index = place
        assert batch is rig.queue().open
        assert batch.indices_of(future) == [index]
        assert rig.accumulator.place_of(future) == place


@in_virtual_time
async def test_append_and_locate_returns_none_without_memory() -> None:
    rig = FloorRig(buffer_bytes=10)
    topic = rig.accumulator.topics[TOPIC]
    record, future = (VALUE, None, (), 1, RECORD), rig.receipts.waiter()
    for queue in (rig.queue(), None):
        assert (
            rig.accumulator.append_and_locate(
                topic, queue, *record, kind=rig.receipts, called_at=0.0, waiter=future
            )
            is None
        )
    assert rig.accumulator.place_of(future) is None


@in_virtual_time
async def test_leaders_of_an_unknown_topic_are_of_no_interest() -> None:
    rig = FloorRig(partitions=0)
    rig.accumulator.update_topic("other", [NODE])
    assert not rig.accumulator.topics
    assert rig.wakes == 0


@in_virtual_time
async def test_waiting_batches_are_offered_to_a_new_leader() -> None:
    rig = FloorRig()
    rig.learn(TOPIC, NO_LEADER)
    rig.accumulator.seal(rig.fill(), 0.0)
    assert list(rig.accumulator.schedule.waiting) == []
    wakes = rig.wakes
    rig.learn(TOPIC, 2)
    assert list(rig.accumulator.schedule.waiting) == [2]
    assert rig.wakes == wakes + 1
    rig.learn(TOPIC, 2)
    assert rig.wakes == wakes + 1


@in_virtual_time
async def test_idle_topic_is_forgotten_with_its_sequences() -> None:
    rig = FloorRig()
    batch, futures = rig.sent()
    rig.accumulator.update_topic(TOPIC, [])
    assert TOPIC in rig.accumulator.topics  # its batch is with the broker
    rig.completion.complete(batch, 0)
    rig.accumulator.update_topic(TOPIC, [])
    assert TOPIC not in rig.accumulator.topics
    assert rig.identities.current == ProducerIdentity(7, 1)
    assert (await futures[0]).offset == 0


@in_virtual_time
async def test_close_fails_memory_waiters_and_returns_pending_calls() -> None:
    rig = FloorRig()
    rig.accumulator.pending_calls["one"] = 1
    assert not rig.accumulator.idle
    waiting = asyncio.create_task(rig.accumulator.memory.take(10**9, 1.0))
    await asyncio.sleep(0)
    failure = Failure(ProducerClosed, "over")
    assert rig.accumulator.close(failure) == 1
    assert rig.accumulator.closed_for is failure
    with pytest.raises(ProducerClosed, match="over"):
        await waiting


@in_virtual_time
async def test_flush_waits_for_batches_appended_before_it() -> None:
    rig = FloorRig(partitions=2)
    before = rig.fill()
    wakes = rig.wakes
    flush = asyncio.create_task(rig.accumulator.flush())
    await asyncio.sleep(0)
    assert rig.wakes == wakes + 1
    assert rig.accumulator.hurries()
    _ = rig.fill(partition=1)
    _ = rig.drain()
    rig.completion.complete(before, 0)
    await flush
    assert not rig.accumulator.hurries()
    assert len(unresolved(rig)) == 1


@in_virtual_time
async def test_cancelled_flush_no_longer_hurries_batches() -> None:
    rig = FloorRig()
    batch = rig.fill()
    flush = asyncio.create_task(rig.accumulator.flush())
    await asyncio.sleep(0)
    flush.cancel()
    await asyncio.wait([flush])
    assert flush.cancelled()
    assert not rig.accumulator.hurries()
    assert unresolved(rig) == [batch]


async def test_call_and_its_arriving_records_count_until_it_leaves() -> None:
    rig = FloorRig()
    accumulator, topic = rig.accumulator, rig.accumulator.topic(TOPIC)
    accumulator.enter("one", topic, 5)
    accumulator.arrived("one", 2)
    assert (
        len(accumulator.pending_calls),
        len(topic.pending_calls),
        accumulator.arriving,
        accumulator.idle,
    ) == (
        1,
        1,
        3,
        False,
    )
    accumulator.leave("one", topic)
    assert (
        len(accumulator.pending_calls),
        len(topic.pending_calls),
        accumulator.arriving,
        accumulator.idle,
    ) == (
        0,
        0,
        0,
        True,
    )


async def test_held_batch_keeps_memory_and_deadline_until_released() -> None:
    rig = FloorRig()
    accumulator, queue = rig.accumulator, rig.queue()
    free, batch = accumulator.memory.free, Batch(queue.topic_partition, (1,), created_at=0.0, deadline=9.0)
    batch.keep_encoded(bytearray(b"bytes"))
    accumulator.hold(batch)
    assert accumulator.memory.free == free - batch.size
    assert (accumulator.unfinished, list(accumulator.unresolved)) == (1, [batch])
    accumulator.resolved(batch)
    assert (accumulator.unfinished, accumulator.idle, accumulator.deadlines.next_due()) == (1, True, inf)
    accumulator.release(batch)
    assert (accumulator.unfinished, accumulator.memory.free, batch.encoded) == (0, free, None)


async def test_leader_of_a_batch_is_unknown_without_its_topic() -> None:
    rig = FloorRig()
    put(rig, 0)
    [batch] = unresolved(rig)
    assert rig.accumulator.queue(batch) is rig.queue()
    assert rig.accumulator.leader(batch) == NODE
    del rig.accumulator.topics[TOPIC]
    assert rig.accumulator.leader(batch) == NO_LEADER


@in_virtual_time
async def test_yield_may_be_due_only_when_a_batch_opens_or_fills() -> None:
    rig = FloorRig(batch_bytes=BATCH + 2 * RECORD)
    yields = rig.accumulator.yields
    put(rig)
    assert not yields.should_yield
    advance(TURN_AFTER_S)
    put(rig)
    assert not yields.should_yield
    put(rig)
    assert yields.should_yield
