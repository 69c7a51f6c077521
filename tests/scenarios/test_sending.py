"""Five ways to send, and valid records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer import (
    BufferFull,
    MetadataUnavailable,
    Producer,
    RecordMetadata,
    SendManyResult,
)
from aioproducer._core.acceleration import accelerated
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, now, producing, scenario, settle, values

Send = Callable[..., Any]


class TestFiveWays:
    @scenario
    async def test_send_waits_for_the_acknowledgement(self) -> None:
        async with producing() as (producer, cluster):
            before_ms = time.time_ns() // 1_000_000
            sent = await producer.send(TOPIC, b"value", key=b"customer-7", headers=[("trace", b"1f")])
            assert isinstance(sent, RecordMetadata)
            assert (sent.topic, sent.partition, sent.offset, sent.log_append_time) == (TOPIC, 0, 0, False)
            assert before_ms <= sent.timestamp_ms <= time.time_ns() // 1_000_000
            [record] = cluster.records(TOPIC, 0)
            assert (record.value, record.key, record.headers) == (
                b"value",
                b"customer-7",
                (("trace", b"1f"),),
            )
            assert record.timestamp_ms == sent.timestamp_ms

    @scenario
    async def test_enqueue_waits_for_metadata_and_memory_only(self) -> None:
        async with producing(acquainted=False) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.5)
            cluster.on("produce").delay(3.0)
            future = await producer.enqueue(TOPIC, b"value")
            assert isinstance(future, asyncio.Future)
            assert now() == pytest.approx(0.5)
            assert (await future).offset == 0
            assert now() == pytest.approx(3.5, abs=0.1)

    @scenario
    async def test_send_nowait_waits_for_nothing(self) -> None:
        async with producing() as (producer, _):
            future = producer.send_nowait(TOPIC, b"value")
            assert isinstance(future, asyncio.Future)
            assert not future.done()
            assert (await future).offset == 0

    @scenario
    async def test_send_nowait_raises_until_the_topic_is_known(self) -> None:
        async with producing(acquainted=False) as (producer, _):
            with pytest.raises(MetadataUnavailable, match="requested"):
                _ = producer.send_nowait(TOPIC, b"value")
            await asyncio.sleep(0.1)
            assert (await producer.send_nowait(TOPIC, b"value")).offset == 0

    @scenario
    async def test_send_nowait_raises_without_memory(self) -> None:
        async with producing(buffer_memory=1_000, linger_ms=100) as (producer, cluster):
            future = producer.send_nowait(TOPIC, b"x" * 800)
            with pytest.raises(BufferFull):
                _ = producer.send_nowait(TOPIC, b"y" * 800)
            await future
            await producer.send_nowait(TOPIC, b"z" * 800)
            assert values(cluster) == [b"x" * 800, b"z" * 800]

    @scenario
    async def test_send_many_accepts_columns(self) -> None:
        async with producing(partitions=2) as (producer, cluster):
            result = await producer.send_many(TOPIC, [b"a", b"b", b"c"], partitions=[0, 1, 0])
            assert isinstance(result, SendManyResult)
            assert values(cluster, 0) == [b"a", b"c"]
            assert values(cluster, 1) == [b"b"]

    @scenario
    async def test_flush_waits_for_records_appended_before_it(self) -> None:
        async with producing(partitions=2, linger_ms=1_000) as (producer, cluster):
            began_at = now()
            futures = [producer.send_nowait(TOPIC, b"v", partition=partition) for partition in (0, 1)]
            cluster.on("produce", partition=1).delay(2.0)
            await producer.flush()
            assert all(future.done() for future in futures)
            assert now() - began_at == pytest.approx(2)

    @scenario
    async def test_linger_includes_records_of_its_last_moment(self) -> None:
        async with producing(partitions=2, linger_ms=10) as (producer, cluster):
            _ = await producer.send(TOPIC, b"warm", partition=0)
            before = cluster.request_count("produce")

            async def serve() -> None:
                await asyncio.sleep(0.01)
                await asyncio.create_task(producer.send(TOPIC, b"last", partition=1))

            first = await producer.enqueue(TOPIC, b"first", partition=0)
            await serve()
            _ = await first
            assert cluster.request_count("produce") - before == 1

    @scenario
    async def test_flush_does_not_raise_errors_of_futures(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("produce").answer(87)
            future = producer.send_nowait(TOPIC, b"v")
            await producer.flush()
            assert future.exception() is not None

    @scenario
    async def test_flush_does_not_wait_for_later_records(self) -> None:
        async with producing(partitions=2, linger_ms=1_000) as (producer, cluster):
            first = producer.send_nowait(TOPIC, b"v", partition=0)
            sent = cluster.on("produce", partition=0)
            flushing = asyncio.create_task(producer.flush())
            await sent.happened()
            cluster.on("produce", partition=1, times=None).delay(60.0)
            later = producer.send_nowait(TOPIC, b"v", partition=1)
            await flushing
            assert first.done()
            assert not later.done()
            later.cancel()
            await producer.close(0)

    @scenario
    async def test_bounded_or_cancelled_flush_keeps_the_records(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("produce").delay(5.0)
            future = producer.send_nowait(TOPIC, b"v")
            with pytest.raises(TimeoutError):
                await producer.flush(timeout_s=1.0)
            flushing = asyncio.create_task(producer.flush())
            await settle()
            flushing.cancel()
            await asyncio.wait([flushing])
            assert flushing.cancelled()
            assert (await future).offset == 0


class TestValues:
    @pytest.mark.parametrize(
        ("value", "stored"),
        [
            (b"bytes", b"bytes"),
            (bytearray(b"bytearray"), b"bytearray"),
            (memoryview(b"memoryview"), b"memoryview"),
            (b"", b""),
            (None, None),
        ],
    )
    @scenario
    async def test_bytes_of_any_kind_and_null_are_values_and_keys(
        self, value: Any, stored: bytes | None
    ) -> None:
        async with producing() as (producer, cluster):
            await producer.send(TOPIC, value, value)
            [record] = cluster.records(TOPIC, 0)
            assert (record.value, record.key) == (stored, stored)

    @scenario
    async def test_values_changed_after_the_call_are_sent_unchanged(self) -> None:
        async with producing() as (producer, cluster):
            value, key, header = bytearray(b"value"), bytearray(b"key"), bytearray(b"header")
            headers: list[tuple[str, bytes | bytearray | memoryview | None]] = [("h", header)]
            future = producer.send_nowait(TOPIC, memoryview(value), key, headers=headers)
            many = asyncio.create_task(producer.send_many(TOPIC, [value], keys=[key], headers=[headers]))
            await settle()
            value[:], key[:], header[:] = b"VALUE", b"KEY", b"HEADER"
            headers.clear()
            await future
            await many
            for record in cluster.records(TOPIC, 0):
                assert (record.value, record.key, record.headers) == (b"value", b"key", (("h", b"header"),))

    @scenario
    async def test_values_changed_during_a_wait_are_sent_unchanged(self) -> None:
        async with producing(acquainted=False) as (producer, cluster):
            value = bytearray(b"before")
            sending = asyncio.create_task(producer.send(TOPIC, value))
            await asyncio.sleep(0)
            value[:] = b"after!"
            await sending
            assert values(cluster) == [b"before"]

    @pytest.mark.skipif(accelerated, reason="the accelerator encodes records when they are appended")
    @scenario
    async def test_columns_keep_bytes_by_reference(self) -> None:
        async with producing(linger_ms=1_000) as (producer, _):
            value = b"x" * 1_000
            future = producer.send_nowait(TOPIC, value)
            assert producer._engine is not None
            [batch] = producer._engine.accumulator.unresolved
            assert batch.columns.values[0] is value
            await producer.flush()
            await future

    @scenario
    async def test_headers_may_be_a_mapping_repeat_and_have_no_value(self) -> None:
        async with producing() as (producer, cluster):
            await producer.send(TOPIC, headers={"a": b"1", "b": None})
            await producer.send(TOPIC, headers=[("a", b"1"), ("a", bytearray(b"2"))])
            assert [record.headers for record in cluster.records(TOPIC, 0)] == [
                (("a", b"1"), ("b", None)),
                (("a", b"1"), ("a", b"2")),
            ]

    @scenario
    async def test_log_append_time_of_a_topic_is_returned(self) -> None:
        async with producing() as (producer, cluster):
            cluster.create_topic("stamped", log_append_time=True)
            sent = await producer.send("stamped", b"v", timestamp_ms=5)
            assert sent.log_append_time
            assert sent.timestamp_ms == cluster.records("stamped", 0)[0].timestamp_ms > 5

    @scenario
    async def test_send_creates_a_topic(self) -> None:
        async with producing() as (producer, cluster):
            assert (await producer.send("fresh", b"v")).offset == 0
            assert values(cluster, topic="fresh") == [b"v"]


WRONG = [
    ({"topic": "no such name"}, ValueError, "topic"),
    ({"topic": ""}, ValueError, "topic"),
    ({"topic": 5}, TypeError, "topic"),
    ({"value": "text"}, TypeError, "value"),
    ({"key": 5}, TypeError, "key"),
    ({"partition": -1}, ValueError, "partition"),
    ({"partition": "0"}, TypeError, "partition"),
    ({"partition": 99}, ValueError, "partition=99"),
    ({"headers": [("h", "text")]}, TypeError, "headers"),
    ({"headers": 5}, TypeError, "headers"),
    ({"timestamp_ms": -1}, ValueError, "timestamp_ms"),
    ({"timestamp_ms": "now"}, TypeError, "timestamp_ms"),
]


async def send(producer: Producer, **arguments: Any) -> None:
    await producer.send(**arguments)


async def enqueue(producer: Producer, **arguments: Any) -> None:
    _ = await producer.enqueue(**arguments)


async def send_in_time(producer: Producer, **arguments: Any) -> None:
    await producer.send(**arguments, timeout_s=1)


async def send_nowait(producer: Producer, **arguments: Any) -> None:
    _ = producer.send_nowait(**arguments)


class TestWrongArguments:
    @for_each("how", [send, enqueue, send_in_time, send_nowait])
    @for_each(("wrong", "error", "named"), WRONG)
    @scenario
    async def test_wrong_arguments_are_named_and_nothing_is_appended(
        self, how: Send, wrong: dict[str, Any], error: type[Exception], named: str
    ) -> None:
        async with producing() as (producer, cluster):
            arguments: dict[str, Any] = {"topic": TOPIC, "value": b"v", "key": None, **wrong}
            with pytest.raises(error, match=named) as raised:
                await how(producer, **arguments)
            assert type(raised.value) is error
            await producer.flush()
            assert values(cluster) == []

    @pytest.mark.parametrize(
        ("timeout_s", "error"), [(-1, ValueError), ("1", TypeError), (float("nan"), ValueError)]
    )
    @scenario
    async def test_send_refuses_an_invalid_timeout(self, timeout_s: Any, error: type[Exception]) -> None:
        async with producing() as (producer, cluster):
            for waiting in (
                producer.send(TOPIC, b"v", timeout_s=timeout_s),
                producer.enqueue(TOPIC, b"v", timeout_s=timeout_s),
                producer.send_many(TOPIC, [b"v"], timeout_s=timeout_s),
                producer.flush(timeout_s),
                producer.close(timeout_s),
            ):
                with pytest.raises(error, match="timeout_s"):
                    await waiting
            await producer.flush()
            assert values(cluster) == []


class TestAcks:
    @pytest.mark.parametrize(("acks", "offsets"), [("all", [0, 1]), (1, [0, 1]), (0, [-1, -1])])
    @scenario
    async def test_acks_option_is_sent_to_the_broker(self, acks: Any, offsets: list[int]) -> None:
        async with producing(acks=acks, linger_ms=0) as (producer, cluster):
            sent = [await producer.send(TOPIC, value) for value in (b"a", b"b")]
            await cluster.wait_for_records(TOPIC, 0, 2)
            assert [each.offset for each in sent] == offsets
            assert values(cluster) == [b"a", b"b"]

    @scenario
    async def test_records_with_acks_0_are_written_before_close(self) -> None:
        async with producing(acks=0, linger_ms=1_000) as (producer, cluster):
            for number in range(100):
                _ = producer.send_nowait(TOPIC, b"%d" % number)
            await producer.close()
            await cluster.wait_for_records(TOPIC, 0, 100)
            assert values(cluster) == [b"%d" % number for number in range(100)]
