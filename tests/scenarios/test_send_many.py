"""Columns in, one outcome for all, per-record outcomes kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from aioproducer import (
    Interceptor,
    Producer,
    ProducerError,
    ProducerRecord,
    RecordMetadata,
    RecordTooLarge,
    SendManyError,
    SerializationError,
    TopicAuthorizationFailed,
    TopicPartition,
)
from aioproducer.errors import InvalidRecord, NotEnoughReplicas
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, producing, scenario, settle, values


async def fails(producer: Producer, *args: Any, **columns: Any) -> SendManyError:
    """Send many, and return the error."""
    with pytest.raises(SendManyError) as raised:
        await producer.send_many(TOPIC, *args, **columns)
    return raised.value


class TestResult:
    @scenario
    async def test_result_has_the_offset_of_each_position(self) -> None:
        async with producing(partitions=2) as (producer, _):
            result = await producer.send_many(
                TOPIC, [b"a", b"b", b"c"], partitions=[1, 0, 1], timestamps_ms=[7, 8, 9]
            )
            assert len(result) == result.delivered == 3
            assert result.failures == {}
            assert [result.partition(i) for i in range(3)] == [1, 0, 1]
            assert [result.offset(i) for i in range(3)] == [0, 0, 1]
            assert list(result) == [
                RecordMetadata(TOPIC, 1, 0, 7, log_append_time=False),
                RecordMetadata(TOPIC, 0, 0, 8, log_append_time=False),
                RecordMetadata(TOPIC, 1, 1, 9, log_append_time=False),
            ]

    @scenario
    async def test_send_many_accepts_no_values(self) -> None:
        async with producing() as (producer, cluster):
            result = await producer.send_many(TOPIC, [])
            assert (len(result), result.delivered, list(result)) == (0, 0, [])
            assert values(cluster) == []

    @scenario
    async def test_failure_keeps_outcomes_of_other_records(self) -> None:
        async with producing(partitions=2) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, partition=1, times=None).answer(TopicAuthorizationFailed)
            error = await fails(producer, [b"a", b"b", b"c", b"d"], partitions=[0, 1, 0, 1])
            result = error.result
            assert (len(result), result.delivered) == (4, 2)
            assert isinstance(result.failures, Mapping)
            assert list(result.failures) == [1, 3]
            assert result.offset(2) == 1
            for position in (1, 3):
                with pytest.raises(TopicAuthorizationFailed):
                    result.offset(position)
                with pytest.raises(TopicAuthorizationFailed):
                    result.partition(position)
            assert result.failures[1] is not result.failures[3]
            kinds = [type(each) for each in result]
            assert kinds == [
                RecordMetadata,
                TopicAuthorizationFailed,
                RecordMetadata,
                TopicAuthorizationFailed,
            ]
            assert "2 of 4 records for 'orders' failed" in str(error)
            assert error.__cause__ is result.failures[1]
            assert not error.possibly_persisted

    @scenario
    async def test_error_is_possibly_persisted_if_any_record_is(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(-1)
            assert (await fails(producer, [b"a"])).possibly_persisted

    @scenario
    async def test_positions_outside_the_result_raise_index_error(self) -> None:
        async with producing() as (producer, _):
            result = await producer.send_many(TOPIC, [b"a", b"b"])
            assert result.offset(-1) == 1
            for position in (2, -3):
                with pytest.raises(IndexError):
                    result.offset(position)


class TestOrder:
    @scenario
    async def test_send_many_keeps_the_order_of_values_per_partition(self) -> None:
        async with producing(
            brokers=3,
            partitions=3,
            batch_size=500,
            buffer_memory=20_000,
        ) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, times=3).answer(NotEnoughReplicas)
            sent = [b"%05d" % number for number in range(5_000)]
            keys = [b"k%d" % (number % 7) if number % 3 else None for number in range(5_000)]
            result = await producer.send_many(TOPIC, sent, keys=keys)
            logs = [values(cluster, partition) for partition in range(3)]
            assert sorted(value for log in logs for value in log if value) == sent
            assert logs == [sorted(log) for log in logs]  # type: ignore[type-var]
            assert all(
                logs[result.partition(at)][result.offset(at)] == value for at, value in enumerate(sent)
            )

    @scenario
    async def test_send_many_keeps_the_order_of_neighbouring_calls(self) -> None:
        async with producing(batch_size=500, linger_ms=50) as (producer, cluster):
            before = asyncio.create_task(producer.send(TOPIC, b"before"))
            many = asyncio.create_task(producer.send_many(TOPIC, [b"%02d" % n * 50 for n in range(50)]))
            after = asyncio.create_task(producer.send(TOPIC, b"after"))
            await asyncio.gather(before, many, after)
            log = values(cluster)
            assert (log[0], log[-1], len(log)) == (b"before", b"after", 52)


class TestColumns:
    @scenario
    async def test_send_many_sends_every_column(self) -> None:
        async with producing() as (producer, cluster):
            await producer.send_many(
                TOPIC,
                (b"a", None),
                keys=iter([None, b"k"]),
                headers=[{"own": b"1"}, ()],
                common_headers=[("all", b"0")],
                timestamps_ms=[5, None],
                partition=0,
            )
            first, second = cluster.records(TOPIC, 0)
            assert (first.value, first.key, first.headers) == (b"a", None, (("all", b"0"), ("own", b"1")))
            assert (second.value, second.key, second.headers) == (None, b"k", (("all", b"0"),))
            assert first.timestamp_ms == 5 < second.timestamp_ms

    @scenario
    async def test_headers_of_one_kind_share_batches_with_those_of_another(self) -> None:
        """Headers and keys stay with their records over many batches and calls."""

        def headers(number: int, trace: str) -> dict[str, bytes | None]:
            return {trace: b"%d" % number if number % 3 else None, "type": b"json"}

        async with producing(partitions=3, batch_size=2_000) as (producer, cluster):
            numbers = range(1_000)
            keys = [b"%d" % (number % 50) for number in numbers]
            sent = [
                producer.send_many(
                    TOPIC, keys, keys=keys, headers=[headers(number, trace) for number in numbers]
                )
                for trace in ("trace", "trace", "span")
            ]
            await asyncio.gather(*sent, producer.send(TOPIC, b"7", headers=[("alone", b"7")]))
            arrived = [
                (record.key, record.headers)
                for partition in range(3)
                for record in cluster.records(TOPIC, partition)
            ]
            expected = [
                (keys[number], tuple(headers(number, trace).items()))
                for trace in ("trace", "trace", "span")
                for number in numbers
            ]
            assert Counter(arrived) == Counter([*expected, (None, (("alone", b"7"),))])

    @for_each(
        ("columns", "error", "named"),
        [
            ({"keys": [b"k"]}, ValueError, "keys has 1 items, values has 2"),
            ({"headers": [(), (), ()]}, ValueError, "headers has 3 items"),
            ({"timestamps_ms": [1]}, ValueError, "timestamps_ms has 1 items"),
            ({"partitions": []}, ValueError, "partitions has 0 items"),
            ({"partition": 0, "partitions": [0, 0]}, ValueError, "partition"),
            ({"partition": 9}, ValueError, "partition=9"),
            ({"partitions": [0, 9]}, ValueError, r"partitions\[1\]=9"),
            ({"partition": -1}, ValueError, "partition must be"),
            ({"values": "text"}, TypeError, "values must be a column"),
            ({"values": [b"a", "b"]}, TypeError, r"values\[1\] must be bytes"),
            ({"keys": [b"k", 5]}, TypeError, r"keys\[1\] must be bytes"),
            ({"headers": [(), [("h", 1)]]}, TypeError, r"headers\[1\]"),
            ({"common_headers": 5}, TypeError, "common_headers"),
            ({"timestamps_ms": [1, -1]}, ValueError, r"timestamps_ms\[1\]"),
            ({"topic": ".."}, ValueError, "topic"),
        ],
    )
    @scenario
    async def test_wrong_columns_are_named_and_nothing_is_appended(
        self, columns: dict[str, Any], error: type[Exception], named: str
    ) -> None:
        async with producing() as (producer, cluster):
            arguments: dict[str, Any] = {"topic": TOPIC, "values": [b"a", b"b"], **columns}
            with pytest.raises(error, match=named) as raised:
                await producer.send_many(**arguments)
            assert type(raised.value) is error
            await producer.flush()
            assert values(cluster) == []


class Upper(Interceptor):
    def __init__(self) -> None:
        self.ended: list[type[Any]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        if isinstance(record.value, bytes):
            record.value = record.value.upper()
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
    ) -> None:
        if record.topic == TOPIC:
            self.ended.append(type(metadata or error))


class TestUserCode:
    @scenario
    async def test_interceptors_see_every_record_begin_and_end(self) -> None:
        upper = Upper()
        async with producing(interceptors=[upper], max_request_size=1_000) as (producer, cluster):
            await fails(producer, [b"a", b"x" * 1_000, b"c"])
            assert values(cluster) == [b"A", b"C"]
            assert sorted(upper.ended, key=str) == sorted(
                [RecordMetadata, RecordMetadata, RecordTooLarge], key=str
            )

    @scenario
    async def test_unserializable_or_oversized_record_fails_alone(self) -> None:
        async with producing(
            acquainted=False,
            value_serializer=str.encode,
            max_request_size=1_000,
        ) as (producer, cluster):
            error = await fails(producer, ["a", 5, "x" * 1_000, "d"])
            failures = {position: type(each) for position, each in error.result.failures.items()}
            assert failures == {1: SerializationError, 2: RecordTooLarge}
            assert values(cluster) == [b"a", b"d"]

    @scenario
    async def test_large_send_many_yields_to_other_tasks(self) -> None:
        async with producing(buffer_memory=100_000_000) as (producer, _):
            many = asyncio.create_task(producer.send_many(TOPIC, [b"v"] * 20_000))
            ticks = 0
            while not many.done():
                ticks += 1
                await asyncio.sleep(0)
            assert ticks > 5
            assert many.result().delivered == 20_000
            await settle()


@scenario
async def test_refusal_that_names_each_record_is_read() -> None:
    options: dict[str, Any] = {"compression_type": "gzip", "batch_size": 1_000_000, "linger_ms": 50}
    async with producing(acquainted=False, **options) as (producer, cluster):
        cluster.create_topic("compacted", compacted=True)
        with pytest.raises(SendManyError) as raised:
            await producer.send_many("compacted", [b"v"] * 50_000)
        kinds = Counter(map(type, raised.value.result.failures.values()))
        assert kinds == {InvalidRecord: 50_000}
