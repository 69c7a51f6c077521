"""Calls beside a large `send_many`: they get the lock after each chunk, and the event loop keeps running."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from aioproducer import Interceptor, Producer, ProducerClosed, ProducerRecord, SendManyError
from aioproducer.testing.virtual_time import VirtualTimeLoop
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, now, producing, scenario, settle, values

SLOW_S = 27e-6
"""What slow code of a user takes for a record."""


def work(_: object) -> None:
    """Let time pass while the event loop stands still."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(SLOW_S)


def slow_serializer(value: bytes) -> bytes:
    work(value)
    return value


class SlowInContext:
    def serialize(self, topic: str, headers: object, value: bytes) -> bytes:
        return slow_serializer(value)


class SlowInterceptor(Interceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        work(record)
        return record


def slow_partitioner(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
    work(key)
    return 0


SLOW: dict[str, dict[str, Any]] = {
    "serializer": {"value_serializer": slow_serializer},
    "key serializer": {"key_serializer": slow_serializer},
    "serializer that sees headers": {"value_serializer": SlowInContext()},
    "interceptor": {"interceptors": [SlowInterceptor()]},
    "partitioner": {"partitioner": slow_partitioner},
    "all": {
        "value_serializer": slow_serializer,
        "interceptors": [SlowInterceptor()],
        "partitioner": slow_partitioner,
    },
}


async def longest_turn(until: asyncio.Future[Any]) -> float:
    """Return the longest time for which the event loop was blocked until *done* is done."""
    longest = 0.0
    while not until.done():
        began_at = now()
        await asyncio.sleep(0)
        longest = max(longest, now() - began_at)
    return longest


async def latencies(producer: Producer, until: asyncio.Future[Any], **more: Any) -> list[float]:
    """Send records one by one until *done* is done, and return the duration of each send."""
    took = []
    while not until.done():
        began_at = now()
        await producer.send(TOPIC, b"beside", **more)
        took.append(now() - began_at)
    return took


class TestEventLoop:
    @pytest.mark.parametrize("options", SLOW.values(), ids=list(SLOW))
    @scenario
    async def test_event_loop_runs_every_10_ms_beside_a_bulk_call(self, options: dict[str, Any]) -> None:
        async with producing(buffer_memory=100_000_000, **options) as (producer, cluster):
            sent = [b"%05d" % number for number in range(6_000)]
            sending = asyncio.create_task(producer.send_many(TOPIC, sent, keys=sent))
            await asyncio.sleep(0)
            assert await longest_turn(sending) <= 0.01
            assert sending.result().delivered == 6_000
            assert values(cluster) == sent

    @scenario
    async def test_plain_values_need_no_more_turns_than_before(self) -> None:
        async with producing(buffer_memory=100_000_000, batch_size=100_000_000) as (producer, cluster):
            sending = asyncio.create_task(producer.send_many(TOPIC, [b"v"] * 40_960))
            for _ in range(11):
                await asyncio.sleep(0)
            assert producer._engine is not None
            assert producer._engine.accumulator.arriving == 0
            assert (await sending).delivered == 40_960
            assert len(values(cluster)) == 40_960


class TestCallsBesideIt:
    @scenario
    async def test_send_nowait_succeeds_beside_a_bulk_call(self) -> None:
        async with producing(buffer_memory=100_000_000) as (producer, cluster):
            sending = asyncio.create_task(producer.send_many(TOPIC, [b"v"] * 20_000))
            beside = []
            while not sending.done():
                await asyncio.sleep(0)
                beside.append(producer.send_nowait(TOPIC, b"beside"))
            await asyncio.gather(*beside)
            between = values(cluster)[: 20_000 + 4].count(b"beside")
            assert between >= 4

    @pytest.mark.parametrize("timeout_s", [None, 5.0])
    @scenario
    async def test_call_waiting_for_memory_behind_a_bulk_call_succeeds(self, timeout_s: float | None) -> None:
        """Although the bulk call waits for memory again and again, for far longer than `max_block_ms`."""
        async with producing(buffer_memory=4_000, batch_size=1_000, max_block_ms=1_000, linger_ms=0) as (
            producer,
            cluster,
        ):
            cluster.on("produce", topic=TOPIC, times=None).delay(0.05)
            sent = [b"%04d" % number * 25 for number in range(1_000)]
            began_at = now()
            sending = asyncio.create_task(producer.send_many(TOPIC, sent))
            await settle()
            took = await latencies(producer, sending, timeout_s=timeout_s)
            assert now() - began_at > 2
            assert max(took) < 0.5
            assert (await sending).delivered == 1_000
            log = values(cluster)
            assert [value for value in log if value != b"beside"] == sent
            assert log.count(b"beside") == len(took) > 10

    @scenario
    async def test_bulk_call_delays_no_other_bulk_call(self) -> None:
        async with producing(buffer_memory=4_000, batch_size=1_000, max_block_ms=1_000) as (
            producer,
            cluster,
        ):
            cluster.on("produce", topic=TOPIC, times=None).delay(0.05)
            large = asyncio.create_task(producer.send_many(TOPIC, [b"large" * 20] * 1_000))
            await settle()
            began_at = now()
            small = [b"%02d" % number for number in range(20)]
            assert (await producer.send_many(TOPIC, small)).delivered == 20
            assert now() - began_at < 0.5
            assert not large.done()
            assert (await large).delivered == 1_000
            assert [value for value in values(cluster) if value in small] == small

    @scenario
    async def test_small_bulk_call_is_appended_in_one_chunk(self) -> None:
        async with producing(buffer_memory=4_000, batch_size=1_000) as (producer, cluster):
            calls = [[b"%d-%d" % (call, number) for number in range(30)] for call in range(20)]
            await asyncio.gather(
                *(producer.send_many(TOPIC, call) for call in calls),
                *(producer.send(TOPIC, b"beside" * 50) for _ in range(20)),
            )
            log = [value for value in values(cluster) if value is not None and b"beside" not in value]
            assert log == [value for call in calls for value in call]


class TestEndOfTheCall:
    @scenario
    async def test_close_waits_for_all_records_of_send_many(self) -> None:
        async with producing(buffer_memory=4_000, batch_size=1_000, linger_ms=0) as (producer, cluster):
            sent = [b"%04d" % number * 25 for number in range(200)]
            sending = asyncio.create_task(producer.send_many(TOPIC, sent))
            await settle()
            assert await producer.close() == 0
            assert (await sending).delivered == 200
            assert values(cluster) == sent

    @pytest.mark.parametrize("options", [{}, SLOW["all"], {"buffer_memory": 4_000}])
    @for_each("turns", range(1, 8))
    @scenario
    async def test_bulk_call_reports_each_record_when_closed_at_once(
        self, turns: int, options: dict[str, Any]
    ) -> None:
        async with producing(**{"linger_ms": 1_000, "buffer_memory": 10**8, **options}) as (
            producer,
            cluster,
        ):
            cluster.freeze_broker(1)
            sending = asyncio.create_task(producer.send_many(TOPIC, [b"v"] * 30_000))
            for _ in range(turns):
                await asyncio.sleep(0)
            assert await producer.close(0) == 30_000
            with pytest.raises(SendManyError) as raised:
                await sending
            assert len(raised.value.result.failures) == 30_000
            assert {type(each) for each in raised.value.result.failures.values()} == {ProducerClosed}

    @pytest.mark.parametrize("turns", range(1, 6))
    @scenario
    async def test_call_cancelled_between_chunks_keeps_appended_records(self, turns: int) -> None:
        async with producing(linger_ms=60_000, buffer_memory=10**8) as (producer, cluster):
            sending = asyncio.create_task(
                producer.send_many(TOPIC, [b"%05d" % number for number in range(100_000)])
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()
            assert producer.metrics()["producer"]["calls_waiting"] == 0
            await producer.send(TOPIC, b"next")
            *log, last = values(cluster)
            assert last == b"next"
            assert 0 < len(log) < 100_000
            assert log == [b"%05d" % number for number in range(len(log))]

    @scenario
    async def test_bulk_call_appends_nothing_after_its_deadline(self) -> None:
        async with producing(value_serializer=slow_serializer, buffer_memory=10**8) as (producer, cluster):
            cluster.freeze_broker(1)
            with pytest.raises(SendManyError) as raised:
                await producer.send_many(TOPIC, [b"v"] * 30_000, timeout_s=0.1)
            assert len(raised.value.result.failures) == 30_000
            assert "not appended within the call's timeout_s" in str(raised.value.result.failures[29_999])
            assert producer.metrics()["producer"]["calls_waiting"] == 0
            cluster.thaw_broker(1)
