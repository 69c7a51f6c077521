"""`close` in every state: it leaves nothing behind.

`scenario` checks for remaining tasks; these tests check for unresolved Futures and open connections.
"""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import Producer, ProducerClosed
from aioproducer.errors import NotEnoughReplicas
from tests.scenarios.closing import closed, send, unclosed
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, scenario, settle, values


class TestBeforeItIsReady:
    @scenario
    async def test_close_of_a_new_producer_returns_0(self) -> None:
        producer = Producer("localhost:9092")
        assert await producer.close() == 0
        assert producer.state == "closed"
        with pytest.raises(ProducerClosed, match="closed"):
            await producer.start()

    @pytest.mark.parametrize("timeout_s", [None, 0, 5])
    @scenario
    async def test_close_ends_a_running_start_at_once(self, timeout_s: float | None) -> None:
        async with open_cluster() as cluster:
            cluster.freeze_broker(1)
            producer = Producer(cluster.bootstrap_servers)
            starting = asyncio.create_task(producer.start())
            await settle()
            assert await producer.close(timeout_s) == 0
            assert now() == 0
            with pytest.raises(ProducerClosed, match="while it was starting"):
                await starting
            assert producer.state == "closed"
            cluster.thaw_broker(1)

    @scenario
    async def test_close_returns_after_a_failed_start(self) -> None:
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            producer = Producer(cluster.bootstrap_servers)
            with pytest.raises(Exception, match="bootstrap"):
                await producer.start()
            assert await producer.close() == 0
            assert producer.state == "closed"

    @scenario
    async def test_ready_and_never_used(self) -> None:
        async with unclosed() as (producer, _):
            assert await producer.close() == 0


class TestWaitingForEverything:
    @scenario
    async def test_close_sends_lingering_records_at_once(self) -> None:
        async with unclosed(linger_ms=60_000) as (producer, cluster):
            sending = send(producer, 3)
            await settle()
            assert await producer.close() == 0
            assert [(await each).offset for each in sending] == [0, 1, 2]
            assert now() < 1
            assert values(cluster) == [b"v"] * 3

    @scenario
    async def test_calls_that_still_wait_are_waited_for(self) -> None:
        async with unclosed(acquainted=False, buffer_memory=1_000) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.5)
            sending = send(producer, 5, b"x" * 400)
            await settle()
            assert await producer.close() == 0
            assert [(await each).offset for each in sending] == [0, 1, 2, 3, 4]

    @scenario
    async def test_close_waits_for_retries(self) -> None:
        async with unclosed() as (producer, cluster):
            cluster.on("produce", topic=TOPIC, times=3).answer(NotEnoughReplicas)
            sending = send(producer, 2)
            await settle()
            assert await producer.close() == 0
            assert [(await each).offset for each in sending] == [0, 1]

    @scenario
    async def test_close_is_bounded_by_the_delivery_timeout(self) -> None:
        async with unclosed(delivery_timeout_ms=3_000, request_timeout_ms=1_000) as (producer, cluster):
            await cluster.stop_broker(1)
            sending = send(producer, 2)
            await settle()
            began_at = now()
            assert await producer.close() == 0, "it failed none of them: their time was over"
            assert now() - began_at == pytest.approx(3, abs=0.11)
            assert all(isinstance(each.exception(), TimeoutError) for each in sending)

    @scenario
    async def test_new_calls_are_refused_meanwhile(self) -> None:
        async with unclosed() as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(1.0)
            sending = send(producer)
            await settle()
            closing = asyncio.create_task(producer.close())
            await settle()
            assert producer.state == "closing"
            with pytest.raises(ProducerClosed, match="closed"):
                await producer.send(TOPIC, b"late")
            assert await closing == 0
            await sending[0]
            assert values(cluster) == [b"v"]


class TestSeveralTimes:
    @scenario
    async def test_close_may_be_called_again(self) -> None:
        async with unclosed() as (producer, _):
            await producer.send(TOPIC, b"v")
            assert [await producer.close(), await producer.close(), await producer.close(0)] == [0, 0, 0]

    @scenario
    async def test_concurrent_closes_all_return(self) -> None:
        async with unclosed() as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(1.0)
            [sending] = send(producer)
            await settle()
            assert list(await asyncio.gather(*(producer.close() for _ in range(3)))) == [0, 0, 0]
            assert (await sending).offset == 0

    @scenario
    async def test_shorter_close_timeout_wins(self) -> None:
        async with unclosed() as (producer, cluster):
            cluster.freeze_broker(1)
            sending = send(producer, 2)
            await settle()
            patient = asyncio.create_task(producer.close())
            await settle()
            assert await producer.close(0) == 2
            assert await patient == 0
            assert now() < 1
            await closed(sending)


class TestCancelled:
    @scenario
    async def test_cancelled_close_acts_like_a_timeout_of_0(self) -> None:
        async with unclosed() as (producer, cluster):
            cluster.freeze_broker(1)
            sending = send(producer, 3)
            await settle()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.close(), 2)
            await closed(sending)
            assert producer.state == "closed"
            assert await producer.close() == 0

    @scenario
    async def test_cancelled_async_with_closes_the_producer(self) -> None:
        async with open_cluster() as cluster:

            async def work() -> None:
                async with Producer(cluster.bootstrap_servers) as producer:
                    await producer.send(TOPIC, b"v")
                    await asyncio.Event().wait()

            working = asyncio.create_task(work())
            await asyncio.sleep(1)
            working.cancel()
            await asyncio.wait([working])
            assert working.cancelled()
            assert values(cluster) == [b"v"]

    @scenario
    async def test_exception_in_the_block_sends_appended_records(self) -> None:
        async with open_cluster() as cluster:

            async def work() -> None:
                async with Producer(cluster.bootstrap_servers, linger_ms=1_000) as producer:
                    _ = await producer.enqueue(TOPIC, b"v")
                    raise LookupError("mine")

            with pytest.raises(LookupError, match="mine"):
                await work()
            assert values(cluster) == [b"v"]
