from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aioproducer._core.intake.many import CHUNK_RECORDS
from aioproducer._core.partitioning import (
    CallablePartitioner,
    Murmur2Partitioner,
    RoundRobinPartitioner,
)
from aioproducer.errors import ProducerError, RecordTooLarge, SerializationError
from aioproducer.serializers import HeaderList, string_serializer
from aioproducer.testing import in_virtual_time
from aioproducer.types import ProducerRecord
from tests.cases import for_each
from tests.fakes import topic_info
from tests.unit._core.intake.intake_rig import Spy
from tests.unit._core.intake.many_rig import Rig
from tests.unit.floor_rig import TOPIC, settle


class TestOutcomes:
    @in_virtual_time
    async def test_result_has_partition_and_offset_of_every_position(self) -> None:
        rig = Rig(partitions=2)
        result = await rig.delivered(rig.send([b"a", b"b", b"c"], partitions=[1, 0, 1]))
        assert [(result.partition(i), result.offset(i)) for i in range(3)] == [(1, 0), (0, 0), (1, 1)]
        assert (len(result), result.delivered, result.failures) == (3, 3, {})

    @in_virtual_time
    async def test_call_without_values_needs_no_broker(self) -> None:
        result = await Rig(partitions=0).send([])
        assert len(result) == 0

    @in_virtual_time
    async def test_all_columns_are_appended(self) -> None:
        rig = Rig()
        sending = rig.send(
            [b"a", b"b"],
            keys=[b"k", None],
            headers=[{"h": b"1"}, ()],
            common_headers={"all": None},
            timestamps_ms=[5, 6],
        )
        await settle()
        [batch] = rig.accumulator.unresolved
        assert batch.columns.values == [b"a", b"b"]
        assert batch.columns.keys == [b"k", None]
        assert batch.columns.headers == [(("all", None), ("h", b"1")), (("all", None),)]
        assert batch.columns.timestamps == [5, 6]
        await rig.delivered(sending)

    @in_virtual_time
    async def test_records_of_send_many_never_linger(self) -> None:
        rig = Rig(partitions=2, linger_s=1_000.0)
        sending = rig.send([b"a", b"b"], partitions=[0, 1])
        await settle()
        assert len(rig.acknowledge()) == 2
        assert (await sending).delivered == 2
        assert rig.loop.time() == 0

    @in_virtual_time
    async def test_batches_of_other_calls_keep_lingering(self) -> None:
        rig = Rig(partitions=2, linger_s=1_000.0)
        other = rig.fill(b"other", partition=1)
        sending = rig.send([b"a"], partition=0)
        await settle()
        assert rig.queue(1).open is other
        await rig.delivered(sending)


class TestPartitions:
    @in_virtual_time
    async def test_order_within_a_partition_is_that_of_the_values(self) -> None:
        rig = Rig(partitions=3, batch_bytes=200)
        values = [b"%d" % number for number in range(60)]
        partitions = [number % 3 for number in range(60)]
        sending = rig.send(values, partitions=partitions)
        await settle()
        for partition in range(3):
            assert rig.queued_values(partition) == values[partition::3]
        await rig.delivered(sending)

    @in_virtual_time
    async def test_order_is_kept_if_only_some_records_have_a_partition(self) -> None:
        rig = Rig(partitions=2, batch_bytes=200)
        values = [b"%03d" % number for number in range(200)]
        keys = [b"k%d" % number if number % 3 == 0 else None for number in range(200)]
        partitions = [1 if number % 5 == 0 else None for number in range(200)]
        sending = rig.send(values, keys=keys, partitions=partitions)
        await settle()
        queued = [rig.queued_values(partition) for partition in range(2)]
        assert sorted(queued[0] + queued[1]) == values  # type: ignore[type-var]
        assert queued == [sorted(each) for each in queued]  # type: ignore[type-var]
        await rig.delivered(sending)

    @in_virtual_time
    async def test_keyless_records_fill_one_batch_after_the_other(self) -> None:
        rig = Rig(partitions=4, batch_bytes=200)
        sending = rig.send([b"x" * 30] * 30)
        await settle()
        sizes = [len(batch) for batch in rig.accumulator.unresolved]
        assert sizes == [3] * 10
        await rig.delivered(sending)

    @in_virtual_time
    async def test_keys_choose_the_partitions_of_murmur2(self) -> None:
        rig = Rig(partitions=7)
        keys = [b"key-%d" % number for number in range(50)]
        result = await rig.delivered(rig.send([b"v"] * 50, keys=keys))
        chosen = [Murmur2Partitioner().partition(TOPIC, key, 7, ()) for key in keys]
        assert [result.partition(i) for i in range(50)] == chosen

    @in_virtual_time
    async def test_keys_choose_their_partitions_beside_keyless_records(self) -> None:
        rig = Rig(partitions=7)
        result = await rig.delivered(rig.send([b"v"] * 3, keys=[b"key-1", None, b"key-2"]))
        chosen = [Murmur2Partitioner().partition(TOPIC, key, 7, ()) for key in (b"key-1", b"key-2")]
        assert [result.partition(0), result.partition(2)] == chosen

    @in_virtual_time
    async def test_partitioner_may_choose_for_keyless_records(self) -> None:
        rig = Rig(partitions=3, partitioner=RoundRobinPartitioner())
        result = await rig.delivered(rig.send([b"v"] * 6))
        assert [result.partition(i) for i in range(6)] == [0, 1, 2, 0, 1, 2]

    @in_virtual_time
    async def test_missing_partition_raises_value_error(self) -> None:
        for columns, told in (
            ({"partition": 2}, "partition=2"),
            ({"partitions": [0, 2]}, r"partitions\[1\]=2"),
        ):
            rig = Rig(partitions=2)
            sending = rig.send([b"a", b"b"], **columns)
            await settle()
            rig.updater.asked[0][2].set_result(topic_info(TOPIC, 1, 1))
            with pytest.raises(ValueError, match=f"^{told}: 'orders' has 2 partitions"):
                await sending
            assert rig.queued == 0
            assert len(rig.accumulator.pending_calls) == 0


class TestFailingRecords:
    @in_virtual_time
    async def test_unserializable_record_fails_alone(self) -> None:
        spy = Spy()
        rig = Rig(value_serializer=string_serializer, key_serializer=string_serializer, interceptors=[spy])
        result = await rig.delivered(rig.send(["a", 5, "c", "d"], keys=["k", "l", 7, None]))
        assert list(result.failures) == [1, 2]
        assert all(isinstance(error, SerializationError) for error in result.failures.values())
        assert isinstance(result.failures[1].__cause__, TypeError)
        assert [result.offset(0), result.offset(3)] == [0, 1]
        assert [(type(error), where) for error, where in spy.errors] == [
            (SerializationError, (TOPIC, -1))
        ] * 2

    @in_virtual_time
    async def test_unserializable_record_is_named_by_its_position(self) -> None:
        class SeesTopic:
            def serialize(self, topic: str, headers: object, value: str) -> bytes:
                return value.encode()

        for serializer in (string_serializer, SeesTopic()):
            rig = Rig(value_serializer=serializer)
            values: list[object] = ["v"] * (CHUNK_RECORDS + 2)
            values[-1] = 5
            result = await rig.delivered(rig.send(values))
            [error] = result.failures.values()
            assert f"the value of record {CHUNK_RECORDS + 1} for 'orders' (int)" in str(error)

    @in_virtual_time
    async def test_serializer_that_sees_topic_and_headers_may_add_headers(self) -> None:
        class Marks:
            def serialize(self, topic: str, headers: HeaderList, value: Any) -> bytes:
                headers.append(("topic", topic.encode()))
                if value is None:
                    raise LookupError
                return b"%d" % value

        spy = Spy()
        rig = Rig(value_serializer=Marks(), interceptors=[spy])
        sending = rig.send([1, None, 3], headers=[[("own", b"1")], [], []])
        await settle()
        topic = ("topic", b"orders")
        assert [record[::2] for record in rig.records()] == [
            (b"1", (("own", b"1"), topic)),
            (b"3", (topic,)),
        ]
        result = await rig.delivered(sending)
        assert list(result.failures) == [1]
        assert [type(error) for error, _ in spy.errors] == [SerializationError]

    @in_virtual_time
    async def test_oversized_record_fails_alone(self) -> None:
        rig = Rig(max_request_bytes=1_000)
        result = await rig.delivered(rig.send([b"a", b"x" * 1_000, b"c"]))
        assert list(result.failures) == [1]
        assert isinstance(result.failures[1], RecordTooLarge)
        assert not result.failures[1].possibly_persisted
        assert [result.offset(0), result.offset(2)] == [0, 1]

    @in_virtual_time
    async def test_call_returns_immediately_if_all_records_fail(self) -> None:
        rig = Rig(max_request_bytes=1_000)
        result = await rig.send([b"x" * 1_000] * 2)
        assert list(result.failures) == [0, 1]
        assert rig.queued == 0

    @in_virtual_time
    async def test_record_that_the_partitioner_rejects_fails_alone(self) -> None:
        def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
            if key is None:
                raise LookupError("no key")
            return 1

        rig = Rig(partitions=2, partitioner=CallablePartitioner(choose))
        result = await rig.delivered(rig.send([b"a", b"b", b"c"], keys=[b"k", None, b"k"]))
        assert list(result.failures) == [1]
        assert isinstance(result.failures[1].__cause__, LookupError)
        assert [result.offset(0), result.offset(2)] == [0, 1]

    @for_each(
        "chosen",
        [[0, 2], [0, -1], [0], [0, 0, 0], [0, 0.5], LookupError("no")],
    )
    @in_virtual_time
    async def test_failing_column_partitioner_fails_all_records(self, chosen: list[Any] | Exception) -> None:
        class Odd(Murmur2Partitioner):
            def partition_column(self, *_: object) -> Sequence[int]:
                if isinstance(chosen, Exception):
                    raise chosen
                return chosen

        spy = Spy()
        rig = Rig(partitions=2, partitioner=Odd(), interceptors=[spy])
        rig.learn(TOPIC, 1, 1)
        result = await rig.send([b"a", b"b"], keys=[b"k", b"l"])
        assert [type(each) for each in result.failures.values()] == [ProducerError] * 2
        assert "the partitioner failed for records of 'orders'" in str(result.failures[0])
        assert [(type(error), where) for error, where in spy.errors] == [(ProducerError, (TOPIC, -1))] * 2
        assert rig.queued == 0


class TestInterceptors:
    @in_virtual_time
    async def test_interceptors_see_every_record_and_may_change_it(self) -> None:
        def change(record: ProducerRecord) -> ProducerRecord:
            record.value = record.value.upper()
            record.key = b"key"
            record.headers = {"seen": b"yes"}
            record.timestamp_ms = 5
            return record

        spy = Spy(change)
        rig = Rig(interceptors=[spy])
        sending = rig.send([b"a", b"b"], keys=[b"k", b"l"], headers=[(), {"own": b"1"}], timestamps_ms=[1, 2])
        await settle()
        [batch] = rig.accumulator.unresolved
        assert [record.value for record in spy.seen] == [b"a", b"b"]
        assert batch.columns.values == [b"A", b"B"]
        assert batch.columns.keys == [b"key", b"key"]
        assert batch.columns.headers == [(("seen", b"yes"),)] * 2
        assert batch.columns.timestamps == [5, 5]
        await rig.delivered(sending)

    @for_each(
        ("change", "told"),
        [
            ({"topic": "audit"}, "an interceptor moved a record from 'orders' to 'audit'"),
            (
                {"value": "text"},
                "an interceptor returned an invalid record for 'orders': value must be bytes",
            ),
            (
                {"partition": -1},
                "an interceptor returned an invalid record for 'orders': partition must be 0 to 2",
            ),
            ({"partition": 2}, "partition=2: 'orders' has 2 partitions"),
        ],
    )
    @in_virtual_time
    async def test_record_made_invalid_by_an_interceptor_fails_alone(
        self, change: dict[str, Any], told: str
    ) -> None:
        def spoil(record: ProducerRecord) -> ProducerRecord:
            if record.value == b"b":
                for name, value in change.items():
                    setattr(record, name, value)
            return record

        spy = Spy(spoil)
        rig = Rig(partitions=2, interceptors=[spy])
        result = await rig.delivered(rig.send([b"a", b"b", b"c"]))
        assert list(result.failures) == [1]
        assert str(result.failures[1]).startswith(told)
        assert result.delivered == 2
        assert [type(error) for error, _ in spy.errors] == [ProducerError]
