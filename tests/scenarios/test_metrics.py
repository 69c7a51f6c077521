"""Metrics during faults, in virtual time, so that durations are exact."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import BufferFull, MetadataTimeout, Producer, SendManyError
from aioproducer.errors import InvalidRecord, MessageTooLarge, NotEnoughReplicas, TopicAuthorizationFailed
from aioproducer.testing import Cluster
from tests.scenarios.rig import TOPIC, producing, scenario, settle


@scenario
async def test_retry_is_counted_and_is_no_error() -> None:
    async with producing(linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC, times=2).answer(NotEnoughReplicas)
        await producer.send_many(TOPIC, [b"v"] * 5, partition=0)
        told = producer.metrics()["topics"][TOPIC]
    assert (told["record_send_total"], told["record_retry_total"]) == (15, 10)
    assert (told["records_delivered"], told["record_error_total"]) == (5, 0)
    assert told["record_retry_rate"] == pytest.approx(10 / 30)


@scenario
async def test_split_batch_is_not_counted_as_a_retry() -> None:
    async with producing(linger_ms=0) as (producer, cluster):
        before = producer.metrics()["producer"]["batch_split_total"]
        cluster.on("produce", topic=TOPIC).answer(MessageTooLarge)
        await producer.send_many(TOPIC, [b"v"] * 4, partition=0)
        told = producer.metrics()
    assert told["producer"]["batch_split_total"] - before == 1
    assert told["topics"][TOPIC]["record_send_total"] == 8
    assert told["topics"][TOPIC]["record_retry_total"] == 0


@scenario
async def test_batch_resent_without_refused_records_is_a_retry() -> None:
    async with producing(linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).answer(InvalidRecord, record_errors={0: "bad"})
        with pytest.raises(SendManyError):
            await producer.send_many(TOPIC, [b"v"] * 10, partition=0)
        told = producer.metrics()["topics"][TOPIC]
    assert (told["record_send_total"], told["record_retry_total"], told["record_error_total"]) == (19, 9, 1)


@scenario
async def test_metrics_are_unavailable_during_start() -> None:
    async with producing(acquainted=False) as (_, cluster):
        cluster.on("metadata").delay(5.0)
        producer = Producer(cluster.bootstrap_servers)
        starting = asyncio.create_task(producer.start())
        await asyncio.sleep(1)
        assert producer.metrics() == {"producer": {}, "topics": {}, "nodes": {}}
        await starting
        assert producer.metrics()["producer"]["request_total"] > 0
        await producer.close()


@scenario
async def test_free_memory_is_never_less_than_none() -> None:
    async with producing(linger_ms=1_000, buffer_memory=1_000, batch_size=1_000) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).answer(MessageTooLarge)
        cluster.on("produce", topic=TOPIC).delay(2.0)  # the halves, which have a header each
        sending = asyncio.create_task(producer.send_many(TOPIC, [b"x" * 30] * 24, partition=0))
        await asyncio.sleep(1.5)
        told = producer.metrics()["producer"]
        await sending
    assert (told["batch_split_total"], told["buffer_available_bytes"]) == (1, 0)


@scenario
async def test_metrics_have_latencies_in_milliseconds() -> None:
    async with producing(linger_ms=250) as (producer, cluster):
        await asyncio.sleep(100)  # the requests of the start have left the window
        assert producer.metrics()["producer"]["request_latency_max"] is None
        cluster.on("produce", topic=TOPIC).delay(0.5).throttle(100)
        await producer.send(TOPIC, b"v")
        cluster.on("produce", topic=TOPIC).delay(1.5)
        await producer.send(TOPIC, b"v")
        told = producer.metrics()
    of_all, node = told["producer"], told["nodes"][1]
    assert (of_all["request_latency_avg"], of_all["request_latency_max"]) == pytest.approx(
        (1_000, 1_500), rel=0.15
    )
    assert node["request_latency_max"] == of_all["request_latency_max"]
    assert (of_all["produce_throttle_time_avg"], of_all["produce_throttle_time_max"]) == (50, 100)
    assert of_all["record_queue_time_avg"] == pytest.approx(250)


@scenario
async def test_rates_include_requests_after_a_long_silence() -> None:
    async with producing(linger_ms=0, connections_max_idle_ms=50_000, metadata_max_age_ms=10**9) as (
        producer,
        _,
    ):
        await asyncio.sleep(200)
        assert producer.metrics()["producer"]["connection_count"] == 0
        before = producer.metrics()["producer"]
        await producer.send(TOPIC, b"v")
        told = producer.metrics()["producer"]
        for counted in ("connection_creation", "request", "response", "outgoing_byte", "incoming_byte"):
            grown = told[f"{counted}_total"] - before[f"{counted}_total"]
            assert grown > 0, counted
            assert told[f"{counted}_rate"] == pytest.approx(grown / 30), counted
        await asyncio.sleep(51)  # the silence of an idle connection ends with its being closed
        told = producer.metrics()["producer"]
        assert told["connection_count"] == 0
        assert told["connection_close_rate"] > 0


@scenario
async def test_metrics_count_errors_at_every_step() -> None:
    async with producing(linger_ms=0, max_block_ms=1_000) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)
        cluster.on("metadata", topic="slow", times=None).drop()
        with pytest.raises(TopicAuthorizationFailed):
            await producer.send(TOPIC, b"v")
        with pytest.raises(MetadataTimeout):
            await producer.send("slow", b"v")
        with pytest.raises(SendManyError):
            await producer.send_many("slow", [b"v"] * 10)
        with pytest.raises(TypeError):
            await producer.send(TOPIC, "a wrong call is none")
        told = producer.metrics()
    assert "slow" not in told["topics"], "topics that nothing was sent to leave no trace"
    assert told["topics"][TOPIC]["record_error_total"] == 1
    assert told["producer"]["record_error_total"] == 12
    assert told["producer"]["record_error_rate"] == pytest.approx(12 / 30)


@scenario
async def test_waiting_for_memory_and_buffer_full_are_counted_apart() -> None:
    async with producing(linger_ms=0, buffer_memory=1_000) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).delay(2.0)
        sending = [asyncio.create_task(producer.send(TOPIC, b"x" * 700)) for _ in range(2)]
        await settle()
        assert producer.metrics()["producer"]["calls_waiting"] == 1
        with pytest.raises(BufferFull):
            _ = producer.send_nowait(TOPIC, b"x" * 700)
        await asyncio.gather(*sending)
        told = producer.metrics()["producer"]
    assert told["buffer_exhausted_total"] == told["record_error_total"] == 1
    assert told["bufferpool_wait_time_ns_total"] == pytest.approx(2e9, rel=0.1)


@scenario
async def test_connection_counts_follow_a_stopped_broker() -> None:
    async with producing(brokers=2, partitions=2) as (producer, cluster):
        before = producer.metrics()["producer"]
        await cluster.stop_broker(2)
        await settle()
        after = producer.metrics()["producer"]
    assert after["connection_close_total"] - before["connection_close_total"] == 1
    assert after["connection_count"] == after["connection_creation_total"] - after["connection_close_total"]
    assert after["connection_count"] == before["connection_count"] - 1
    assert producer.metrics()["producer"]["connection_count"] == 0


@scenario
async def test_metrics_sum_the_time_of_flushes() -> None:
    async with producing(linger_ms=60_000) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).delay(2.0)
        _ = await producer.enqueue(TOPIC, b"v")
        with pytest.raises(TimeoutError):
            await producer.flush(timeout_s=0.5)
        await producer.flush()
        assert producer.metrics()["producer"]["flush_time_ns_total"] == pytest.approx(2e9, rel=0.1)


@scenario
async def test_metrics_sum_the_time_of_transactions() -> None:
    async with Cluster(topics={TOPIC: 1}, transport="memory") as cluster:
        cluster.on("init_producer_id").delay(3.0)
        async with Producer(cluster.bootstrap_servers, transactional_id="me") as producer:
            async with producer.transaction() as transaction:
                await producer.send(TOPIC, b"1")
                cluster.on("txn_offset_commit").delay(0.5)
                await transaction.send_offsets({(TOPIC, 0): 1}, "readers")
                cluster.on("end_txn").delay(2.0)
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 - a block of its own
                async with producer.transaction():
                    await producer.send(TOPIC, b"2")
                    cluster.on("end_txn").delay(1.0)
                    raise ZeroDivisionError
            told = producer.metrics()["producer"]
    names = ("init", "begin", "send_offsets", "commit", "abort")
    seconds = [told[f"txn_{name}_time_ns_total"] / 1e9 for name in names]
    assert seconds == pytest.approx([3.0, 0.0, 0.5, 2.0, 1.0], abs=0.1)
