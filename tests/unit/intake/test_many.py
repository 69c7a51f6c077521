from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aioproducer.batching.batch import Batch
from aioproducer.batching.failure import Failure
from aioproducer.cluster.partitioner import (
    CallablePartitioner,
    Murmur2Partitioner,
    Partitioner,
    RoundRobinPartitioner,
)
from aioproducer.errors import (
    BufferTimeout,
    DeliveryTimeout,
    MetadataTimeout,
    ProducerClosed,
    ProducerError,
    RecordTooLarge,
    SerializationError,
)
from aioproducer.intake.intake import Intake
from aioproducer.intake.many import CHUNK_RECORDS, ManyIntake
from aioproducer.intake.rows import check_rows
from aioproducer.intake.settings import IntakeSettings
from aioproducer.interceptors import Interceptor, InterceptorChain
from aioproducer.results import SendManyResult
from aioproducer.serializers import Serializer, string_serializer
from aioproducer.testing import in_virtual_time
from aioproducer.types import ProducerRecord, RecordMetadata, TopicPartition
from tests.unit.workbench import TOPIC, Workbench, topic_info

OVERHEAD = 14
"""What a small record takes besides its value."""
BATCH = 61


class Spy(Interceptor):
    def __init__(self, change: Callable[[ProducerRecord], ProducerRecord] = lambda record: record) -> None:
        self.change = change
        self.seen: list[Any] = []
        self.errors: list[tuple[type[ProducerError], TopicPartition]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(record.value)
        return self.change(record)

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
    ) -> None:
        assert error is not None
        self.errors.append((type(error), record))


class Bench(Workbench):
    """With a bulk intake on top; `broker` acknowledges whatever is drained."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[Interceptor] = (),
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        max_block_s: float = 60.0,
        **settings: Any,
    ) -> None:
        super().__init__(partitions=partitions, **settings)
        intake = Intake(
            IntakeSettings(
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner or Murmur2Partitioner(),
                interceptors=InterceptorChain(interceptors),
                max_block_s=max_block_s,
            ),
            accumulator=self.accumulator,
            settler=self.settler,
            refresher=self.refresher.real,
        )
        self.intake = intake
        self.many = ManyIntake(intake, accumulator=self.accumulator, settler=self.settler)
        self.offsets: dict[int, int] = {}

    def send(
        self, values: Any, *, timeout_s: float | None = None, **columns: Any
    ) -> asyncio.Task[SendManyResult]:
        settings = self.intake.settings
        defaults: dict[str, Any] = {
            "keys": None,
            "headers": None,
            "common_headers": (),
            "timestamps_ms": None,
            "partition": None,
            "partitions": None,
        }
        rows = check_rows(
            TOPIC,
            values,
            **(defaults | columns),
            serialized_later=(settings.value_serializer is not None, settings.key_serializer is not None),
        )
        return asyncio.create_task(self.many.send(rows, timeout_s))

    async def delivered(self, sending: asyncio.Task[SendManyResult]) -> SendManyResult:
        """Acknowledge batch after batch until *sending* is done; return its result."""
        await settle()
        while not sending.done():
            if not self.acknowledge():
                await asyncio.sleep(1)
            await settle()
        return sending.result()

    def acknowledge(self) -> list[Batch]:
        """Acknowledge one batch of each partition; in a hurry, if somebody waits for memory."""
        self.accumulator.schedule.collect(self.loop.time(), hurry=self.accumulator.hurry)
        batches = self.accumulator.schedule.drain(1, self.loop.time(), 2**31)
        for batch in batches:
            partition = batch.queue.partition
            offset = self.offsets.get(partition, 0)
            self.offsets[partition] = offset + len(batch)
            self.settler.deliver(batch, offset)
        return batches

    @property
    def queued(self) -> int:
        return sum(len(batch) for batch in self.accumulator.unresolved)

    def queued_values(self, partition: int) -> list[bytes | None]:
        return [value for batch in self.queue(partition).batches for value in batch.columns.values]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class TestOutcomes:
    @in_virtual_time
    async def test_every_position_has_its_place_in_the_log(self) -> None:
        bench = Bench(partitions=2)
        result = await bench.delivered(bench.send([b"a", b"b", b"c"], partitions=[1, 0, 1]))
        assert [(result.partition(i), result.offset(i)) for i in range(3)] == [(1, 0), (0, 0), (1, 1)]
        assert (len(result), result.delivered, result.failures) == (3, 3, {})

    @in_virtual_time
    async def test_no_values_need_no_broker(self) -> None:
        result = await Bench(partitions=0).send([])
        assert len(result) == 0

    @in_virtual_time
    async def test_all_columns_arrive(self) -> None:
        bench = Bench()
        sending = bench.send(
            [b"a", b"b"],
            keys=[b"k", None],
            headers=[{"h": b"1"}, ()],
            common_headers={"all": None},
            timestamps_ms=[5, 6],
        )
        await settle()
        [batch] = bench.accumulator.unresolved
        assert batch.columns.values == [b"a", b"b"]
        assert batch.columns.keys == [b"k", None]
        assert batch.columns.headers == [(("all", None), ("h", b"1")), (("all", None),)]
        assert batch.columns.timestamps == [5, 6]
        await bench.delivered(sending)

    @in_virtual_time
    async def test_it_never_lingers(self) -> None:
        bench = Bench(partitions=2, linger_s=1_000.0)
        sending = bench.send([b"a", b"b"], partitions=[0, 1])
        await settle()
        assert len(bench.acknowledge()) == 2
        assert (await sending).delivered == 2
        assert bench.loop.time() == 0

    @in_virtual_time
    async def test_batches_of_others_go_on_lingering(self) -> None:
        bench = Bench(partitions=2, linger_s=1_000.0)
        other = bench.fill(b"other", partition=1)
        sending = bench.send([b"a"], partition=0)
        await settle()
        assert bench.queue(1).open is other
        await bench.delivered(sending)


class TestPartitions:
    @in_virtual_time
    async def test_order_within_a_partition_is_that_of_the_values(self) -> None:
        bench = Bench(partitions=3, batch_bytes=200)
        values = [b"%d" % number for number in range(60)]
        partitions = [number % 3 for number in range(60)]
        sending = bench.send(values, partitions=partitions)
        await settle()
        for partition in range(3):
            assert bench.queued_values(partition) == values[partition::3]
        await bench.delivered(sending)

    @in_virtual_time
    async def test_also_where_only_some_have_a_partition_or_a_key(self) -> None:
        bench = Bench(partitions=2, batch_bytes=200)
        values = [b"%03d" % number for number in range(200)]
        keys = [b"k%d" % number if number % 3 == 0 else None for number in range(200)]
        partitions = [1 if number % 5 == 0 else None for number in range(200)]
        sending = bench.send(values, keys=keys, partitions=partitions)
        await settle()
        queued = [bench.queued_values(partition) for partition in range(2)]
        assert sorted(queued[0] + queued[1]) == values  # type: ignore[type-var]
        assert queued == [sorted(each) for each in queued]  # type: ignore[type-var]
        await bench.delivered(sending)

    @in_virtual_time
    async def test_without_key_or_partition_they_fill_one_batch_after_the_other(self) -> None:
        bench = Bench(partitions=4, batch_bytes=200)
        sending = bench.send([b"x" * 30] * 30)
        await settle()
        sizes = [len(batch) for batch in bench.accumulator.unresolved]
        assert sizes == [3] * 10
        await bench.delivered(sending)

    @in_virtual_time
    async def test_keys_go_where_kafka_puts_them(self) -> None:
        bench = Bench(partitions=7)
        keys = [b"key-%d" % number for number in range(50)]
        result = await bench.delivered(bench.send([b"v"] * 50, keys=keys))
        chosen = [Murmur2Partitioner().partition(TOPIC, key, 7, ()) for key in keys]
        assert [result.partition(i) for i in range(50)] == chosen

    @in_virtual_time
    async def test_with_and_without_keys_mixed_keys_go_there_too(self) -> None:
        bench = Bench(partitions=7)
        result = await bench.delivered(bench.send([b"v"] * 3, keys=[b"key-1", None, b"key-2"]))
        chosen = [Murmur2Partitioner().partition(TOPIC, key, 7, ()) for key in (b"key-1", b"key-2")]
        assert [result.partition(0), result.partition(2)] == chosen

    @in_virtual_time
    async def test_a_partitioner_may_choose_for_records_without_a_key(self) -> None:
        bench = Bench(partitions=3, partitioner=RoundRobinPartitioner())
        result = await bench.delivered(bench.send([b"v"] * 6))
        assert [result.partition(i) for i in range(6)] == [0, 1, 2, 0, 1, 2]

    @in_virtual_time
    async def test_a_partition_that_does_not_exist_is_a_wrong_argument(self) -> None:
        for columns, told in (
            ({"partition": 2}, "partition=2"),
            ({"partitions": [0, 2]}, r"partitions\[1\]=2"),
        ):
            bench = Bench(partitions=2)
            sending = bench.send([b"a", b"b"], **columns)
            await settle()
            bench.refresher.asked[0][2].set_result(topic_info(TOPIC, 1, 1))
            with pytest.raises(ValueError, match=f"^{told}: 'orders' has 2 partitions"):
                await sending
            assert bench.queued == 0
            assert bench.accumulator.callers == 0


class TestRecordsThatFail:
    @in_virtual_time
    async def test_an_unserializable_one_fails_alone(self) -> None:
        spy = Spy()
        bench = Bench(
            value_serializer=string_serializer, key_serializer=string_serializer, interceptors=[spy]
        )
        result = await bench.delivered(bench.send(["a", 5, "c", "d"], keys=["k", "l", 7, None]))
        assert list(result.failures) == [1, 2]
        assert all(isinstance(error, SerializationError) for error in result.failures.values())
        assert isinstance(result.failures[1].__cause__, TypeError)
        assert [result.offset(0), result.offset(3)] == [0, 1]
        assert spy.errors == [(SerializationError, (TOPIC, -1))] * 2

    @in_virtual_time
    async def test_an_oversized_one_fails_alone(self) -> None:
        bench = Bench(max_request_bytes=1_000)
        result = await bench.delivered(bench.send([b"a", b"x" * 1_000, b"c"]))
        assert list(result.failures) == [1]
        assert isinstance(result.failures[1], RecordTooLarge)
        assert not result.failures[1].possibly_persisted
        assert [result.offset(0), result.offset(2)] == [0, 1]

    @in_virtual_time
    async def test_if_all_fail_nobody_waits(self) -> None:
        bench = Bench(max_request_bytes=1_000)
        result = await bench.send([b"x" * 1_000] * 2)
        assert list(result.failures) == [0, 1]
        assert bench.queued == 0

    @in_virtual_time
    async def test_one_that_the_partitioner_fails_for_fails_alone(self) -> None:
        def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
            if key is None:
                raise LookupError("no key")
            return 1

        bench = Bench(partitions=2, partitioner=CallablePartitioner(choose))
        result = await bench.delivered(bench.send([b"a", b"b", b"c"], keys=[b"k", None, b"k"]))
        assert list(result.failures) == [1]
        assert isinstance(result.failures[1].__cause__, LookupError)
        assert [result.offset(0), result.offset(2)] == [0, 1]

    @pytest.mark.parametrize(
        "chosen",
        [[0, 2], [0, -1], [0], [0, 0, 0], [0, 0.5], LookupError("no")],
        ids=["high", "low", "few", "many", "no integer", "error"],
    )
    @in_virtual_time
    async def test_all_fail_if_a_partitioner_of_columns_does(self, chosen: list[Any] | Exception) -> None:
        class Odd(Murmur2Partitioner):
            def partition_column(self, *_: object) -> Sequence[int]:
                if isinstance(chosen, Exception):
                    raise chosen
                return chosen

        spy = Spy()
        bench = Bench(partitions=2, partitioner=Odd(), interceptors=[spy])
        bench.learn(TOPIC, 1, 1)
        result = await bench.send([b"a", b"b"], keys=[b"k", b"l"])
        assert [type(each) for each in result.failures.values()] == [ProducerError] * 2
        assert "the partitioner failed for records of 'orders'" in str(result.failures[0])
        assert spy.errors == [(ProducerError, (TOPIC, -1))] * 2
        assert bench.queued == 0


class TestInterceptors:
    @in_virtual_time
    async def test_they_see_every_record_and_may_change_it(self) -> None:
        def change(record: ProducerRecord) -> ProducerRecord:
            record.value = record.value.upper()
            record.key = b"key"
            record.headers = {"seen": b"yes"}
            record.timestamp_ms = 5
            return record

        spy = Spy(change)
        bench = Bench(interceptors=[spy])
        sending = bench.send(
            [b"a", b"b"], keys=[b"k", b"l"], headers=[(), {"own": b"1"}], timestamps_ms=[1, 2]
        )
        await settle()
        [batch] = bench.accumulator.unresolved
        assert spy.seen == [b"a", b"b"]
        assert batch.columns.values == [b"A", b"B"]
        assert batch.columns.keys == [b"key", b"key"]
        assert batch.columns.headers == [(("seen", b"yes"),)] * 2
        assert batch.columns.timestamps == [5, 5]
        await bench.delivered(sending)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"topic": "audit"}, "an interceptor moved a record from 'orders' to 'audit'"),
            ({"value": "text"}, "an interceptor spoilt a record for 'orders': value must be bytes"),
            ({"partition": -1}, "an interceptor spoilt a record for 'orders': partition must be 0 to 2"),
            ({"partition": 2}, "partition=2: 'orders' has 2 partitions"),
        ],
    )
    @in_virtual_time
    async def test_a_record_that_they_spoil_fails_alone(self, change: dict[str, Any], told: str) -> None:
        def spoil(record: ProducerRecord) -> ProducerRecord:
            if record.value == b"b":
                for name, value in change.items():
                    setattr(record, name, value)
            return record

        spy = Spy(spoil)
        bench = Bench(partitions=2, interceptors=[spy])
        result = await bench.delivered(bench.send([b"a", b"b", b"c"]))
        assert list(result.failures) == [1]
        assert str(result.failures[1]).startswith(told)
        assert result.delivered == 2
        assert [kind for kind, _ in spy.errors] == [ProducerError]


class TestMemory:
    @in_virtual_time
    async def test_records_go_in_chunks_that_fit(self) -> None:
        bench = Bench(buffer_bytes=1_000, batch_bytes=400)
        result = await bench.delivered(bench.send([b"x" * 86] * 100))
        assert result.delivered == 100
        assert [result.offset(i) for i in range(100)] == list(range(100))
        assert bench.accumulator.memory.used == 0

    @in_virtual_time
    async def test_no_more_is_queued_than_there_is_memory(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        sending = bench.send([b"x" * 86] * 100)
        await settle()
        assert bench.queued == (1_000 - BATCH) // 100
        assert bench.accumulator.arriving == 100 - bench.queued
        await bench.delivered(sending)

    @in_virtual_time
    async def test_each_wait_has_its_own_max_block(self) -> None:
        bench = Bench(buffer_bytes=1_000, max_block_s=10.0)
        sending = bench.send([b"x" * 86] * 50)
        while not sending.done():
            await asyncio.sleep(9)
            bench.acknowledge()
            await settle()
        assert bench.loop.time() > 20
        assert sending.result().delivered == 50

    @in_virtual_time
    async def test_what_finds_no_room_in_time_fails_and_the_rest_of_it_goes(self) -> None:
        spy = Spy()
        bench = Bench(buffer_bytes=1_000, max_block_s=5.0, interceptors=[spy])
        sending = bench.send([b"x" * 86] * 20)
        await asyncio.sleep(6)
        queued = bench.queued
        result = await bench.delivered(sending)
        assert result.delivered == queued
        assert list(result.failures) == list(range(queued, 20))
        assert isinstance(result.failures[19], BufferTimeout)
        assert result.failures[19] is not result.failures[18]
        assert len(spy.errors) == 20 - queued

    @in_virtual_time
    async def test_later_calls_for_the_topic_queue_behind_it(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        sending = bench.send([b"x" * 86] * 20)
        await settle()
        later = bench.send([b"later"])
        assert (await bench.delivered(sending)).delivered == 20
        result = await bench.delivered(later)
        assert result.offset(0) == 20

    @in_virtual_time
    async def test_the_event_loop_has_its_turn_between_large_chunks(self) -> None:
        bench = Bench(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = bench.send([b"v"] * (CHUNK_RECORDS * 2 + 1))
        await asyncio.sleep(0)
        assert bench.queued == CHUNK_RECORDS
        assert bench.accumulator.arriving == CHUNK_RECORDS + 1
        await asyncio.sleep(0)
        assert bench.queued == CHUNK_RECORDS * 2
        assert (await bench.delivered(sending)).delivered == CHUNK_RECORDS * 2 + 1
        assert bench.accumulator.arriving == 0


class TestMetadata:
    @in_virtual_time
    async def test_an_unknown_topic_is_waited_for(self) -> None:
        bench = Bench(partitions=0)
        sending = bench.send([b"a"])
        await settle()
        bench.refresher.asked[0][2].set_result(topic_info(TOPIC, 1))
        assert (await bench.delivered(sending)).delivered == 1

    @in_virtual_time
    async def test_what_waited_in_vain_fails_and_interceptors_never_saw_it(self) -> None:
        spy = Spy()
        bench = Bench(partitions=0, max_block_s=2.0, interceptors=[spy])
        ahead = asyncio.create_task(
            bench.intake.wait(bench.intake.pend(TOPIC, b"v", None, None, (), None), 0, None)
        )
        await settle()
        result = await bench.send([b"a", b"b"])
        assert all(isinstance(error, MetadataTimeout) for error in result.failures.values())
        assert len(result.failures) == 2
        await asyncio.wait([ahead])
        assert isinstance(ahead.exception(), TimeoutError)
        assert spy.seen == [b"v"]


class TestTimeout:
    @in_virtual_time
    async def test_what_was_never_sent_is_taken_out(self) -> None:
        bench = Bench()
        result = await bench.send([b"a", b"b"], timeout_s=2.0)
        assert bench.loop.time() == 2
        assert bench.queued == 0
        for error in result.failures.values():
            assert isinstance(error, DeliveryTimeout)
            assert not error.possibly_persisted

    @in_virtual_time
    async def test_what_was_sent_may_be_in_the_log(self) -> None:
        bench = Bench()
        sending = bench.send([b"a", b"b"], timeout_s=2.0)
        await settle()
        [batch] = bench.drain()
        result = await sending
        assert [error.possibly_persisted for error in result.failures.values()] == [True, True]
        bench.settler.deliver(batch, 0)
        assert result.delivered == 0, "it is too late for that"

    @in_virtual_time
    async def test_what_was_delivered_by_then_stays_so(self) -> None:
        bench = Bench(partitions=2)
        sending = bench.send([b"a", b"b"], partitions=[0, 1], timeout_s=2.0)
        await settle()
        first, _ = bench.drain()
        bench.settler.deliver(first, 7)
        result = await sending
        assert result.delivered == 1
        assert len(result.failures) == 1

    @in_virtual_time
    async def test_what_still_waits_for_memory_fails_too(self) -> None:
        bench = Bench(buffer_bytes=1_000)
        result = await bench.send([b"x" * 86] * 20, timeout_s=2.0)
        assert len(result.failures) == 20
        assert bench.loop.time() == 2
        assert not any(error.possibly_persisted for error in result.failures.values())

    @in_virtual_time
    async def test_nothing_is_appended_after_it(self) -> None:
        bench = Bench(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = bench.send([b"v"] * (CHUNK_RECORDS * 3), timeout_s=0.0)
        result = await sending
        assert len(result.failures) == CHUNK_RECORDS * 3
        assert bench.queued == 0
        assert isinstance(result.failures[CHUNK_RECORDS * 3 - 1], DeliveryTimeout)

    @in_virtual_time
    async def test_an_outcome_before_it_takes_the_timer_along(self) -> None:
        bench = Bench()
        result = await bench.delivered(bench.send([b"a"], timeout_s=2.0))
        await asyncio.sleep(3)
        assert result.failures == {}


class TestEnd:
    @in_virtual_time
    async def test_cancelled_while_waiting_for_the_broker_the_records_go_on(self) -> None:
        bench = Bench()
        sending = bench.send([b"a"])
        await settle()
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        [batch] = bench.acknowledge()
        assert len(batch) == 1

    @in_virtual_time
    async def test_cancelled_while_waiting_for_memory_no_more_is_appended(self) -> None:
        bench = Bench(buffer_bytes=1_000, linger_s=1_000.0)
        sending = bench.send([b"x" * 86] * 20)
        await settle()
        queued = bench.queued
        sending.cancel()
        await asyncio.wait([sending])
        [batch] = bench.acknowledge()
        assert len(batch) == queued, "it went without lingering"
        await settle()
        assert bench.queued == 0
        assert bench.accumulator.arriving == 0

    @in_virtual_time
    async def test_closed_between_two_chunks_no_more_is_appended(self) -> None:
        bench = Bench(buffer_bytes=10_000_000, batch_bytes=10_000_000)
        sending = bench.send([b"v"] * (CHUNK_RECORDS * 2))
        await asyncio.sleep(0)
        closed = Failure(ProducerClosed, "closed")
        arriving = bench.accumulator.arriving
        bench.accumulator.close(closed)
        assert arriving + bench.settler.fail_everything(closed) == CHUNK_RECORDS * 2
        result = await sending
        assert len(result.failures) == CHUNK_RECORDS * 2
        assert all(isinstance(error, ProducerClosed) for error in result.failures.values())
        assert bench.queued == 0
