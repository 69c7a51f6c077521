"""Cancelling ends the wait of the caller; before the append it also drops the record."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from unittest.mock import Mock

import pytest

from aioproducer import DeliveryTimeout, Interceptor, ProducerError, RecordMetadata, TopicPartition
from aioproducer.errors import TopicAuthorizationFailed
from tests.scenarios.rig import TOPIC, producing, scenario, settle, values


class Spy(Interceptor):
    def __init__(self) -> None:
        self.heard: list[RecordMetadata | ProducerError | None] = []

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
    ) -> None:
        self.heard.append(metadata or error)


class TestSend:
    @scenario
    async def test_send_cancelled_before_the_append_sends_nothing(self) -> None:
        async with producing(acquainted=False) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.5)
            sending = asyncio.create_task(producer.send(TOPIC, b"cancelled"))
            await settle()
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()
            await producer.send(TOPIC, b"sent")
            assert values(cluster) == [b"sent"]

    @scenario
    async def test_send_cancelled_after_the_append_is_delivered(self) -> None:
        spy = Spy()
        async with producing(interceptors=[spy], linger_ms=500) as (producer, cluster):
            sending = asyncio.create_task(producer.send(TOPIC, b"detached"))
            await settle()
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()
            await producer.flush()
            assert values(cluster) == [b"detached"]
            [*_, heard] = spy.heard
            assert isinstance(heard, RecordMetadata)

    @pytest.mark.parametrize("error", [None, TopicAuthorizationFailed])
    @scenario
    async def test_send_interrupted_after_the_append_harms_no_neighbour(
        self, error: type[TopicAuthorizationFailed] | None
    ) -> None:
        async with producing(linger_ms=500) as (producer, cluster):
            if error is not None:
                cluster.on("produce", topic=TOPIC).answer(error)
            sending = [asyncio.create_task(producer.send(TOPIC, b"%d" % number)) for number in range(2)]
            await settle()
            intake = producer._intake

            def interrupted(*arguments: Any) -> Any:
                intake.append(*arguments)
                raise KeyboardInterrupt

            producer._intake = Mock(append=interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.send(TOPIC, b"2").send(None)
            producer._intake = intake
            sending.append(asyncio.create_task(producer.send(TOPIC, b"3")))
            outcomes = await asyncio.gather(*sending, return_exceptions=True)
            if error is None:
                assert [each.offset for each in outcomes if isinstance(each, RecordMetadata)] == [0, 1, 3]
            else:
                assert [type(each) for each in outcomes] == [error] * 3
            assert values(cluster) == ([] if error else [b"0", b"1", b"2", b"3"])

    @scenario
    async def test_cancelled_send_harms_no_record_of_its_batch(self) -> None:
        async with producing(linger_ms=500) as (producer, cluster):
            sending = [asyncio.create_task(producer.send(TOPIC, b"%d" % number)) for number in range(5)]
            await settle()
            sending[2].cancel()
            sending[4].cancel()
            outcomes = await asyncio.gather(*sending, return_exceptions=True)
            assert [each.offset for each in outcomes if isinstance(each, RecordMetadata)] == [0, 1, 3]
            assert values(cluster) == [b"0", b"1", b"2", b"3", b"4"]

    @scenario
    async def test_wait_for_cancels_a_send(self) -> None:
        async with producing(linger_ms=500) as (producer, cluster):
            with pytest.raises(TimeoutError) as raised:
                await asyncio.wait_for(producer.send(TOPIC, b"detached"), 0.1)
            assert not isinstance(raised.value, ProducerError)
            await producer.flush()
            assert values(cluster) == [b"detached"]


class TestFutures:
    @scenario
    async def test_cancelled_future_is_detached(self) -> None:
        async with producing(linger_ms=500) as (producer, cluster):
            future = producer.send_nowait(TOPIC, b"detached")
            future.cancel()
            await producer.flush()
            assert future.cancelled()
            assert values(cluster) == [b"detached"]

    @scenario
    async def test_wait_for_detaches_a_future(self) -> None:
        async with producing(linger_ms=500) as (producer, cluster):
            future = producer.send_nowait(TOPIC, b"detached")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(future, 0.1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await producer.send_nowait(TOPIC, b"detached too")
            await producer.flush()
            assert values(cluster) == [b"detached", b"detached too"]

    @scenario
    async def test_shielded_future_can_be_awaited_again(self) -> None:
        async with producing(linger_ms=500) as (producer, _):
            future = producer.send_nowait(TOPIC, b"v")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(future), 0.1)
            assert (await future).offset == 0

    @scenario
    async def test_cancelled_future_may_belong_to_a_failed_record(self) -> None:
        async with producing(linger_ms=500) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)
            cancelled, other = producer.send_nowait(TOPIC, b"a"), producer.send_nowait(TOPIC, b"b")
            cancelled.cancel()
            with pytest.raises(TopicAuthorizationFailed):
                await other

    @scenario
    async def test_unawaited_future_logs_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        """`scenario` fails if asyncio complains of an exception that was never retrieved."""
        spy = Spy()
        async with producing(interceptors=[spy], linger_ms=500) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)
            with caplog.at_level(logging.WARNING, "aioproducer"):
                for _ in range(50):
                    _ = producer.send_nowait(TOPIC, b"v")
                await producer.flush()
            lines = [each for each in caplog.messages if each.startswith("batch.failed")]
            assert len(lines) == 1, "one line per batch, not per record"
            assert "records=50" in lines[0]
            assert 'error="TopicAuthorizationFailed: ' in lines[0]
            assert producer.metrics()["topics"][TOPIC]["record_error_total"] == 50
            assert sum(isinstance(each, TopicAuthorizationFailed) for each in spy.heard) == 50

    @scenario
    async def test_failed_future_may_be_awaited_late_and_twice(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)
            future = producer.send_nowait(TOPIC, b"v")
            await producer.flush()
            for _ in range(2):
                with pytest.raises(TopicAuthorizationFailed):
                    await future


class TestTimeoutOfTheCall:
    @scenario
    async def test_timeout_before_the_drain_removes_the_record(self) -> None:
        spy = Spy()
        async with producing(linger_ms=1_000, interceptors=[spy]) as (producer, cluster):
            others = [producer.send_nowait(TOPIC, b"before")]
            late = asyncio.create_task(producer.send(TOPIC, b"late", timeout_s=0.5))
            await settle()
            others.append(producer.send_nowait(TOPIC, b"after"))
            with pytest.raises(DeliveryTimeout, match=r"after 0\.5 s \(timeout_s\)") as raised:
                await late
            assert not raised.value.possibly_persisted
            assert isinstance(raised.value, TimeoutError)
            assert raised.value.retriable
            assert [(await each).offset for each in others] == [0, 1]
            assert values(cluster) == [b"before", b"after"]
            assert [type(each) for each in spy.heard[-3:]] == [
                DeliveryTimeout,
                RecordMetadata,
                RecordMetadata,
            ]

    @scenario
    async def test_timeout_after_the_drain_fails_only_the_call(self) -> None:
        spy = Spy()
        async with producing(interceptors=[spy]) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(1.0)
            with pytest.raises(DeliveryTimeout) as raised:
                await producer.send(TOPIC, b"late", timeout_s=0.5)
            assert raised.value.possibly_persisted
            await producer.flush()
            assert values(cluster) == [b"late"]
            assert [type(each) for each in spy.heard[1:]] == [RecordMetadata], "the record's own end, once"
            assert producer.metrics()["topics"][TOPIC]["records_delivered"] == 1
            assert producer.metrics()["topics"][TOPIC]["record_error_total"] == 0

    @scenario
    async def test_timeout_counts_from_the_call(self) -> None:
        async with producing(acquainted=False, linger_ms=1_000) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.4)
            began_at = asyncio.get_running_loop().time()
            future = await producer.enqueue(TOPIC, b"late", timeout_s=0.5)
            with pytest.raises(DeliveryTimeout):
                await future
            assert asyncio.get_running_loop().time() - began_at == pytest.approx(0.5)
            await producer.flush()
            assert values(cluster) == []

    @scenario
    async def test_timeout_of_zero_fails_at_once(self) -> None:
        async with producing(linger_ms=5) as (producer, cluster):
            with pytest.raises(DeliveryTimeout):
                await producer.send(TOPIC, b"late", timeout_s=0)
            await producer.flush()
            assert values(cluster) == []

    @scenario
    async def test_timeout_beyond_the_delivery_timeout_has_no_effect(self) -> None:
        async with producing(delivery_timeout_ms=2_000, request_timeout_ms=1_000) as (producer, cluster):
            cluster.freeze_broker(1)
            began_at = asyncio.get_running_loop().time()
            with pytest.raises(DeliveryTimeout):
                await producer.send(TOPIC, b"v", timeout_s=60)
            assert asyncio.get_running_loop().time() - began_at == pytest.approx(2.0, abs=0.11)
            cluster.thaw_broker(1)
