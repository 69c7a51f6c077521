"""Reports of a producer about itself and the cluster, and its state after a bug."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer import (
    MetadataTimeout,
    ProducerClosed,
    ProducerError,
    SendManyError,
    TopicAuthorizationFailed,
)
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.metadata.refresh_schedule import RefreshSchedule
from aioproducer._core.sender.loop import Sender
from tests.scenarios.rig import TOPIC, now, producing, scenario, settle


class TestMetrics:
    @scenario
    async def test_metrics_count_outcomes_of_records(self) -> None:
        async with producing(brokers=2, partitions=2, linger_ms=100) as (producer, cluster):
            await producer.send_many(TOPIC, [b"x" * 10] * 5, partition=0)
            cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)
            with pytest.raises(SendManyError):
                await producer.send_many(TOPIC, [b"x"] * 3, partition=1)
            metrics = producer.metrics()
            assert set(metrics) == {"producer", "topics", "nodes"}
            orders = metrics["topics"][TOPIC]
            assert (orders["records_delivered"], orders["batches_delivered"]) == (5, 1)
            assert (orders["record_send_total"], orders["record_error_total"]) == (5 + 3, 3)
            assert 50 < orders["bytes_delivered"] <= orders["bytes_before_compression"]
            assert metrics["producer"]["records_delivered"] == 5 + 2, "two to get acquainted"
            assert set(metrics["nodes"]) == {1, 2}

    @scenario
    async def test_metrics_report_current_usage(self) -> None:
        async with producing(buffer_memory=1_000, linger_ms=0) as (producer, cluster):
            idle = producer.metrics()["producer"]
            assert (idle["buffer_available_bytes"], idle["buffer_total_bytes"]) == (1_000, 1_000)
            cluster.on("produce", topic=TOPIC).delay(1.0)
            sending = [asyncio.create_task(producer.send(TOPIC, b"x" * 700)) for _ in range(3)]
            await settle()
            busy = producer.metrics()
            assert 0 < busy["producer"]["buffer_available_bytes"] < 300
            assert busy["producer"]["calls_waiting"] == 2
            assert busy["producer"]["batches_unfinished"] == 1
            assert busy["nodes"][1]["connected"]
            assert busy["nodes"][1]["requests_in_flight"] >= 1
            await asyncio.gather(*sending)

    @scenario
    async def test_metrics_list_connected_nodes(self) -> None:
        async with producing(brokers=2, partitions=2) as (producer, cluster):
            await cluster.stop_broker(2)
            await settle()
            nodes = producer.metrics()["nodes"]
            assert [nodes[node_id]["connected"] for node_id in sorted(nodes)] == [True, False][: len(nodes)]


class TestPartitionsFor:
    @scenario
    async def test_partitions_for_waits_for_metadata(self) -> None:
        async with producing(acquainted=False, partitions=3) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.5)
            assert await producer.partitions_for(TOPIC) == frozenset({0, 1, 2})
            assert now() == pytest.approx(0.5)

    @scenario
    async def test_partitions_that_are_added_are_seen_in_time(self) -> None:
        async with producing(partitions=1, metadata_max_age_ms=1_000) as (producer, cluster):
            cluster.add_partitions(TOPIC, 3)
            assert (await producer.send(TOPIC, b"v", partition=2)).partition == 2, "asked for at once"
            cluster.add_partitions(TOPIC, 4)
            await asyncio.sleep(2)
            assert await producer.partitions_for(TOPIC) == frozenset(range(4))

    @scenario
    async def test_partitions_for_raises_metadata_timeout(self) -> None:
        async with producing(max_block_ms=1_000) as (producer, cluster):
            cluster.on("metadata", topic="slow", times=None).drop()
            with pytest.raises(MetadataTimeout, match="slow"):
                await producer.partitions_for("slow")

    @scenario
    async def test_partitions_for_raises_topic_errors_at_once(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("metadata", topic="secret", times=None).answer(TopicAuthorizationFailed)
            for call in (producer.partitions_for("secret"), producer.send("secret", b"v")):
                with pytest.raises(TopicAuthorizationFailed, match="secret"):
                    await call
            assert now() < 5

    @scenario
    async def test_cancelled_partitions_for_stops_waiting(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("metadata", topic="slow", times=None).drop()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.partitions_for("slow"), 0.1)


class TestBug:
    """The sender crashes: every call fails at once, and no task of the caller is cancelled."""

    @scenario
    async def test_crash_of_the_sender_fails_every_waiter(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        bug = LookupError("a bug")

        def fail(_: Sender) -> None:
            raise bug

        async with producing(linger_ms=60_000, buffer_memory=2_000) as (producer, cluster):
            cluster.on("metadata", topic="slow", times=None).drop()
            waiting = [
                asyncio.create_task(producer.send(TOPIC, b"in a batch")),
                asyncio.create_task(producer.send(TOPIC, b"in another")),
                asyncio.create_task(producer.send("slow", b"for metadata")),
                asyncio.create_task(producer.send_many("slow", [b"behind it"])),
            ]
            await settle()
            began_at = now()
            monkeypatch.setattr(Sender, "_run_once", fail)
            with caplog.at_level(logging.ERROR):
                flushing = asyncio.create_task(producer.flush())
                outcomes = await asyncio.gather(*waiting, flushing, return_exceptions=True)
            assert now() == began_at
            assert "task.crashed task=sender" in caplog.text
            errors = [each for each in outcomes[:4] if isinstance(each, ProducerError)]
            assert len(errors) == 4
            for error in errors[:3]:
                assert error.__cause__ is bug
                assert "ended because of a bug" in str(error)
            assert len({id(error) for error in errors}) == 4
            assert outcomes[4] is None, "flush waits for outcomes, good or bad"
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()
            with pytest.raises(ProducerClosed) as refused:
                await producer.send(TOPIC, b"later")
            assert refused.value.__cause__ is bug
            assert await producer.close() == 0

    @scenario
    async def test_crash_of_the_metadata_task_fails_every_waiter(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bug = LookupError("a bug")

        def fail(_: RefreshSchedule) -> float:
            raise bug

        async with producing(linger_ms=60_000) as (producer, _):
            sending = asyncio.create_task(producer.send(TOPIC, b"v"))
            await settle()
            monkeypatch.setattr(RefreshSchedule, "due_at", fail)
            began_at = now()
            with pytest.raises(
                ProducerError, match="the metadata task ended because of a bug in aioproducer"
            ) as failed:
                await producer.send("another", b"v")
            assert failed.value.__cause__ is bug
            (error,) = await asyncio.gather(sending, return_exceptions=True)
            assert isinstance(error, ProducerError)
            assert error.__cause__ is bug
            assert now() == began_at
            assert producer.state == "closed"
            with pytest.raises(ProducerClosed):
                await producer.send(TOPIC, b"later")

    @scenario
    async def test_crash_in_a_response_handler_fails_every_waiter(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bug = LookupError("a bug")

        def fail(*_: object) -> None:
            raise bug

        async with producing(partitions=2) as (producer, _):
            monkeypatch.setattr(BatchCompletion, "complete", fail)
            outcomes = await asyncio.gather(
                *(producer.send(TOPIC, b"v", partition=partition) for partition in range(2)),
                return_exceptions=True,
            )
            for error in outcomes:
                assert isinstance(error, ProducerError)
                assert error.__cause__ is bug
                assert error.possibly_persisted
            assert now() < 1
