"""`close` that does not wait for everything: the rest fails, and is counted."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import ProducerClosed, SendManyError
from aioproducer.errors import NotEnoughReplicas
from tests.scenarios.closing import closed, send, told, unclosed
from tests.scenarios.rig import TOPIC, now, scenario, settle, values


class TestFailingTheRest:
    @scenario
    async def test_close_0_reports_unsent_records_as_absent(self) -> None:
        async with unclosed(linger_ms=60_000) as (producer, cluster):
            sending = send(producer, 3)
            await settle()
            assert await producer.close(0) == 3
            await closed(sending, possibly_persisted=False)
            assert values(cluster) == []

    @scenario
    async def test_close_0_reports_sent_records_as_possibly_stored(self) -> None:
        async with unclosed(linger_ms=0) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(1.0)
            sending = send(producer, 3)
            await settle()
            assert await producer.close(0) == 3
            await closed(sending, possibly_persisted=True)

    @scenario
    async def test_close_fails_the_rest_after_its_timeout(self) -> None:
        async with unclosed(linger_ms=0, brokers=2, partitions=2) as (producer, cluster):
            cluster.freeze_broker(2)
            delivered = asyncio.create_task(producer.send(TOPIC, b"v", partition=0))
            stuck = [asyncio.create_task(producer.send(TOPIC, b"v", partition=1)) for _ in range(4)]
            await settle()
            began_at = now()
            assert await producer.close(2.5) == 4
            assert now() - began_at == 2.5
            await delivered
            await closed(stuck)

    @pytest.mark.parametrize("timeout_s", [0, 0.5])
    @scenario
    async def test_calls_that_wait_for_memory(self, timeout_s: float) -> None:
        async with unclosed(buffer_memory=1_000, linger_ms=0) as (producer, cluster):
            cluster.freeze_broker(1)
            sending = send(producer, 5, b"x" * 400)
            await settle()
            assert await producer.close(timeout_s) == 5
            await closed(sending)

    @scenario
    async def test_calls_that_wait_for_metadata(self) -> None:
        async with unclosed() as (producer, cluster):
            cluster.on("metadata", topic="slow", times=None).drop()
            sending = send(producer, 3, topic="slow")
            knowing = asyncio.create_task(producer.partitions_for("slow"))
            await settle()
            assert await producer.close(0) == 3
            await closed(sending, possibly_persisted=False)
            assert isinstance(knowing.exception(), ProducerClosed)

    @scenario
    async def test_close_counts_every_record_of_a_bulk_call(self) -> None:
        async with unclosed(buffer_memory=1_000, linger_ms=0) as (producer, cluster):
            cluster.freeze_broker(1)
            many = asyncio.create_task(producer.send_many(TOPIC, [b"x" * 100] * 50))
            await settle()
            assert await producer.close(0) == 50
            with pytest.raises(SendManyError) as raised:
                await many
            assert {type(each) for each in raised.value.result.failures.values()} == {ProducerClosed}
            assert len(raised.value.result.failures) == 50

    @scenario
    async def test_close_fails_a_bulk_call_between_two_chunks(self) -> None:
        async with unclosed(buffer_memory=100_000_000) as (producer, _):
            many = asyncio.create_task(producer.send_many(TOPIC, [b"v"] * 20_000))
            await asyncio.sleep(0)
            failed = await producer.close(0)
            assert now() < 1
            with pytest.raises(SendManyError) as raised:
                await many
            assert failed == len(raised.value.result.failures) == 20_000

    @scenario
    async def test_close_fails_records_between_retries(self) -> None:
        async with unclosed() as (producer, cluster):
            cluster.on("produce", topic=TOPIC, times=None).answer(NotEnoughReplicas)
            sending = send(producer, 2)
            await asyncio.sleep(1)
            assert await producer.close(0) == 2
            await closed(sending, possibly_persisted=False)

    @scenario
    async def test_close_fails_records_without_brokers(self) -> None:
        async with unclosed(brokers=2, partitions=2) as (producer, cluster):
            for node_id in (1, 2):
                await cluster.stop_broker(node_id)
            sending = send(producer, 4)
            await asyncio.sleep(3)
            assert producer.state == "degraded"
            assert await producer.close(1) == 4
            await closed(sending)

    @scenario
    async def test_close_fails_batches_under_compression(self) -> None:
        async with unclosed(compression_type="gzip", batch_size=1_000_000, linger_ms=0) as (producer, _):
            sending = send(producer, 5, b"x" * 100_000)
            await settle()  # no time passes while a thread is out
            failed = await producer.close(0)
            outcomes = await asyncio.gather(*sending, return_exceptions=True)
            assert [type(each) for each in outcomes].count(ProducerClosed) == failed

    @scenario
    async def test_close_fails_calls_whose_memory_is_granted_with_it(self) -> None:
        """A call that was just woken must not append to a closed producer: the record would never be sent."""
        async with unclosed(acquainted=False, delivery_timeout_ms=60_000, linger_ms=5) as (producer, _):
            [sending] = send(producer)
            await told(producer, TOPIC)
            assert await producer.close(0) == 1
            assert now() < 1
            await closed([sending], possibly_persisted=False)
