"""The facade: states, and the delegation of each call. tests/scenarios tests the effect of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioproducer import (
    BufferFull,
    ConfigError,
    ConnectionFailed,
    MetadataTimeout,
    MetadataUnavailable,
    NotLeaderOrFollower,
    Producer,
    ProducerClosed,
    ProducerConfig,
    RecordPurged,
    SendManyError,
    TopicAuthorizationFailed,
    WrongLoop,
)
from aioproducer._core.clock import TURN_AFTER_S
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit.producer_rig import SERVERS, TOPIC, advance, cluster, now, started

CALLS: list[Callable[[Producer], Awaitable[Any]]] = [
    lambda producer: producer.send(TOPIC, b"v"),
    lambda producer: producer.send(TOPIC, b"v", timeout_s=1),
    lambda producer: producer.enqueue(TOPIC, b"v"),
    lambda producer: producer.enqueue(TOPIC, b"v", timeout_s=1),
    lambda producer: producer.send_many(TOPIC, [b"v"]),
    lambda producer: producer.flush(),
    lambda producer: producer.partitions_for(TOPIC),
]
"""The calls that wait, but for close()."""


class TestConstruction:
    def test_constructor_needs_no_event_loop(self) -> None:
        producer = Producer(SERVERS, client_id="me", linger_ms=7)
        assert producer.state == "new"
        assert producer.config.linger_ms == 7
        assert repr(producer) == "<Producer me new>"

    def test_constructor_checks_the_configuration(self) -> None:
        with pytest.raises(ConfigError, match="linger_ms"):
            Producer(SERVERS, linger_ms=-1)

    def test_from_config_uses_the_given_configuration(self) -> None:
        config = ProducerConfig.from_mapping({"bootstrap.servers": SERVERS, "linger.ms": "5"})
        assert Producer.from_config(config).config is config

    def test_from_config_refuses_a_mapping(self) -> None:
        with pytest.raises(TypeError, match=r"not dict; ProducerConfig\.from_mapping creates one"):
            Producer.from_config({"bootstrap.servers": "localhost:9092"})  # type: ignore[arg-type]

    def test_metrics_are_empty_before_the_start(self) -> None:
        assert Producer(SERVERS).metrics() == {"producer": {}, "topics": {}, "nodes": {}}


class TestOutsideTheLifetime:
    @for_each("call", CALLS)
    @in_virtual_time
    async def test_calls_are_refused_before_the_start_and_after_close(
        self, call: Callable[[Producer], Awaitable[Any]]
    ) -> None:
        async with cluster() as broker:
            producer = Producer(broker.bootstrap_servers)
            with pytest.raises(ProducerClosed, match="not started"):
                await call(producer)
            async with producer:
                pass
            with pytest.raises(ProducerClosed, match="is closed"):
                await call(producer)

    @in_virtual_time
    async def test_send_nowait_is_refused_before_the_start_and_after_close(self) -> None:
        async with cluster() as broker:
            producer = Producer(broker.bootstrap_servers)
            with pytest.raises(ProducerClosed, match="not started"):
                _ = producer.send_nowait(TOPIC, b"v")
            async with producer:
                pass
            with pytest.raises(ProducerClosed, match="is closed"):
                _ = producer.send_nowait(TOPIC, b"v")

    @for_each("call", [*CALLS, lambda producer: producer.close()])
    async def test_calls_from_another_loop_are_refused(
        self, call: Callable[[Producer], Awaitable[Any]]
    ) -> None:
        async with started() as (producer, _):

            async def elsewhere() -> None:
                with pytest.raises(WrongLoop):
                    await call(producer)

            await asyncio.to_thread(asyncio.run, elsewhere())

    async def test_send_nowait_from_another_thread_is_refused(self) -> None:
        async with started() as (producer, _):
            with pytest.raises(WrongLoop):
                _ = await asyncio.to_thread(producer.send_nowait, TOPIC, b"v")


class TestSending:
    @in_virtual_time
    async def test_send_returns_where_the_record_is(self) -> None:
        async with started() as (producer, broker):
            first = await producer.send(TOPIC, b"a", b"k", partition=1, headers={"h": b"1"}, timestamp_ms=5)
            assert first == (TOPIC, 1, 0, 5, False)
            second = await producer.send(TOPIC, b"b", partition=1)
            assert second.offset == 1
            third = await producer.send(TOPIC, b"c", partition=1, timeout_s=5)
            assert third.offset == 2
            record = broker.records(TOPIC, 1)[0]
            assert (record.value, record.key, record.headers) == (b"a", b"k", (("h", b"1"),))

    @in_virtual_time
    async def test_enqueue_returns_its_future(self) -> None:
        async with started(linger_ms=1_000) as (producer, _):
            futures = [
                await producer.enqueue(TOPIC, b"a", partition=0),
                await producer.enqueue(TOPIC, b"b", partition=0),
                await producer.enqueue(TOPIC, b"c", partition=0, timeout_s=10),
            ]
            assert now() < 1
            assert [(await future).offset for future in futures] == [0, 1, 2]

    @pytest.mark.parametrize("timeout_s", [None, 30])
    @in_virtual_time
    async def test_enqueue_after_enqueue_leaves_the_event_loop_its_turns(
        self, timeout_s: float | None
    ) -> None:
        async with started(batch_size=200) as (producer, broker):
            await producer.send(TOPIC, b"first", partition=0)
            futures = []
            for _ in range(10):
                advance(TURN_AFTER_S)
                call = producer.enqueue(TOPIC, bytes(100), partition=0, timeout_s=timeout_s)
                futures.append(await call)
            assert len(broker.records(TOPIC, 0)) > 1, "sent meanwhile"
            await asyncio.gather(*futures)

    @in_virtual_time
    async def test_enqueue_after_a_pause_does_not_yield(self) -> None:
        async with started() as (producer, _):
            await producer.send(TOPIC, b"first", partition=0)
            await asyncio.sleep(60)
            call = producer.enqueue(TOPIC, b"alone", partition=0)
            with pytest.raises(StopIteration) as returned:
                call.send(None)
            assert (await returned.value.value).offset == 1

    @in_virtual_time
    async def test_send_nowait_does_not_wait(self) -> None:
        async with started() as (producer, _):
            with pytest.raises(MetadataUnavailable):
                _ = producer.send_nowait(TOPIC, b"a")
            await producer.partitions_for(TOPIC)
            future = producer.send_nowait(TOPIC, b"b", partition=1)
            assert (await future).offset == 0

    @in_virtual_time
    async def test_send_nowait_without_memory_is_refused(self) -> None:
        async with started(buffer_memory=200, linger_ms=1_000) as (producer, _):
            await producer.send(TOPIC, b"x")
            future = producer.send_nowait(TOPIC, b"x" * 100)
            with pytest.raises(BufferFull):
                _ = producer.send_nowait(TOPIC, b"x" * 100)
            await future

    @in_virtual_time
    async def test_send_many_returns_all_outcomes(self) -> None:
        async with started(max_request_size=1_000) as (producer, _):
            result = await producer.send_many(
                TOPIC,
                [b"a", b"b"],
                keys=[b"k", None],
                headers=[{"h": b"1"}, ()],
                common_headers={"all": b"0"},
                timestamps_ms=[1, 2],
                partition=1,
                timeout_s=10,
            )
            assert [result.offset(0), result.offset(1)] == [0, 1]
            with pytest.raises(SendManyError) as failed:
                await producer.send_many(TOPIC, [b"x" * 1_000, b"c"], partitions=[0, 0])
            assert list(failed.value.result.failures) == [0]
            with pytest.raises(ValueError, match="timeout_s must be 0 or more"):
                await producer.send_many(TOPIC, [b"a"], timeout_s=-1)

    @in_virtual_time
    async def test_flush_waits_for_appended_records(self) -> None:
        async with started(linger_ms=1_000) as (producer, broker):
            await producer.flush()
            future = await producer.enqueue(TOPIC, b"a")
            await producer.flush()
            assert future.done()
            assert now() < 1
            broker.freeze_broker(1)
            _ = await producer.enqueue(TOPIC, b"b")
            with pytest.raises(TimeoutError):
                await producer.flush(timeout_s=2)
            broker.thaw_broker(1)

    @in_virtual_time
    async def test_partitions_of_a_topic(self) -> None:
        async with started(max_block_ms=2_000) as (producer, broker):
            assert await producer.partitions_for(TOPIC) == frozenset({0, 1})
            with pytest.raises(ValueError, match="topic"):
                await producer.partitions_for("no such name")
            broker.on("metadata", topic="secret", times=None).answer(TopicAuthorizationFailed)
            with pytest.raises(TopicAuthorizationFailed):
                await producer.partitions_for("secret")
            broker.on("metadata", times=None).drop()
            with pytest.raises(MetadataTimeout):
                await producer.partitions_for("slow")

    @in_virtual_time
    async def test_metrics_count_delivered_records(self) -> None:
        async with started() as (producer, _):
            await producer.send(TOPIC, b"v")
            metrics = producer.metrics()
        assert metrics["producer"]["records_delivered"] == 1
        assert metrics["topics"][TOPIC]["records_delivered"] == 1
        assert set(metrics["nodes"]) == {1}
        assert producer.metrics()["producer"]["records_delivered"] == 1, "they survive the end"


class TestCluster:
    @in_virtual_time
    async def test_cluster_describes_brokers_and_unused_topics(self) -> None:
        async with started() as (producer, broker):
            seen = await producer.cluster()
            assert set(seen.brokers) == {1}
            assert [
                (each.partition, each.leader, each.replicas) for each in seen.topics[TOPIC].partitions
            ] == [
                (0, 1, (1,)),
                (1, 1, (1,)),
            ]
            await broker.stop_broker(1)
            with pytest.raises(ConnectionFailed):
                await producer.cluster()


class TestLength:
    @in_virtual_time
    async def test_len_counts_records_without_an_outcome(self) -> None:
        async with cluster() as broker:
            producer = Producer(broker.bootstrap_servers, linger_ms=1_000)
            assert len(producer) == 0
            assert bool(producer) is True
            async with producer:
                for number in range(3):
                    _ = await producer.enqueue(TOPIC, b"v", partition=number % 2)
                assert len(producer) == 3
                await producer.flush()
                assert len(producer) == 0
            assert len(producer) == 0
            assert bool(producer) is True

    @in_virtual_time
    async def test_len_counts_calls_that_wait_for_metadata(self) -> None:
        async with started() as (producer, broker):
            broker.freeze_broker(1)
            waiting = [asyncio.create_task(producer.send(TOPIC, b"v")) for _ in range(5)]
            await asyncio.sleep(0)
            assert len(producer) == 5
            broker.thaw_broker(1)
            await asyncio.gather(*waiting)
            assert len(producer) == 0


class TestPurge:
    @in_virtual_time
    async def test_purge_drops_waiting_records_but_no_later_ones(self) -> None:
        async with started(linger_ms=1_000) as (producer, broker):
            futures = [
                await producer.enqueue(TOPIC, b"%d" % number, partition=number % 2) for number in range(10)
            ]
            assert producer.purge() == 10
            assert len(producer) == 0
            for future in futures:
                error = future.exception()
                assert isinstance(error, RecordPurged)
                assert not error.possibly_persisted
            assert producer.purge() == 0
            assert (await producer.send(TOPIC, b"after", partition=0)).offset == 0
            assert [each.value for each in broker.records(TOPIC, 0)] == [b"after"]
            assert broker.records(TOPIC, 1) == []
            available = producer.metrics()["producer"]
            assert available["buffer_available_bytes"] == available["buffer_total_bytes"]

    @in_virtual_time
    async def test_purge_keeps_records_in_flight(self) -> None:
        async with started(max_in_flight_requests_per_connection=1) as (producer, broker):
            await producer.send(TOPIC, b"known", partition=0)
            broker.on("produce").delay(1)
            under_way = await producer.enqueue(TOPIC, b"under way", partition=0)
            await asyncio.sleep(0.1)
            waiting = await producer.enqueue(TOPIC, b"waiting", partition=0)
            assert len(producer) == 2
            assert producer.purge() == 1
            assert isinstance(waiting.exception(), RecordPurged)
            assert (await under_way).offset == 1
            assert (await producer.send(TOPIC, b"next", partition=0)).offset == 2

    @in_virtual_time
    async def test_purge_keeps_records_in_backoff_after_an_attempt(self) -> None:
        async with started(retry_backoff_ms=500, retry_backoff_max_ms=500) as (producer, broker):
            refused = broker.on("produce").answer(NotLeaderOrFollower)
            future = await producer.enqueue(TOPIC, b"v", partition=0)
            await asyncio.sleep(0.2)
            assert refused.hits == 1
            assert producer.purge() == 0
            assert (await future).offset == 0

    @in_virtual_time
    async def test_purge_needs_a_started_producer(self) -> None:
        with pytest.raises(ProducerClosed):
            Producer(SERVERS).purge()
