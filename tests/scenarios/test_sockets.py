"""Some scenarios on real sockets in real time, with each available event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from aioproducer import ConnectionFailed, Producer, ProducerClosed
from aioproducer.config import ProducerOptions
from aioproducer.errors import NotLeaderOrFollower
from aioproducer.testing import Cluster

TOPIC = "orders"
TASKS = 500


Test = Callable[[Cluster], Coroutine[Any, Any, None]]


def on_each_loop(test: Test) -> Callable[[Callable[[], asyncio.AbstractEventLoop]], None]:
    """Run a test with each kind of loop, on a cluster of two nodes; a socket left open is an error."""

    async def with_cluster() -> None:
        async with Cluster(brokers=2, topics={TOPIC: 4}) as cluster:
            await test(cluster)

    def run(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(with_cluster())
        gc.collect(1)  # so that a ResourceWarning comes now

    run.__name__ = test.__name__
    kinds = [asyncio.new_event_loop, uvloop.new_event_loop]
    return pytest.mark.parametrize("new_loop", kinds, ids=["asyncio", "uvloop"])(run)


def connections(cluster: Cluster) -> int:
    """Return the number of connections of the brokers."""
    return sum(len(broker._connections) for broker in cluster._brokers.values())


@on_each_loop
async def test_five_ways_to_send(cluster: Cluster) -> None:
    async with Producer(cluster.bootstrap_servers, compression_type="zstd", linger_ms=1) as producer:
        sent = [await producer.send(TOPIC, b"a", partition=0)]
        sent.append(await (await producer.enqueue(TOPIC, b"b", partition=0)))
        sent.append(await producer.send_nowait(TOPIC, b"c", partition=0))
        result = await producer.send_many(TOPIC, [b"d", b"e"], partition=0)
        await producer.flush()
    assert [each.offset for each in sent] == [0, 1, 2]
    assert [result.offset(0), result.offset(1)] == [3, 4]
    assert [record.value for record in cluster.records(TOPIC, 0)] == [b"a", b"b", b"c", b"d", b"e"]


@on_each_loop
async def test_reset_connections_lose_no_record(cluster: Cluster) -> None:
    async with Producer(cluster.bootstrap_servers, retry_backoff_ms=1, reconnect_backoff_ms=1) as producer:
        first = await producer.send(TOPIC, b"a", partition=0)
        cluster.on("produce", times=None).delay(
            0.05
        )  # the second attempt's answer comes behind the first one's
        waiting = await producer.enqueue(TOPIC, b"b", partition=0)
        async with asyncio.timeout(30):
            while cluster.request_count("produce") < 2:  # noqa: ASYNC110 - the cluster has no event for it
                await asyncio.sleep(0)
        cluster.disconnect(1)
        cluster.disconnect(2)
        assert [first.offset, (await waiting).offset] == [0, 1]


@on_each_loop
async def test_tasks_that_send_again_and_again_beside_lingers(cluster: Cluster) -> None:
    """Lingers often end within a millisecond, the resolution of uvloop's timers."""

    async def send(number: int) -> None:
        for turn in range(60):
            sent = await producer.send(TOPIC, b"v", partition=(number + turn) % 4)
            assert sent.offset >= 0
            for _ in range((number + turn) % 5):
                await asyncio.sleep(0)

    async with Producer(cluster.bootstrap_servers, linger_ms=1) as producer:
        await asyncio.gather(*map(send, range(40)))
    assert sum(len(cluster.records(TOPIC, partition)) for partition in range(4)) == 40 * 60


@on_each_loop
async def test_concurrent_tasks_send_over_sockets(cluster: Cluster) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=1, buffer_memory=12_500) as producer:
        sent = await asyncio.gather(*(producer.send(TOPIC, b"%04d" % number * 20) for number in range(TASKS)))
    logs = [[record.value for record in cluster.records(TOPIC, partition)] for partition in range(4)]
    assert [logs[each.partition][each.offset] for each in sent] == [
        b"%04d" % number * 20 for number in range(TASKS)
    ]
    assert sum(map(len, logs)) == TASKS


@on_each_loop
async def test_large_batches_compressed_in_threads_stay_in_order(cluster: Cluster) -> None:
    options: ProducerOptions = {"compression_type": "gzip", "batch_size": 300_000, "linger_ms": 0}
    async with Producer(cluster.bootstrap_servers, **options) as producer:
        futures = [
            await producer.enqueue(TOPIC, b"%03d" % number * 3_000, partition=1) for number in range(100)
        ]
        await asyncio.gather(*futures)
    assert [record.value for record in cluster.records(TOPIC, 1)] == [
        b"%03d" % number * 3_000 for number in range(100)
    ]


@on_each_loop
async def test_faults_on_the_way(cluster: Cluster) -> None:
    async with Producer(
        cluster.bootstrap_servers, linger_ms=0, retry_backoff_ms=10, reconnect_backoff_ms=10
    ) as producer:
        await producer.send(TOPIC, b"first", partition=0)
        cluster.on("produce", after=1).close(before_append=False)
        cluster.on("produce", after=3).answer(NotLeaderOrFollower)
        cluster.on("produce", after=4).rewrite(lambda frame: (frame[:7], frame[7:]))
        futures = [await producer.enqueue(TOPIC, b"%d" % number, partition=0) for number in range(20)]
        await asyncio.gather(*futures)
        cluster.disconnect(1)
        await producer.send(TOPIC, b"last", partition=0)
    assert [record.value for record in cluster.records(TOPIC, 0)] == [
        b"first",
        *(b"%d" % number for number in range(20)),
        b"last",
    ]


@on_each_loop
async def test_close_leaves_no_connection(cluster: Cluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    await producer.start()
    await producer.send_many(TOPIC, [b"v"] * 4, partitions=range(4))
    assert connections(cluster) >= 2
    cluster.on("produce", times=None).drop()
    futures = [await producer.enqueue(TOPIC, b"v", partition=partition) for partition in range(4)]
    assert await producer.close(0) == 4
    assert [type(future.exception()) for future in futures] == [ProducerClosed] * 4
    async with asyncio.timeout(10):
        while connections(cluster):
            await asyncio.wait([task for broker in cluster._brokers.values() for task in broker._connections])


@on_each_loop
async def test_failed_start_may_be_retried(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    for node_id in (1, 2):
        await cluster.stop_broker(node_id)
    producer = Producer(servers)
    with pytest.raises(ConnectionFailed) as raised:
        await producer.start()
    for address in servers.split(","):
        assert address in str(raised.value)
    for node_id in (1, 2):
        await cluster.start_broker(node_id)
    async with producer:
        assert (await producer.send(TOPIC, b"v", partition=1)).offset == 0
