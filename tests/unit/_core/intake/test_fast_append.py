from __future__ import annotations

import asyncio
import gc
import os
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from weakref import ref

import pytest

from aioproducer._core.acceleration import accelerated
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.clock import running_loop_of
from aioproducer._core.intake.appending import PendingAppend
from aioproducer._core.intake.fast_append import Append, FastAppend, accelerated_append
from aioproducer._core.partitioning import (
    CallablePartitioner,
    Murmur2Partitioner,
    Partitioner,
    RoundRobinPartitioner,
)
from aioproducer._core.records.columns import BATCH_OVERHEAD, open_records, record_size_bound
from aioproducer.errors import ProducerError
from tests.cases import for_each
from tests.unit._core.intake.intake_rig import NOW_MS, Rig, Spy
from tests.unit.floor_rig import NODE, TOPIC

LARGEST = 300


class Bytes(bytes):
    pass


class Name(str):
    __slots__ = ()


class Header(NamedTuple):
    name: str
    value: bytes


class General:
    """Stand-in for the general path, which receives every record passed on by the fast path."""

    def append(self, *_: Any) -> Any:
        return None


class FastRig(Rig):
    """An intake, and a separate fast path to the same batches."""

    def __init__(
        self, *, partitioner: Partitioner | None = None, largest_record: int = LARGEST, **settings: Any
    ) -> None:
        partitioner = partitioner or Murmur2Partitioner()
        super().__init__(
            partitioner=partitioner, max_request_bytes=largest_record + BATCH_OVERHEAD, **settings
        )
        self.refused: list[BaseException] = []
        self.in_metadata: TopicQueues | None = None
        on_loop: Any = {"loop": self.loop, "running_loop": running_loop_of(self.loop)}
        self.python = FastAppend(
            self.accumulator,
            partitioner,
            choose=self.intake.choose,
            refused=lambda topic, partition, headers, error: self.refused.append(error),  # noqa: ARG005
            known=self.known,
            general=General(),
            **on_loop,
        )
        self.fast: Append = accelerated_append(self.python, self.accumulator, **on_loop)

    def known(self, name: str) -> TopicQueues | None:
        if self.in_metadata is not None:
            self.accumulator.topics[name] = self.in_metadata
        return self.in_metadata

    def append_fast(
        self, value: Any = b"value", key: Any = None, partition: Any = None, headers: Any = (), at: Any = None
    ) -> Any:
        return self.fast.append(self.receipts, TOPIC, value, key, partition, headers, at)


class TestCommonRecords:
    @for_each(
        ("value", "key", "headers"),
        [
            (b"value", b"key", (("trace", b"1"), ("type", None))),
            (b"value", b"key", [("trace", b"1")]),
            (None, b"key", {"trace": b"1", "größe": b""}),
            (b"", None, [("trace", b"1")]),
            (b"value", b"", []),
            (b"value", None, ()),
        ],
    )
    async def test_fast_append_equals_the_general_path(self, value: Any, key: Any, headers: Any) -> None:
        rig = FastRig()
        assert isinstance(rig.append_fast(value, key, headers=headers), asyncio.Future)
        pairs = tuple(headers.items() if isinstance(headers, dict) else headers)
        assert rig.records() == [(value, key, pairs, NOW_MS)]
        [batch] = rig.accumulator.unresolved
        assert batch.size == BATCH_OVERHEAD + record_size_bound(value, key, pairs)

    async def test_first_record_of_a_known_topic_needs_no_general_path(self) -> None:
        rig = FastRig()
        rig.in_metadata = rig.accumulator.topics.pop(TOPIC)
        assert rig.fast.append(rig.receipts, Name(TOPIC), b"value", None, 0, (), None) is None
        assert await asyncio.to_thread(rig.append_fast) is None
        assert TOPIC not in rig.accumulator.topics
        assert isinstance(rig.append_fast(), asyncio.Future)
        assert rig.records() == [(b"value", None, (), NOW_MS)]

    async def test_headers_are_a_snapshot(self) -> None:
        rig, headers = FastRig(), [("trace", b"1")]
        rig.append_fast(headers=headers)
        headers.clear()
        assert rig.records() == [(b"value", None, (("trace", b"1"),), NOW_MS)]

    async def test_key_chooses_the_partition_of_the_general_path(self) -> None:
        rig, long = FastRig(partitions=6), FastRig(partitions=6)
        for number in range(20):
            rig.append_fast(key=b"%d" % number)
            long.put(b"value", Bytes(b"%d" % number))
        for partition in range(6):
            assert rig.records(partition) == long.records(partition)

    @pytest.mark.parametrize("at", [0, NOW_MS - 5, 2**63 - 1])
    async def test_partition_and_timestamp_may_be_given(self, at: int) -> None:
        rig = FastRig(partitions=3)
        rig.append_fast(partition=2, at=at)
        assert rig.records(2) == [(b"value", None, (), at)]

    @pytest.mark.skipif(not accelerated, reason="an append in C only")
    @for_each("fields", [{}, {"partition": 0}, {"key": b"k"}, {"value": None}])
    async def test_first_record_in_c_opens_a_batch_without_python(self, fields: Any) -> None:
        rig = FastRig(records=open_records)
        _ = rig.accumulator.topics[TOPIC][0]
        front: Any = SimpleNamespace(append=None, largest_record=LARGEST, sticks=True, hashes=True)
        on_loop: Any = {"loop": rig.loop, "running_loop": running_loop_of(rig.loop)}
        rig.fast = accelerated_append(front, rig.accumulator, **on_loop)
        assert not rig.append_fast(**fields).done()
        assert [len(batch) for batch in rig.accumulator.unresolved] == [1]

    @pytest.mark.skipif(not accelerated, reason="an append in C only")
    @for_each("fields", [{"partition": 0}, {"key": b"k"}, {}])
    @for_each("size", [60, LARGEST - 80, LARGEST])
    async def test_record_over_half_a_batch_is_first_in_c_when_busy(self, fields: Any, size: int) -> None:
        rig = FastRig(records=open_records, linger_is_adaptive=True, batch_bytes=size)
        _ = rig.accumulator.topics[TOPIC][0]
        front: Any = SimpleNamespace(append=None, largest_record=LARGEST, sticks=True, hashes=True)
        on_loop: Any = {"loop": rig.loop, "running_loop": running_loop_of(rig.loop)}
        rig.fast = accelerated_append(front, rig.accumulator, **on_loop)
        rig.accumulator.schedule.busy.add(NODE)
        for count in range(1, 4):
            assert not rig.append_fast(b"v" * (LARGEST - 100), **fields).done()
            assert [len(batch) for batch in rig.accumulator.unresolved] == [1] * count
            assert rig.accumulator.memory.used == sum(each.held for each in rig.accumulator.unresolved)
            [*_, last] = rig.accumulator.unresolved
            rig.accumulator.seal(last, rig.loop.time())

    @pytest.mark.skipif(not accelerated, reason="an append in C only")
    async def test_batch_opened_in_c_is_removed_if_its_first_waiter_fails(self) -> None:
        class Kind:
            stretch = list
            waiter = None

            def __call__(self) -> None:
                raise KeyboardInterrupt

        rig = FastRig(records=open_records)
        _ = rig.accumulator.topics[TOPIC][0]
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                rig.fast.append(cast("Any", Kind()), TOPIC, b"value", None, 0, (), None)
            assert not rig.accumulator.unresolved
            assert rig.accumulator.memory.used == 0
            assert rig.accumulator.topics[TOPIC][0].idle
            assert not rig.accumulator.schedule.waiting
        assert not rig.append_fast(partition=0).done()


class TestOthers:
    @for_each(
        "record",
        [
            {"value": "text"},
            {"value": Bytes(b"value")},
            {"value": bytearray(b"value")},
            {"value": b"v" * LARGEST},
            {"key": "text"},
            {"key": Bytes(b"key")},
            {"key": b"k" * LARGEST},
            {"partition": 3},
            {"partition": -1},
            {"partition": True},
            {"partition": "1"},
            {"at": -1},
            {"at": 2**63},
            {"at": False},
            {"at": 1.5},
            {"headers": None},
            {"headers": 0},
            {"headers": "ab"},
            {"headers": iter([("trace", b"1")])},
            {"headers": [["trace", b"1"]]},
            {"headers": [Header("trace", b"1")]},
            {"headers": [("trace", b"1", b"2")]},
            {"headers": [("trace",)]},
            {"headers": [(b"trace", b"1")]},
            {"headers": [(Name("trace"), b"1")]},
            {"headers": [("trace", "text")]},
            {"headers": [("trace", bytearray(b"1"))]},
            {"headers": [("\ud800", b"1")]},
            {"headers": [("trace", b"1"), ("more", b"h" * LARGEST)]},
        ],
    )
    async def test_uncommon_record_is_left_to_the_general_path(self, record: dict[str, Any]) -> None:
        rig = FastRig(partitions=3)
        assert rig.append_fast(**record) is None
        assert rig.queued == 0

    async def test_largest_record_is_appended_fast(self) -> None:
        rig = FastRig()
        most = LARGEST - record_size_bound(b"", None, ())
        assert rig.append_fast(b"v" * (most + 1)) is None
        assert rig.append_fast(b"v" * most) is not None


class TestPartitioners:
    async def test_partitioner_is_called_once_per_record(self) -> None:
        rig = FastRig(partitions=3, partitioner=RoundRobinPartitioner())
        for _ in range(6):
            rig.append_fast(key=b"key")
            rig.append_fast()
        assert [len(rig.records(partition)) for partition in range(3)] == [4, 4, 4]

    async def test_subclass_of_kafkas_partitioner_is_checked(self) -> None:
        class Wrong(Murmur2Partitioner):
            def partition(self, *_: Any) -> int:
                return 7

        rig = FastRig(partitions=3, partitioner=Wrong())
        with pytest.raises(ProducerError, match="partition 7 does not exist; the topic has 3") as caught:
            rig.append_fast(key=b"key")
        assert rig.refused == [caught.value]
        assert rig.queued == 0

    async def test_partition_stays_chosen_while_a_record_waits_for_memory(self) -> None:
        asked: list[bytes | None] = []

        def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
            asked.append(key)
            return 1

        rig = FastRig(partitions=3, partitioner=CallablePartitioner(choose))
        rig.use_up_memory()
        pending = rig.append_fast(key=b"key", headers=[("trace", b"1")])
        assert isinstance(pending, PendingAppend)
        assert asked == [b"key"]
        assert pending.timestamp_ms == NOW_MS
        assert pending.ready is not None
        queue, _, _, headers, _, size = pending.ready
        assert queue is rig.queue(1)
        assert headers == pending.headers == (("trace", b"1"),)
        assert size == record_size_bound(b"value", b"key", (("trace", b"1"),))


class TestUseByTheIntake:
    """Records that the intake leaves to the fast append."""

    async def test_records_as_services_send_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = Rig(partitions=3)
        monkeypatch.setattr(rig.intake, "check", None)  # the long way begins with it
        rig.put(key=b"key", headers=[("trace", b"1")], timestamp_ms=NOW_MS)
        assert rig.queued == 1

    async def test_fast_append_is_not_used_with_an_interceptor(self) -> None:
        spy = Spy()
        rig = Rig(interceptors=[spy])
        rig.put(key=b"key")
        assert len(spy.seen) == 1

    async def test_fast_append_is_not_used_with_a_serializer(self) -> None:
        rig = Rig(value_serializer=lambda value: value + b"!")
        rig.put(b"value", b"key")
        assert rig.records() == [(b"value!", b"key", (), NOW_MS)]


async def test_first_record_of_a_batch_schedules_no_reset_of_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, scheduled = FastRig(), list[object]()
    monkeypatch.setattr(rig.loop, "call_soon", lambda what, *_, **__: scheduled.append(what))
    assert rig.append_fast(partition=0) is not None
    assert rig.accumulator.clock.forget not in scheduled
    assert rig.append_fast(partition=0) is not None
    monkeypatch.undo()
    assert scheduled.count(rig.accumulator.clock.forget) == 1


@pytest.mark.skipif(not accelerated, reason="the accelerator makes room by itself")
@pytest.mark.parametrize(("key", "partition"), [(None, None), (b"key", None), (None, 0)])
async def test_full_batch_grows_without_the_general_path(
    monkeypatch: pytest.MonkeyPatch, key: bytes | None, partition: int | None
) -> None:
    rig = FastRig(partitions=1, batch_bytes=200, batch_max_bytes=800, records=open_records)
    assert rig.append_fast(b"v" * 50, key, partition) is not None
    monkeypatch.setattr(rig.accumulator, "append", None)
    assert None not in [rig.append_fast(b"v" * 50, key, partition) for _ in range(29)]
    batches = list(rig.accumulator.unresolved)
    assert sum(len(batch) for batch in batches) == 30
    assert max(batch.size for batch in batches) > 700
    assert all(batch.size <= 800 for batch in batches)


@pytest.mark.parametrize("partition", [None, 0])
async def test_record_near_the_largest_keeps_the_open_batch(partition: int | None) -> None:
    rig = FastRig(partitions=1, batch_bytes=200, batch_max_bytes=100_000, records=open_records)
    sizes = (100, *range(LARGEST - 40, LARGEST - 13)) * 2
    assert None not in [rig.append_fast(b"v" * size, None, partition) for size in sizes]
    assert [len(batch) for batch in rig.accumulator.unresolved] == [len(sizes)]


class TestLoop:
    """A record is appended only by calls on the producer's event loop."""

    async def test_calls_of_other_threads_are_passed_on(self) -> None:
        rig = FastRig()

        async def elsewhere() -> Any:
            return rig.append_fast()

        assert rig.append_fast() is not None
        assert rig.append_fast() is not None
        assert await asyncio.to_thread(rig.append_fast) is None
        assert await asyncio.to_thread(asyncio.run, elsewhere()) is None
        assert rig.append_fast() is not None

    def test_calls_beside_a_run_of_the_loop_are_passed_on(self) -> None:
        async def make() -> FastRig:
            rig = FastRig()
            assert rig.append_fast() is not None
            assert rig.append_fast() is not None
            return rig

        async def append(rig: FastRig) -> Any:
            return [rig.append_fast(), rig.append_fast()]

        with asyncio.Runner() as one, asyncio.Runner() as other:
            rig = one.run(make())
            assert rig.append_fast() is None
            assert other.run(append(rig)) == [None, None]
            assert rig.append_fast() is None
            assert None not in one.run(append(rig))
            assert rig.append_fast() is None

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
    async def test_calls_of_a_forked_child_are_passed_on(self) -> None:
        rig = FastRig()
        assert None not in [rig.append_fast(), rig.append_fast()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there may be other threads
            child = os.fork()
        if not child:
            os._exit(rig.append_fast() is not None)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert rig.append_fast() is not None

    def test_loop_that_refers_to_its_fast_path_is_freed(self) -> None:
        async def make() -> FastRig:
            rig = FastRig()
            assert None not in [rig.append_fast(), rig.append_fast()]
            return rig

        loop: Any = asyncio.new_event_loop()
        loop.rig = loop.run_until_complete(make())
        lost = [ref(loop), ref(loop.rig.accumulator)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the loop is lost without a close
            del loop
            gc.collect()
        assert [each() for each in lost] == [None, None]
