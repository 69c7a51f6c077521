"""Value-only records that join the open batch, and the opening of batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.waiters import acknowledgement_on
from aioproducer._core.clock import TURN_AFTER_BYTES, TURN_AFTER_RECORDS
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.accumulator_rig import RECORD, VALUE, counts, put, room_for, unresolved
from tests.unit.floor_rig import NODE, TOPIC, FloorRig

NOW_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: NOW_MS * 1_000_000)


def join(rig: FloorRig, kind: Any = None) -> Any:
    """Append `VALUE` to the open batch of the sticky partition."""
    return rig.accumulator.append_to_open(rig.accumulator.topics[TOPIC], VALUE, kind or rig.receipts)


def opened(**settings: Any) -> FloorRig:
    """Return a rig whose sticky partition has an open batch of one record."""
    rig = FloorRig(**settings)
    assert join(rig) is not None
    return rig


@in_virtual_time
async def test_first_record_opens_a_batch_and_the_second_joins() -> None:
    rig = FloorRig()
    first = join(rig)
    [batch] = unresolved(rig)
    second = join(rig)
    assert unresolved(rig) == [batch]
    assert rig.wakes == 0
    assert rig.wakes_at == [rig.loop.time() + rig.accumulator.settings.linger_s]
    assert batch.columns.values == [VALUE, VALUE]
    assert batch.columns.timestamps == [NOW_MS, NOW_MS]
    assert (batch.columns.keys, batch.columns.headers) == (None, None)
    assert batch.size == rig.accumulator.memory.used == room_for(1, 2)
    assert [list(batch.indices_of(each)) for each in (first, second)] == [[0], [1]]


@pytest.mark.parametrize("records", [2, 3])
@pytest.mark.parametrize("missing", [0, 1])
@in_virtual_time
async def test_batch_is_filled_to_the_last_byte(records: int, missing: int) -> None:
    rig = opened(batch_bytes=room_for(1, records) - missing)
    for _ in range(records - 1):
        assert join(rig) is not None
    batches = [records - 1, 1] if missing else [records]
    assert counts(unresolved(rig)) == batches
    [last] = unresolved(rig)[-1:]
    assert last.columns.timestamps == [NOW_MS] * len(last)
    assert rig.accumulator.memory.used == room_for(len(batches), records)


@pytest.mark.parametrize("records", [2, 3])
@pytest.mark.parametrize("missing", [0, 1])
@in_virtual_time
async def test_memory_is_filled_to_the_last_byte(records: int, missing: int) -> None:
    rig = opened(buffer_bytes=room_for(1, records) - missing)
    for _ in range(records - 2):
        assert join(rig) is not None
    assert (join(rig) is None) == bool(missing)
    assert rig.accumulator.memory.used == room_for(1, records - missing)


@pytest.mark.parametrize("how", [join, put, lambda rig: put(rig, None)], ids=["join", "put", "sticky"])
@in_virtual_time
async def test_first_record_may_take_all_the_memory(how: Callable[[FloorRig], Any]) -> None:
    rig = FloorRig(buffer_bytes=room_for(1, 1))
    assert how(rig) is not None
    assert rig.accumulator.memory.free == 0


@in_virtual_time
async def test_join_waits_behind_calls_that_wait_for_memory() -> None:
    rig = opened(buffer_bytes=room_for(1, 3))
    waiting = asyncio.create_task(rig.accumulator.memory.take(room_for(1, 2), rig.loop.time() + 60))
    await asyncio.sleep(0)
    assert join(rig) is None
    waiting.cancel()
    await asyncio.wait([waiting])
    assert join(rig) is not None


@pytest.mark.parametrize(
    ("key", "headers"), [(b"k", ()), (None, (("trace", b"1"),)), (b"k", (("trace", b"1"),))]
)
@in_virtual_time
async def test_value_only_record_joins_records_with_keys_or_headers(key: bytes | None, headers: Any) -> None:
    rig = FloorRig()
    rig.accumulator.topics[TOPIC].switch()
    _ = rig.append(VALUE, key=key, headers=headers)
    assert join(rig) is not None
    _ = put(rig)
    [batch] = unresolved(rig)
    columns = batch.columns
    assert columns.values == [VALUE] * 3
    assert columns.timestamps == [1_000, NOW_MS, 1_000]
    assert columns.keys == (None if key is None else [key, None, None])
    assert columns.headers is None or [bool(each) for each in columns.headers] == [
        bool(headers),
        False,
        False,
    ]
    assert (columns.headers is None) == (not headers)


@pytest.mark.parametrize(
    ("key", "headers"), [(b"k", ()), (None, (("trace", b"1"),)), (b"k", (("trace", b"1"),))]
)
@in_virtual_time
async def test_record_with_key_or_headers_joins_value_only_records(key: bytes | None, headers: Any) -> None:
    rig = opened()
    _ = rig.append(VALUE, key=key, headers=headers)
    assert join(rig) is not None
    [batch] = unresolved(rig)
    columns = batch.columns
    assert columns.values == [VALUE] * 3
    assert columns.keys == (None if key is None else [None, key, None])
    assert columns.headers == (None if not headers else [(), headers, ()])
    assert len(batch.stretches) == 1
    assert batch.plain_kind is None


@pytest.mark.parametrize(("rate", "due"), [(1.0, True), (0.5, False)])
@in_virtual_time
async def test_yield_is_due_after_enough_compressed_bytes(rate: float, due: bool) -> None:
    rig = opened(buffer_bytes=4 * TURN_AFTER_BYTES)
    yields = rig.accumulator.yields
    rig.accumulator.topics[TOPIC].limits.rate = rate
    _ = rig.append(b"v" * TURN_AFTER_BYTES)
    assert not yields.should_yield
    _ = rig.append(b"v" * TURN_AFTER_BYTES)
    assert yields.should_yield is due


@in_virtual_time
async def test_turn_is_due_after_many_records_of_the_mean_size() -> None:
    rig = opened(batch_bytes=1 << 16, max_request_bytes=1 << 20, buffer_bytes=1 << 25)
    yields = rig.accumulator.yields
    _ = rig.append(b"v" * 10_000)
    appended = 1
    while not yields.should_yield:
        _ = rig.append(b"v" * (1 if appended % 2 else 199))
        appended += 1
    assert TURN_AFTER_RECORDS / 2 < appended < TURN_AFTER_RECORDS * 1.2


@in_virtual_time
async def test_waiters_of_each_kind_get_their_own_stretch() -> None:
    rig = opened()
    waiter = join(rig, acknowledgement_on(rig.loop))
    assert join(rig) is not None
    [batch] = unresolved(rig)
    assert [len(run) for run in batch.stretches] == [1, 1, 1]
    middle: Any = batch.stretches[1]
    assert middle == [waiter]
    assert len(batch) == 3


@in_virtual_time
async def test_reserved_record_keeps_key_headers_and_timestamp() -> None:
    rig = FloorRig()
    topic = rig.accumulator.topics[TOPIC]
    headers = (("trace", b"1"),)
    record, future = (VALUE, b"k", headers, 7, RECORD + 20), rig.receipts.waiter()
    place = rig.accumulator.append_and_locate(
        topic, rig.queue(), *record, kind=rig.receipts, called_at=0.0, waiter=future
    )
    assert place is not None
    columns = place[0].columns
    assert (columns.values, columns.keys, columns.timestamps) == ([VALUE], [b"k"], [7])
    assert columns.headers is not None


@in_virtual_time
async def test_rows_keep_their_keys_and_headers() -> None:
    rig = FloorRig()
    keys, headers = [b"a", b"b"], [(("trace", b"1"),), (("trace", b"2"),)]
    rows = Rows(TOPIC, range(2), [VALUE, VALUE], keys, headers, 5, None, [RECORD + 20] * 2)
    call = SendManyCall(TOPIC, 2, rig.loop)
    assert rig.accumulator.extend(rig.accumulator.topics[TOPIC], rig.queue(), rows, call) == 2
    [batch] = unresolved(rig)
    assert batch.columns.keys == keys
    assert batch.columns.headers is not None


@in_virtual_time
async def test_rows_fill_a_batch_and_the_memory_to_the_last_byte() -> None:
    rig = opened(batch_bytes=room_for(1, 2), buffer_bytes=room_for(2, 4))
    rows = Rows(TOPIC, range(3), [VALUE] * 3, None, None, 5, None, [RECORD] * 3)
    call = SendManyCall(TOPIC, 3, rig.loop)
    assert rig.accumulator.extend(rig.accumulator.topics[TOPIC], rig.queue(), rows, call) == 3
    assert counts(unresolved(rig)) == [2, 2]
    assert rig.accumulator.memory.free == 0


@pytest.mark.parametrize("busy", [False, True])
@in_virtual_time
async def test_adaptive_linger_delays_a_batch_only_for_a_busy_broker(busy: bool) -> None:
    rig = FloorRig(linger_is_adaptive=True)
    if busy:
        rig.accumulator.schedule.busy.add(NODE)
    batch = rig.fill()
    assert (rig.wakes, len(rig.wakes_at)) == ((0, 1) if busy else (1, 0))
    drained = rig.accumulator.schedule.drain(NODE, rig.loop.time(), 2**31)
    assert drained == ([] if busy else [batch])


@in_virtual_time
async def test_half_a_batch_is_enough_to_be_the_next_of_a_busy_node() -> None:
    rig = FloorRig(linger_is_adaptive=True, batch_bytes=room_for(1, 4), batch_max_bytes=room_for(1, 9))
    rig.accumulator.schedule.busy.add(NODE)
    limits = []
    for count in range(1, 10):
        put(rig)
        limits.append(unresolved(rig)[0].limit)
        assert (NODE in rig.accumulator.schedule.waiting) is (count > 1)
    half, ready = room_for(1, 4) // 2, room_for(1, 4)
    assert limits == [half, *[ready] * 3, *[room_for(1, 9)] * 5]


@in_virtual_time
async def test_keyless_records_avoid_a_broker_past_the_timeout() -> None:
    rig = FloorRig(partitions=0, availability_timeout_s=2.0, partitioning_is_adaptive=False)
    topic = rig.learn(TOPIC, NODE, 2)
    rig.fill(partition=0)
    rig.accumulator.seal(unresolved(rig)[0], rig.loop.time())
    await asyncio.sleep(2.0)
    assert {topic.switch().partition for _ in range(9)} == {0, 1}
    await asyncio.sleep(0.1)
    assert {topic.switch().partition for _ in range(9)} == {1}


async def test_calls_are_counted_each() -> None:
    rig = FloorRig()
    accumulator, topic = rig.accumulator, rig.accumulator.topics[TOPIC]
    accumulator.enter("one", topic, 5)
    accumulator.enter("other", topic, 2)
    assert (len(accumulator.pending_calls), len(topic.pending_calls), accumulator.arriving) == (2, 2, 7)
    accumulator.leave("one", topic)
    assert rig.wakes == 0, "one is still on its way"
    accumulator.leave("other", topic)
    assert rig.wakes == 1
    accumulator.leave("other", topic)
    assert TOPIC in accumulator.topics


async def test_unused_topic_is_forgotten_when_its_call_leaves() -> None:
    rig = FloorRig(partitions=0)
    topic = rig.accumulator.topic("nowhere")
    rig.accumulator.enter("one", topic, 1)
    rig.accumulator.leave("one", topic)
    assert "nowhere" not in rig.accumulator.topics


async def test_finish_hurries_batches_and_wakes_the_sender() -> None:
    rig = FloorRig()
    rig.accumulator.finish()
    assert rig.accumulator.finishing is True
    assert rig.accumulator.hurries()
    assert rig.wakes == 1


@in_virtual_time
async def test_second_flush_still_hurries_after_the_first_is_cancelled() -> None:
    rig = FloorRig()
    batch = rig.fill()
    first, second = (asyncio.create_task(rig.accumulator.flush()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert rig.accumulator.hurries()
    _ = rig.drain()
    rig.completion.complete(batch, 0)
    await second
    assert not rig.accumulator.hurries()


async def test_topic_id_is_stored_by_update_topic() -> None:
    rig = FloorRig()
    rig.accumulator.update_topic(TOPIC, [NODE], b"a" * 16)
    assert rig.accumulator.topics[TOPIC].topic_id == b"a" * 16


@in_virtual_time
async def test_released_batch_no_longer_lingers() -> None:
    rig = FloorRig()
    batch = rig.fill()
    rig.accumulator.release(batch)
    assert batch not in rig.accumulator.schedule.lingering
    assert rig.accumulator.memory.used == 0


@in_virtual_time
async def test_only_the_first_lingering_batch_sets_a_timer() -> None:
    rig = FloorRig(partitions=3)
    _ = rig.append(partition=0)
    _ = rig.append(partition=1)
    assert (rig.wakes, len(rig.wakes_at)) == (0, 1)
    rig.accumulator.flushing.add(1)
    _ = rig.append(partition=2)
    assert (rig.wakes, len(rig.wakes_at)) == (1, 1)


@in_virtual_time
async def test_linger_of_zero_wakes_the_sender_without_a_timer() -> None:
    """A timer would cost another iteration of the event loop."""
    rig = FloorRig(linger_s=0.0)
    _ = rig.append()
    assert (rig.wakes, rig.wakes_at) == (1, [])


@in_virtual_time
async def test_latencies_follow_the_clock_of_the_loop() -> None:
    rig = FloorRig()
    rig.accumulator.latencies[NODE].sent(rig.loop.time())
    await asyncio.sleep(1.0)
    assert rig.accumulator.latencies.estimated_delay_s(NODE) == 2.0
