from __future__ import annotations

import asyncio

import pytest

from aioproducer.batching.failure import Failure
from aioproducer.batching.state import BatchState
from aioproducer.errors import ProducerClosed, RecordTooLarge
from aioproducer.idempotence.identity import ProducerIdentity
from aioproducer.metadata.snapshot import NO_LEADER
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.types import Headers
from tests.unit.batching.accumulator_bench import BATCH, RECORD, VALUE, counts, put, room_for, unresolved
from tests.unit.workbench import NODE, TOPIC, Workbench


@in_virtual_time
async def test_a_record_waits_in_an_open_batch_and_takes_memory() -> None:
    bench = Workbench(delivery_timeout_s=30.0)
    assert bench.accumulator.idle
    future = put(bench)
    assert future is not None
    [batch] = unresolved(bench)
    assert bench.queue().open is batch
    assert batch.indices_of(future) == [0]
    assert (batch.columns.values, batch.columns.timestamps) == ([VALUE], [1_000])
    assert batch.size == bench.accumulator.memory.used == room_for(1, 1)
    assert batch.deadline == bench.accumulator.deadlines.next_due() == 30.0
    assert bench.accumulator.unfinished == 1
    assert not bench.accumulator.idle
    assert bench.updater.touched == [TOPIC]


@in_virtual_time
async def test_the_second_record_joins_the_first_and_wakes_nobody() -> None:
    bench = Workbench()
    put(bench)
    wakes = bench.wakes
    put(bench)
    [batch] = unresolved(bench)
    assert len(batch) == 2
    assert bench.wakes == wakes
    assert bench.accumulator.memory.used == room_for(1, 2)


@in_virtual_time
async def test_keys_and_headers_are_kept_for_those_that_have_them() -> None:
    bench = Workbench()
    parts: list[tuple[bytes | None, Headers]] = [(b"k", ()), (None, (("h", b"1"),)), (None, ())]
    for key, headers in parts:
        assert bench.accumulator.append(
            bench.accumulator.topics[TOPIC], bench.queue(), VALUE, key, headers, 1, RECORD, asyncio.Future
        )
    [batch] = unresolved(bench)
    assert batch.columns.keys == [b"k", None, None]
    assert batch.columns.headers == [(), (("h", b"1"),), ()]
    assert len(batch.runs) == 1


@in_virtual_time
async def test_a_new_batch_wakes_the_sender_only_if_it_is_the_next_to_be_due() -> None:
    bench = Workbench(partitions=2)
    put(bench, 0)
    wakes = bench.wakes
    assert bench.accumulator.schedule.next_due() == 0.005
    put(bench, 1)
    assert bench.wakes == wakes


@in_virtual_time
async def test_in_a_hurry_every_new_batch_wakes_the_sender() -> None:
    bench = Workbench(partitions=2)
    put(bench, 0)
    bench.accumulator.flushing = 1
    wakes = bench.wakes
    put(bench, 1)
    assert bench.wakes == wakes + 1


@in_virtual_time
async def test_a_full_batch_is_sealed_and_the_next_one_opened() -> None:
    bench = Workbench(batch_bytes=room_for(1, 2))
    for _ in range(3):
        put(bench)
    full, rest = unresolved(bench)
    assert (len(full), full.state) == (2, BatchState.SEALED)
    assert (len(rest), rest.state) == (1, BatchState.OPEN)
    assert bench.accumulator.schedule.nodes() == [NODE]


@in_virtual_time
async def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    bench = Workbench(batch_bytes=10)
    put(bench)
    put(bench)
    assert [len(batch) for batch in unresolved(bench)] == [1, 1]


@in_virtual_time
async def test_without_a_partition_records_stick_to_one_until_its_batch_is_full() -> None:
    bench = Workbench(partitions=2, batch_bytes=room_for(1, 2))
    for _ in range(4):
        put(bench, None)
    one, other = unresolved(bench)
    assert (len(one), len(other)) == (2, 2)
    assert {one.queue.partition, other.queue.partition} == {0, 1}
    assert one.state is BatchState.SEALED


@in_virtual_time
async def test_switching_to_another_partition_it_joins_the_batch_that_is_open_there() -> None:
    bench = Workbench(partitions=2, batch_bytes=room_for(1, 2))
    put(bench, None)
    [full] = unresolved(bench)
    put(bench, 1 - full.queue.partition)
    put(bench, None)
    put(bench, None)
    _, there = unresolved(bench)
    assert (len(full), full.state) == (2, BatchState.SEALED)
    assert (len(there), there.state) == (2, BatchState.OPEN)


@in_virtual_time
async def test_switching_to_another_partition_it_seals_a_batch_that_has_no_room() -> None:
    bench = Workbench(partitions=2, batch_bytes=room_for(1, 2))
    put(bench, None)
    sticky = unresolved(bench)[0].queue.partition
    put(bench, 1 - sticky)
    put(bench, 1 - sticky)
    put(bench, None)
    put(bench, None)
    batches = unresolved(bench)
    assert [batch.queue.partition for batch in batches] == [sticky, 1 - sticky, 1 - sticky]
    assert counts(batches) == [2, 2, 1]
    assert [batch.state for batch in batches] == [BatchState.SEALED, BatchState.SEALED, BatchState.OPEN]


@in_virtual_time
async def test_without_memory_for_a_record_and_a_batch_nothing_happens() -> None:
    bench = Workbench(buffer_bytes=room_for(1, 1) - 1)
    assert put(bench) is None
    assert bench.accumulator.memory.used == 0
    assert unresolved(bench) == []


@in_virtual_time
async def test_without_memory_for_a_record_the_open_batch_stays_as_it_is() -> None:
    bench = Workbench(buffer_bytes=room_for(1, 2) - 1)
    assert put(bench) is not None
    assert put(bench) is None
    [batch] = unresolved(bench)
    assert len(batch) == 1
    assert bench.accumulator.memory.used == room_for(1, 1)


@in_virtual_time
async def test_nobody_overtakes_those_who_wait_for_memory() -> None:
    bench = Workbench()
    waiting = asyncio.create_task(bench.accumulator.memory.take(10**9, 1.0))
    await asyncio.sleep(0)
    assert bench.accumulator.hurry
    assert put(bench) is None
    with pytest.raises(TimeoutError):
        await waiting
    assert not bench.accumulator.hurry
    assert put(bench) is not None


@in_virtual_time
async def test_who_has_waited_appends_with_what_it_got_and_passes_on_the_rest() -> None:
    bench = Workbench(buffer_bytes=room_for(2, 2))
    put(bench)
    memory = bench.accumulator.memory
    await memory.take(room_for(1, 1), 1.0)
    next_in_line = asyncio.create_task(memory.take(BATCH, 1.0))
    await asyncio.sleep(0)
    assert put(bench, reserved=room_for(1, 1)) is not None  # needed no batch
    await next_in_line
    assert memory.used == room_for(1, 2) + BATCH


@pytest.mark.parametrize("opened", [True, False])
@in_virtual_time
async def test_who_has_waited_appends_even_if_the_budget_is_overdrawn(opened: bool) -> None:
    bench = Workbench()
    if opened:
        put(bench)
    bench.accumulator.memory.free = -1_000
    assert put(bench, reserved=room_for(1, 1)) is not None
    assert bench.accumulator.memory.free == -1_000 + (BATCH if opened else 0)


@in_virtual_time
async def test_who_has_deadlines_to_see_to_is_told_the_batch() -> None:
    bench = Workbench()
    topic = bench.accumulator.topics[TOPIC]
    for queue in (bench.queue(), None):
        appended = bench.accumulator.append_slowly(topic, queue, VALUE, None, (), 1, RECORD)
        assert appended is not None
        assert appended.batch is bench.queue().open
        assert appended.batch.holds(appended.future)


@in_virtual_time
async def test_who_has_deadlines_to_see_to_is_told_that_there_was_no_memory() -> None:
    bench = Workbench(buffer_bytes=10)
    topic = bench.accumulator.topics[TOPIC]
    assert bench.accumulator.append_slowly(topic, bench.queue(), VALUE, None, (), 1, RECORD) is None
    assert bench.accumulator.append_slowly(topic, None, VALUE, None, (), 1, RECORD) is None


@in_virtual_time
async def test_a_record_that_can_never_be_sent_is_too_large() -> None:
    bench = Workbench(max_request_bytes=1_000, buffer_bytes=2_000)
    assert bench.accumulator.largest_record == 1_000 - BATCH
    bench.accumulator.check_size(TOPIC, 1_000 - BATCH)
    with pytest.raises(RecordTooLarge, match=r"'orders' takes 1,001 bytes .* max_request_size=1,000"):
        bench.accumulator.check_size(TOPIC, 1_001 - BATCH)


@in_virtual_time
async def test_a_record_that_can_never_be_buffered_is_too_large() -> None:
    bench = Workbench(max_request_bytes=2_000, buffer_bytes=1_000)
    assert bench.accumulator.largest_record == 1_000 - BATCH
    with pytest.raises(RecordTooLarge, match="buffer_memory=1,000"):
        bench.accumulator.check_size(TOPIC, 1_001 - BATCH)


@in_virtual_time
async def test_the_cap_of_a_topic_is_lifted_with_the_first_batch_after_its_time() -> None:
    bench = Workbench(batch_bytes=1_000, batch_cap_s=10.0)
    topic = bench.accumulator.topics[TOPIC]
    topic.cap(10, 0.0)
    put(bench)
    assert topic.batch_bytes == 10
    await asyncio.sleep(10.0)
    put(bench)
    assert topic.batch_bytes == 1_000


@in_virtual_time
async def test_leaders_of_an_unknown_topic_are_of_no_interest() -> None:
    bench = Workbench(partitions=0)
    bench.accumulator.update_topic("other", [NODE])
    assert not bench.accumulator.topics
    assert bench.wakes == 0


@in_virtual_time
async def test_a_new_leader_gets_what_waited_for_it() -> None:
    bench = Workbench()
    bench.learn(TOPIC, NO_LEADER)
    bench.accumulator.seal(bench.fill(), 0.0)
    assert bench.accumulator.schedule.nodes() == []
    wakes = bench.wakes
    bench.learn(TOPIC, 2)
    assert bench.accumulator.schedule.nodes() == [2]
    assert bench.wakes == wakes + 1
    bench.learn(TOPIC, 2)
    assert bench.wakes == wakes + 1


@in_virtual_time
async def test_an_idle_topic_that_goes_away_takes_its_sequences_along() -> None:
    bench = Workbench()
    batch, futures = bench.sent()
    bench.accumulator.update_topic(TOPIC, [])
    assert TOPIC in bench.accumulator.topics  # its batch is with the broker
    bench.settler.deliver(batch, 0)
    bench.accumulator.update_topic(TOPIC, [])
    assert TOPIC not in bench.accumulator.topics
    assert bench.identities.current == ProducerIdentity(7, 1)
    assert (await futures[0]).offset == 0


@in_virtual_time
async def test_hastened_a_batch_expires_earlier_never_later() -> None:
    bench = Workbench(delivery_timeout_s=30.0)
    future, batch = bench.append(), bench.queue().open
    assert batch is not None
    wakes = bench.wakes
    bench.accumulator.hasten(batch, future, 40.0)
    assert (batch.deadline, bench.wakes) == (30.0, wakes)
    bench.accumulator.hasten(batch, future, 20.0)
    assert (batch.deadline, bench.wakes) == (20.0, wakes + 1)
    assert bench.accumulator.deadlines.take_due(20.0) == [batch]
    assert bench.accumulator.deadlines.next_due() is None


@in_virtual_time
async def test_hastened_after_its_outcome_a_batch_does_not_come_back() -> None:
    bench = Workbench()
    batch, [future] = bench.sent()
    bench.settler.deliver(batch, 0)
    bench.accumulator.hasten(batch, future, 1.0)
    assert bench.accumulator.deadlines.next_due() is None


@in_virtual_time
async def test_hastened_after_a_split_it_is_the_part_with_the_record_that_expires_earlier() -> None:
    bench = Workbench(delivery_timeout_s=30.0)
    batch, futures = bench.sent(b"a", b"b", b"c", b"d")
    bench.settler.split(batch)
    [first, second] = bench.accumulator.unresolved
    [drained] = bench.drain()
    bench.settler.split(drained)  # the first half, once more
    bench.accumulator.hasten(batch, futures[1], 20.0)
    assert [(each.columns.values, each.deadline) for each in bench.accumulator.unresolved] == [
        ([b"c", b"d"], 30.0),
        ([b"a"], 30.0),
        ([b"b"], 20.0),
    ]
    assert bench.accumulator.deadlines.take_due(20.0) == [first.successors[1]]
    assert second.deadline == 30.0


@in_virtual_time
async def test_closed_it_fails_who_waits_for_memory_and_counts_the_calls() -> None:
    bench = Workbench()
    bench.accumulator.callers = 1
    assert not bench.accumulator.idle
    waiting = asyncio.create_task(bench.accumulator.memory.take(10**9, 1.0))
    await asyncio.sleep(0)
    failure = Failure(ProducerClosed, "over")
    assert bench.accumulator.close(failure) == 1
    assert bench.accumulator.closed_for is failure
    with pytest.raises(ProducerClosed, match="over"):
        await waiting


@in_virtual_time
async def test_a_flush_waits_for_what_was_appended_before_it() -> None:
    bench = Workbench(partitions=2)
    before = bench.fill()
    wakes = bench.wakes
    flush = asyncio.create_task(bench.accumulator.flush())
    await asyncio.sleep(0)
    assert bench.wakes == wakes + 1
    assert bench.accumulator.hurry
    _ = bench.fill(partition=1)
    _ = bench.drain()
    bench.settler.deliver(before, 0)
    await flush
    assert not bench.accumulator.hurry
    assert len(unresolved(bench)) == 1


@in_virtual_time
async def test_a_cancelled_flush_hurries_nobody_any_more() -> None:
    bench = Workbench()
    batch = bench.fill()
    flush = asyncio.create_task(bench.accumulator.flush())
    await asyncio.sleep(0)
    flush.cancel()
    await asyncio.wait([flush])
    assert flush.cancelled()
    assert not bench.accumulator.hurry
    assert unresolved(bench) == [batch]
