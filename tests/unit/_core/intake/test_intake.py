from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from aioproducer._core.batching.admission import QueuedCall
from aioproducer._core.partitioning import CallablePartitioner, Murmur2Partitioner
from aioproducer.errors import BufferFull, MetadataUnavailable, RecordTooLarge, TimeoutReason, WrongLoop
from tests.cases import for_each
from tests.unit._core.intake.intake_rig import NOW_MS, Rig, Spy
from tests.unit.floor_rig import TOPIC

KEY_OF_2_OF_4 = b"customer-7"


class TestOffer:
    @for_each("headers", [None, "", b"", 0, False])
    async def test_falsy_headers_of_a_wrong_type_are_refused(self, headers: Any) -> None:
        """Headers are checked even if the record needs no other check."""
        rig = Rig()
        with pytest.raises(TypeError, match="headers must be pairs"):
            rig.try_append(headers=headers)
        assert rig.queued == 0

    async def test_plain_record_is_appended_immediately(self) -> None:
        rig = Rig()
        value = b"value"
        future = rig.appended(value)
        assert not future.done()
        [(kept, key, headers, timestamp_ms)] = rig.records()
        assert kept is value
        assert (key, headers, timestamp_ms) == (None, (), NOW_MS)

    async def test_record_with_all_fields_is_appended_immediately(self) -> None:
        rig = Rig(partitions=3)
        rig.put(b"v", b"k", partition=2, headers={"h": b"1"}, timestamp_ms=7)
        assert rig.records(2) == [(b"v", b"k", (("h", b"1"),), 7)]

    async def test_null_value_is_appended(self) -> None:
        rig = Rig()
        rig.put(None, b"k")
        assert rig.records() == [(None, b"k", (), NOW_MS)]

    async def test_mutable_value_and_key_are_copied(self) -> None:
        rig = Rig()
        value, key = bytearray(b"value"), bytearray(b"key")
        rig.put(value, key)
        value[:], key[:] = b"other", b"odd"
        assert rig.records() == [(b"value", b"key", (), NOW_MS)]

    async def test_key_chooses_the_partition_of_murmur2(self) -> None:
        rig = Rig(partitions=4)
        rig.put(b"v", KEY_OF_2_OF_4)
        rig.put(b"w", KEY_OF_2_OF_4, timestamp_ms=1)
        chosen = Murmur2Partitioner().partition(TOPIC, KEY_OF_2_OF_4, 4, ())
        assert chosen is not None
        assert [value for value, *_ in rig.records(chosen)] == [b"v", b"w"]

    async def test_records_without_a_key_stick_together(self) -> None:
        rig = Rig(partitions=4)
        for _ in range(3):
            rig.put()
        assert sorted(len(rig.records(partition)) for partition in range(4)) == [0, 0, 0, 3]

    async def test_large_record_is_measured_exactly(self) -> None:
        rig = Rig()
        rig.put(b"x" * 20_000)
        [batch] = rig.accumulator.unresolved
        assert batch.size >= 20_000 + 61

    async def test_record_larger_than_max_request_size_is_refused(self) -> None:
        rig = Rig(max_request_bytes=1_000)
        with pytest.raises(RecordTooLarge, match=r"more than max_request_size=1,000"):
            rig.try_append(b"x" * 1_000)
        with pytest.raises(RecordTooLarge):
            rig.try_append(b"x" * 940)
        rig.put(b"x" * (1_000 - 61 - 14))
        assert rig.queued == 1

    async def test_topic_in_the_metadata_needs_no_earlier_append(self) -> None:
        rig = Rig(partitions=0)
        rig.updater.knows(TOPIC, 1, 1)
        rig.put()
        assert len(rig.accumulator.topics[TOPIC].leaders) == 2

    @for_each(
        ("arguments", "error", "told"),
        [
            ({"topic": None}, TypeError, "topic must be str"),
            ({"topic": ["unhashable"]}, TypeError, "topic must be str"),
            ({"topic": "no such name"}, ValueError, "topic 'no such name'"),
            ({"value": "text"}, TypeError, "value must be bytes.*value_serializer"),
            ({"key": "text"}, TypeError, "key must be bytes.*key_serializer"),
            ({"partition": -1}, ValueError, "partition must be 0 to 2"),
            ({"partition": "0"}, TypeError, "partition must be int"),
            ({"headers": {"h": 1}}, TypeError, "headers: the value of 'h'"),
            ({"headers": 5}, TypeError, "headers must be pairs"),
            ({"timestamp_ms": -1}, ValueError, "timestamp_ms must be milliseconds"),
            ({"timestamp_ms": 1.5}, TypeError, "timestamp_ms must be int"),
        ],
    )
    async def test_wrong_argument_is_named_and_nothing_appended(
        self, arguments: dict[str, Any], error: type[Exception], told: str
    ) -> None:
        rig = Rig()
        with pytest.raises(error, match=told):
            rig.try_append(**arguments)
        assert rig.queued == 0
        assert list(rig.accumulator.topics) == [TOPIC]


class TestWrongLoop:
    async def test_call_from_another_loop_is_refused(self) -> None:
        rig = Rig()

        async def elsewhere() -> None:
            with pytest.raises(WrongLoop, match="run_coroutine_threadsafe"):
                rig.try_append()

        await asyncio.to_thread(asyncio.run, elsewhere())

    async def test_call_from_a_thread_without_a_loop_is_refused(self) -> None:
        rig = Rig()
        errors: list[Exception] = []

        def elsewhere() -> None:
            try:
                rig.try_append()
            except WrongLoop as error:
                errors.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(errors) == 1
        assert rig.queued == 0


def in_line(rig: Rig, calls: int) -> None:
    """Let *calls* calls hold the lock of the topic or wait for the lock."""
    lock = rig.accumulator.topics[TOPIC].append_lock
    lock.readmit([QueuedCall() for _ in range(calls)])


class TestPendingCalls:
    async def test_records_for_an_unknown_topic(self) -> None:
        pending = Rig(partitions=0).pending(bytearray(b"v"), b"k", headers={"h": b"1"})
        assert (pending.topic, pending.value, pending.key) == (TOPIC, b"v", b"k")
        assert (pending.partition, pending.headers) == (None, (("h", b"1"),))
        assert (pending.timestamp_ms, pending.ready) == (NOW_MS, None)

    async def test_records_behind_one_that_waits(self) -> None:
        rig = Rig()
        in_line(rig, 1)
        assert rig.pending().ready is None
        assert rig.pending(b"v", b"k", timestamp_ms=1).ready is None
        assert rig.queued == 0

    async def test_records_for_a_partition_that_is_not_known(self) -> None:
        assert Rig(partitions=1).pending(partition=1).partition == 1

    @pytest.mark.parametrize("timestamp_ms", [None, 5])
    async def test_record_that_waits_for_memory_is_partitioned_once(self, timestamp_ms: int | None) -> None:
        chosen = []

        def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
            chosen.append(key)
            return 1

        rig = Rig(partitions=2, partitioner=CallablePartitioner(choose))
        rig.use_up_memory()
        pending = rig.pending(b"v", b"k", timestamp_ms=timestamp_ms)
        assert pending.ready is not None
        assert pending.ready[0] is rig.queue(1)
        assert chosen == [b"k"]


class TestRefusal:
    async def test_refusal_for_an_unknown_topic_requests_metadata(self) -> None:
        rig = Rig(partitions=0)
        error = rig.intake.refusal(rig.pending())
        assert isinstance(error, MetadataUnavailable)
        assert rig.updater.touched == [TOPIC]
        rig.accumulator.topic(TOPIC)  # another call waits for the topic
        assert isinstance(rig.intake.refusal(rig.pending()), MetadataUnavailable)

    async def test_refusal_for_a_missing_partition_refreshes_metadata(self) -> None:
        rig = Rig(partitions=2)
        error = rig.intake.refusal(rig.pending(partition=2))
        assert isinstance(error, ValueError)
        assert str(error) == "partition=2: 'orders' has 2 partitions, 0 to 1"
        assert rig.updater.refreshes == [frozenset({TOPIC})]

    async def test_earlier_calls_may_not_be_overtaken(self) -> None:
        rig = Rig()
        in_line(rig, 3)
        error = rig.intake.refusal(rig.pending(partition=0))
        assert isinstance(error, BufferFull)
        assert str(error) == "the record would have to wait behind 3 earlier calls for 'orders'"

    async def test_refusal_without_memory_reports_free_bytes(self) -> None:
        rig = Rig()
        rig.use_up_memory()
        error = rig.intake.refusal(rig.pending())
        assert isinstance(error, BufferFull)
        assert str(error) == "0 of 1,000,000 bytes of buffer_memory are free, too few for this record"
        rig.accumulator.memory.waiters.append((1, rig.loop.create_future(), None))
        error = rig.intake.refusal(rig.pending())
        assert str(error).endswith(" are free, and earlier calls are waiting for memory")

    async def test_interceptors_receive_a_refusal(self) -> None:
        spy = Spy()
        rig = Rig(interceptors=[spy])
        rig.use_up_memory()
        error = rig.intake.refusal(rig.pending())
        assert spy.errors == [(error, (TOPIC, -1))]


@for_each(
    ("topic", "partition", "oldest"),
    [
        (TOPIC, 1, f"{TOPIC}-1"),
        (TOPIC, None, f"{TOPIC}-0"),
        (TOPIC, 2, f"{TOPIC}-0"),
        ("unknown", None, "another-0"),
    ],
)
async def test_not_appended_error_names_the_nearest_oldest_batch(
    topic: str, partition: int | None, oldest: str
) -> None:
    rig = Rig(partitions=3)
    rig.learn("another", 1)
    rig.try_append(topic="another", partition=0)
    for each in (0, 1):
        rig.try_append(partition=each)
    error = rig.intake.not_appended("not appended", topic, partition, timeout_s=1, due_at=1)
    assert f"; the oldest record: {oldest}: delivery timed out" in str(error)


async def test_not_appended_reason_without_batches_is_the_loop() -> None:
    error = Rig().intake.not_appended("not appended", TOPIC, None, timeout_s=1, due_at=1)
    assert error.reason is TimeoutReason.LOOP_BLOCKED
