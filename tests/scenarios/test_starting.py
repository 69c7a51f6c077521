"""The life of a producer before `close` (see `test_closing`), and its event loop."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from aioproducer import ConnectionFailed, Producer, ProducerClosed, State, WrongLoop
from aioproducer.testing import Cluster
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, producing, scenario, values

AT_MODULE_LEVEL = Producer("localhost:9092")


def test_producer_may_be_created_without_a_loop() -> None:
    assert AT_MODULE_LEVEL.state is State.NEW


class TestStart:
    @scenario
    async def test_start_returns_after_the_first_metadata_response(self) -> None:
        async with open_cluster(brokers=3) as cluster:
            cluster.on("metadata").delay(2.0)
            producer = Producer(cluster.bootstrap_servers.split(",")[0])
            await producer.start()
            assert now() == 2
            assert set(producer.metrics()["nodes"]) == {1, 2, 3}
            assert producer.state == "ready"
            await producer.close()

    @scenario
    async def test_start_fails_listing_every_address_with_its_cause(self) -> None:
        async with open_cluster(brokers=3) as cluster:
            for node_id in (1, 2):
                await cluster.stop_broker(node_id)
            cluster.freeze_broker(3)
            producer = Producer(
                cluster.bootstrap_servers, socket_connection_setup_timeout_ms=1_500, request_timeout_ms=5_000
            )
            with pytest.raises(ConnectionFailed) as raised:
                await producer.start()
            told = str(raised.value)
            for address in cluster.bootstrap_servers.split(","):
                assert address in told
            assert told.count("nothing listens on") == 2
            assert "handshake" in told
            assert 1.5 <= now() <= 2.5
            assert raised.value.retriable
            assert raised.value.__cause__ is not None
            assert producer.state == "new"
            for node_id in (1, 2):
                await cluster.start_broker(node_id)
            async with producer:
                await producer.send(TOPIC, b"v", partition=0)
            cluster.thaw_broker(3)

    @scenario
    async def test_frozen_first_address_delays_start_by_250_ms(self) -> None:
        for _ in range(10):  # which address and which broker are asked first is left to chance
            async with open_cluster(brokers=3, partitions=3) as cluster:
                cluster.freeze_broker(1)
                began_at = now()
                async with Producer(cluster.bootstrap_servers) as producer:
                    await producer.send(TOPIC, b"v", partition=1)
                    assert now() - began_at < 1
                cluster.thaw_broker(1)

    @scenario
    async def test_start_identifies_an_address_of_another_protocol(self) -> None:
        async with open_cluster() as cluster:
            cluster.on("api_versions", times=None).rewrite(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(ConnectionFailed, match="HTTP"):
                await Producer(cluster.bootstrap_servers).start()

    @scenario
    async def test_cancelled_start_leaves_nothing_and_may_be_repeated(self) -> None:
        async with open_cluster() as cluster:
            cluster.freeze_broker(1)
            producer = Producer(cluster.bootstrap_servers)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.start(), 1)
            assert producer.state == "new"
            cluster.thaw_broker(1)
            await producer.start()
            assert producer.state == "ready"
            await producer.close()

    @scenario
    async def test_producer_sends_nothing_before_start_or_after_close(self) -> None:
        async with open_cluster() as cluster:
            producer = Producer(cluster.bootstrap_servers)
            with pytest.raises(ProducerClosed, match="not started"):
                await producer.send(TOPIC, b"v")
            async with producer:
                pass
            with pytest.raises(ProducerClosed, match="closed"):
                await producer.send(TOPIC, b"v")
            assert values(cluster) == []


class TestState:
    @scenario
    async def test_state_follows_the_lifecycle(self) -> None:
        async with open_cluster() as cluster:
            producer = Producer(cluster.bootstrap_servers)
            seen = [producer.state]
            starting = asyncio.create_task(producer.start())
            await asyncio.sleep(0)
            seen.append(producer.state)
            await starting
            await producer.send(TOPIC, b"v")
            seen.append(producer.state)
            await cluster.stop_broker(1)
            await asyncio.sleep(1)
            seen.append(producer.state)
            await cluster.start_broker(1)
            await producer.send(TOPIC, b"v")
            seen.append(producer.state)
            closing = asyncio.create_task(producer.close())
            await asyncio.sleep(0)
            seen.append(producer.state)
            await closing
            seen.append(producer.state)
            assert seen == ["new", "starting", "ready", "degraded", "ready", "closing", "closed"]

    @scenario
    async def test_producer_is_ready_with_one_reachable_broker(self) -> None:
        async with producing(brokers=2, partitions=2) as (producer, cluster):
            await cluster.stop_broker(2)
            await asyncio.sleep(5)
            await producer.send(TOPIC, b"v", partition=0)
            assert producer.state == "ready"


class TestWrongLoop:
    async def test_call_from_another_loop_is_refused(self) -> None:
        async with Cluster(topics={TOPIC: 1}, transport="memory") as cluster:
            async with Producer(cluster.bootstrap_servers) as producer:

                async def elsewhere() -> None:
                    for call in (
                        producer.send(TOPIC, b"v"),
                        producer.enqueue(TOPIC, b"v"),
                        producer.send_many(TOPIC, [b"v"]),
                        producer.flush(),
                        producer.partitions_for(TOPIC),
                        producer.close(),
                    ):
                        with pytest.raises(WrongLoop) as raised:
                            await call
                        assert isinstance(raised.value, RuntimeError)
                    with pytest.raises(WrongLoop):
                        _ = producer.send_nowait(TOPIC, b"v")

                await asyncio.to_thread(asyncio.run, elsewhere())
                await producer.send(TOPIC, b"here")
            assert values(cluster) == [b"here"]

    async def test_thread_may_call_through_run_coroutine_threadsafe(self) -> None:
        async with (
            Cluster(topics={TOPIC: 1}, transport="memory") as cluster,
            Producer(cluster.bootstrap_servers) as producer,
        ):
            loop = asyncio.get_running_loop()

            def elsewhere() -> int:
                return asyncio.run_coroutine_threadsafe(producer.send(TOPIC, b"v"), loop).result(10).offset

            assert await asyncio.to_thread(elsewhere) == 0

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    async def test_call_in_a_forked_child_is_refused(self) -> None:
        async with Cluster(topics={TOPIC: 1}, transport="memory") as cluster:
            async with Producer(cluster.bootstrap_servers) as producer:
                await producer.send(TOPIC, b"parent")
                child = os.fork()
                if child == 0:  # it must not come back into the test
                    try:
                        _ = producer.send_nowait(TOPIC, b"child")
                        os._exit(1)
                    except WrongLoop:
                        os._exit(0)
                    finally:
                        os._exit(2)
                _, status = await asyncio.to_thread(os.waitpid, child, 0)
                assert os.waitstatus_to_exitcode(status) == 0
                assert threading.active_count() >= 1
            assert values(cluster) == [b"parent"]
