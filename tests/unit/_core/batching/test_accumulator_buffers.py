"""Memory of batches with RecordBuffers: every end of a batch returns the charged bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.records.columns import BATCH_OVERHEAD, record_size_bound, sizes
from aioproducer._core.records.record_batch import encode_batch
from aioproducer.errors import DeliveryTimeout, MessageTooLarge
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit.floor_rig import TOPIC, FloorRig

accelerator: Any = pytest.importorskip(
    "aioproducer._core._accelerator", reason="it was not built", exc_type=ImportError
)
LATE = Failure(DeliveryTimeout, "late")
LIMIT = 4_000


class BufferRig(FloorRig):
    """Batching floor whose batches have buffers."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(records=accelerator.RecordBuffer, **({"batch_bytes": LIMIT} | settings))
        self.recognise(1)
        self.calls: list[SendManyCall] = []

    def put(self, *values: bytes, key: bytes | None = None) -> None:
        topic = self.accumulator.topics[TOPIC]
        for value in values:
            size = record_size_bound(value, key, ())
            appended = self.accumulator.append(
                topic, self.queue(0), value, key, (), 1_000, size, self.receipts
            )
            assert appended is not None
        self.check()

    def put_many(self, *values: bytes) -> int:
        bounds = sizes(values, None, None)
        rows = Rows(TOPIC, range(len(values)), values, None, None, 1_000, 0, bounds)
        call = SendManyCall(TOPIC, len(values), self.loop)
        self.calls.append(call)
        taken = self.accumulator.extend(self.accumulator.topics[TOPIC], self.queue(0), rows, call)
        self.check()
        return taken

    def check(self) -> None:
        """Check that the memory in use equals the capacity of the buffers."""
        accumulator = self.accumulator
        batches = [*accumulator.unresolved, *accumulator._abandoned]
        assert accumulator.memory.used == sum(batch.held for batch in batches)
        for batch in batches:
            assert batch.size == batch.columns.size <= batch.columns.held <= batch.held
            assert batch.state.name != "OPEN" or batch.held == batch.columns.held

    def drain_next(self) -> Batch:
        queue = self.queue(0)
        queue.batches[0].mark_ready()
        batch = queue.batches[0]
        queue.take(batch)
        batch.keep_encoded(encode_batch(batch.columns, 0, None, 7, 0, 0))
        self.check()
        return batch


@pytest.fixture(params=["delivered", "failed", "expired in flight", "abandoned", "all failed"])
def end(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def finish(rig: BufferRig, batch: Batch, end: str) -> None:
    if end == "expired in flight":
        rig.completion.expire_in_flight(batch, LATE)
        rig.check()
    if end in {"delivered", "expired in flight"}:
        rig.completion.complete(batch, 40)
    elif end == "failed":
        rig.completion.fail(batch, LATE)
    elif end == "abandoned":
        rig.completion.abandon(batch, LATE)
    else:
        rig.completion.fail_everything(LATE)


@in_virtual_time
async def test_buffers_return_their_memory(end: str) -> None:
    rig = BufferRig()
    rig.put(b"a" * 100, b"b" * 300, key=b"k")
    assert rig.put_many(*[b"c" * 50] * 20) == 20
    finish(rig, rig.drain_next(), end)
    rig.check()
    assert rig.accumulator.memory.used == 0


@in_virtual_time
async def test_lone_record_holds_its_exact_size() -> None:
    rig = BufferRig()
    rig.put(b"v" * 100)
    [batch] = rig.accumulator.unresolved
    assert batch.size == batch.held == rig.accumulator.memory.used == BATCH_OVERHEAD + 109


@in_virtual_time
async def test_batches_of_many_topics_fit_into_the_memory() -> None:
    rig = BufferRig(partitions=500, buffer_bytes=500 * 200, batch_bytes=16_384)
    topic = rig.accumulator.topics[TOPIC]
    for partition in range(500):
        queue = rig.queue(partition)
        kind, bound = rig.receipts, record_size_bound(b"v" * 100, None, ())
        assert rig.accumulator.append(topic, queue, b"v" * 100, None, (), 1, bound, kind) is not None
    rig.check()
    assert rig.accumulator.memory.used == 500 * (BATCH_OVERHEAD + 109)


@in_virtual_time
async def test_sealed_batch_gives_back_spare_memory() -> None:
    rig = BufferRig(batch_bytes=16_384, buffer_bytes=32 << 20)
    rig.put(*[b"v" * 100] * 12)
    [batch] = rig.accumulator.unresolved
    assert batch.held > batch.size * 4 // 3
    rig.accumulator.seal(batch, 0.0)
    rig.check()
    assert batch.held == batch.size == rig.accumulator.memory.used


@in_virtual_time
async def test_parts_of_a_split_batch_hold_their_own_bytes() -> None:
    rig = BufferRig()
    rig.put(*[b"%03d" % number + bytes(97) for number in range(20)])
    batch = rig.drain_next()
    batch.refused(MessageTooLarge("too large"), was_next=True)
    rig.completion.split(batch)
    rig.check()
    left, right = batch.successors
    assert rig.accumulator.memory.used == left.size + right.size == batch.size + BATCH_OVERHEAD
    assert [*left.columns.values, *right.columns.values] == batch.columns.values
    for _ in range(2):
        finish(rig, rig.drain_next() if rig.queue(0).batches else left, "all failed")
        break
    rig.check()
    assert rig.accumulator.memory.used == 0


@in_virtual_time
async def test_batch_of_unrefused_records_keeps_their_memory() -> None:
    rig = BufferRig()
    rig.put(b"a", b"b", b"c")
    batch = rig.drain_next()
    batch.refused(MessageTooLarge("refused"), was_next=True)
    rig.completion.reject_records(batch, {1: LATE})
    rig.check()
    [rest] = rig.accumulator.unresolved
    assert rest.columns.values == [b"a", b"c"]
    rig.completion.fail_everything(LATE)
    assert rig.accumulator.memory.used == 0


@in_virtual_time
async def test_withdrawn_records_are_left_out_at_the_drain(end: str) -> None:
    rig = BufferRig()
    rig.put(b"a" * 100)
    rig.put_many(b"b" * 500, b"c" * 500)
    rig.put(b"d" * 100)
    [batch] = rig.accumulator.unresolved
    bulk = batch.stretches[1]
    rig.completion.expire_waiters(batch, bulk.fail, range(1, 1 + len(bulk)), LATE)
    rig.check()
    assert len(batch) == 2
    rig.put(b"e")
    drained = rig.drain_next()
    assert drained.columns.values == [b"a" * 100, b"d" * 100, b"e"]
    finish(rig, drained, end)
    rig.check()
    assert rig.accumulator.memory.used == 0


@in_virtual_time
async def test_batch_without_records_returns_all_memory() -> None:
    rig = BufferRig()
    rig.put_many(b"b" * 500, b"c" * 500)
    [batch] = rig.accumulator.unresolved
    [stretch] = batch.stretches[:1]
    rig.completion.expire_waiters(batch, stretch.fail, range(len(stretch)), LATE)
    assert rig.accumulator.memory.used == 0


@in_virtual_time
async def test_interrupted_append_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = BufferRig()
    rig.put(b"a" * 100)
    rig.put_many(b"b")
    [batch] = rig.accumulator.unresolved

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Batch, "begin_stretch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rig.put(b"c" * 2_000)
    monkeypatch.undo()
    rig.check()
    assert batch.columns.values == [b"a" * 100, b"b"]
    rig.completion.fail_everything(LATE)
    assert rig.accumulator.memory.used == 0


@in_virtual_time
async def test_memory_is_used_to_the_bound_of_the_last_record() -> None:
    rig = BufferRig(buffer_bytes=3_000, batch_bytes=1_000)
    appended = 0
    while True:
        topic, bound = rig.accumulator.topics[TOPIC], record_size_bound(b"v" * 50, None, ())
        queue = rig.queue(0)
        if rig.accumulator.append(topic, queue, b"v" * 50, None, (), 1, bound, rig.receipts) is None:
            break
        rig.check()
        appended += 1
    assert 0 <= rig.accumulator.memory.free < bound + BATCH_OVERHEAD
    assert appended > 35
    waiting = asyncio.create_task(rig.accumulator.memory.take(500, rig.loop.time() + 1))
    await asyncio.sleep(0)
    rig.completion.complete(rig.drain_next(), 0)
    await waiting


@in_virtual_time
async def test_buffer_keeps_the_keys() -> None:
    rig = BufferRig()
    rig.put(b"a", key=b"k")
    assert rig.queue(0).batches[0].columns.keys == [b"k"]


class TestOpenFor:
    """The accelerator appends the record and its waiter after `open_for` has made room."""

    @staticmethod
    def open_for(rig: FloorRig, size: int = 20, *, partition: int | None = 0) -> int | None:
        topic = rig.accumulator.topics[TOPIC]
        queue = None if partition is None else rig.queue(partition)
        return rig.accumulator.open_for(topic, queue, size, rig.receipts)

    @pytest.mark.parametrize("partition", [0, 1])
    @in_virtual_time
    async def test_batch_of_the_partition_has_a_stretch_of_the_kind(self, partition: int) -> None:
        rig = BufferRig(partitions=2)
        rig.accumulator.topics[TOPIC].switch()
        now_ms = rig.accumulator.clock.fresh_ms()
        for _ in range(2):
            timestamp_ms = self.open_for(rig, partition=partition)
            assert timestamp_ms is not None
            assert timestamp_ms >= now_ms
        [batch] = rig.accumulator.unresolved
        assert batch.topic_partition.partition == partition
        assert (batch.kind, len(batch.stretches)) == (rig.receipts, 1)

    @in_virtual_time
    async def test_record_without_a_partition_gets_the_sticky_batch(self) -> None:
        rig = BufferRig(partitions=2)
        assert self.open_for(rig, partition=None) is not None
        [batch] = rig.accumulator.unresolved
        assert rig.accumulator.topics[TOPIC].sticky is rig.accumulator.queue(batch)

    @pytest.mark.parametrize("missing", [0, 1])
    @in_virtual_time
    async def test_batch_opens_only_with_memory_for_its_first_record(self, missing: int) -> None:
        rig = BufferRig(buffer_bytes=BATCH_OVERHEAD + 20 - missing)
        assert (self.open_for(rig) is None) == bool(missing)
        assert len(rig.accumulator.unresolved) == 1 - missing

    @in_virtual_time
    async def test_record_waits_behind_calls_that_wait_for_memory(self) -> None:
        rig = BufferRig()
        waiting = asyncio.create_task(rig.accumulator.memory.take(10**9, rig.loop.time() + 1))
        await asyncio.sleep(0)
        assert self.open_for(rig) is None
        waiting.cancel()
        await asyncio.wait([waiting])
        assert self.open_for(rig) is not None

    @in_virtual_time
    async def test_columns_have_no_memory_of_their_own(self) -> None:
        assert self.open_for(FloorRig()) is None

    @in_virtual_time
    async def test_interrupted_opening_is_undone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        rig = BufferRig()
        monkeypatch.setattr(Batch, "begin_stretch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            self.open_for(rig)
        assert not rig.accumulator.unresolved
        assert rig.accumulator.memory.used == 0
