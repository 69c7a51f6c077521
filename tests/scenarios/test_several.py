"""Several producers: in one event loop, in one each, one after the other, in a process each."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import anyio
import pytest
import uvloop

from aioproducer import Producer, ProducerClosed, WrongLoop
from aioproducer.testing import ThreadedCluster
from tests.scenarios.rig import TOPIC, cluster, scenario, values

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]

on_each_loop = pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])


async def send(servers: str, name: int, records: int) -> list[int]:
    """Return the offsets of *count* records."""
    async with Producer(servers, linger_ms=1) as producer:
        sent = await asyncio.gather(
            *(producer.send(TOPIC, b"%d %d" % (name, number)) for number in range(records))
        )
    return [each.offset for each in sent]


def numbers_of(written: list[bytes | None], name: int) -> list[int]:
    pairs = [(value or b"").split() for value in written]
    return [int(number) for by, number in pairs if int(by) == name]


@scenario
async def test_producers_share_one_loop() -> None:
    async with cluster() as opened:
        servers = opened.bootstrap_servers
        async with Producer(servers, linger_ms=0) as lasting:
            for name in range(5):
                async with anyio.create_task_group() as group:
                    group.start_soon(send, servers, name, 20)
                    group.start_soon(lasting.send, TOPIC, b"9 %d" % name)
            await lasting.flush()
        written = values(opened)
        assert [numbers_of(written, name) for name in range(5)] == [list(range(20))] * 5
        assert numbers_of(written, 9) == list(range(5))
        ids = {batch.producer_id for batch in opened.batches(TOPIC, 0)}
        assert len(ids) == 6


@pytest.mark.kafka_cluster(topics={TOPIC: 1})
def test_producers_run_in_threads_with_own_loops(kafka_cluster: ThreadedCluster) -> None:
    threads, records = 6, 100
    together = threading.Barrier(threads)

    def work(name: int) -> list[int]:
        with asyncio.Runner(loop_factory=LOOPS[name % 2]) as runner:
            together.wait(10)
            return runner.run(send(kafka_cluster.bootstrap_servers, name, records))

    with ThreadPoolExecutor(threads) as pool:
        offsets = [offset for sent in pool.map(work, range(threads)) for offset in sent]
    assert sorted(offsets) == list(range(threads * records))
    written = [record.value for record in kafka_cluster.records(TOPIC, 0)]
    for name in range(threads):
        assert numbers_of(written, name) == list(range(records))


@pytest.mark.kafka_cluster(topics={TOPIC: 1})
def test_producers_run_in_consecutive_loops_of_each_kind(kafka_cluster: ThreadedCluster) -> None:
    for name, new_loop in enumerate(LOOPS * 2):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            assert runner.run(send(kafka_cluster.bootstrap_servers, name, 3)) == [
                3 * name + number for number in range(3)
            ]


@pytest.mark.kafka_cluster(topics={TOPIC: 1})
def test_producer_refuses_another_loop(kafka_cluster: ThreadedCluster) -> None:
    producer = Producer(kafka_cluster.bootstrap_servers)

    async def first() -> None:
        await producer.start()
        await producer.send(TOPIC, b"v")

    async def second() -> None:
        with pytest.raises(ProducerClosed, match="started once"):
            await producer.start()
        with pytest.raises((ProducerClosed, WrongLoop)):
            await producer.send(TOPIC, b"v")
        assert await producer.close() == 0

    asyncio.run(first())
    asyncio.run(second())


@pytest.mark.kafka_cluster(topics={TOPIC: 1})
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@on_each_loop
def test_forked_workers_each_start_their_own(
    kafka_cluster: ThreadedCluster, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """As servers do that load the program once: a producer may be made before the fork, but not started."""
    producer = Producer(kafka_cluster.bootstrap_servers)

    async def work(name: int) -> None:
        async with producer:
            await producer.send(TOPIC, b"%d 0" % name)

    children = []
    for name in range(3):
        child = os.fork()
        if child == 0:  # it must not come back into the test
            signal.alarm(20)  # nor wait for ever
            try:
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(work(name))
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    for child in children:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work(3))
    batches = kafka_cluster.batches(TOPIC, 0)
    assert sorted(record.value or b"" for batch in batches for record in batch.records) == [
        b"%d 0" % name for name in range(4)
    ]
    assert len({batch.producer_id for batch in batches}) == 4


@pytest.mark.kafka_cluster(topics={TOPIC: 1})
@on_each_loop
def test_calls_cancelled_at_any_moment_on_real_loops(
    kafka_cluster: ThreadedCluster, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """test_cancelling_anywhere.py with real sockets and uvloop, at random moments."""

    async def life(moment: int, acknowledged: list[int]) -> None:
        async with Producer(kafka_cluster.bootstrap_servers) as producer:
            for number in range(3):
                sent = await producer.send(TOPIC, b"%d %d" % (moment, number))
                acknowledged.append(sent.offset)

    async def cancel_everywhere() -> None:
        here = asyncio.current_task()
        for moment in count():
            acknowledged: list[int] = []
            with anyio.move_on_after(1.2**moment / 2_000) as scope:
                await life(moment, acknowledged)
            assert asyncio.all_tasks() == {here}
            written = [record.value for record in kafka_cluster.records(TOPIC, 0)]
            for number, offset in enumerate(acknowledged):
                assert written[offset] == b"%d %d" % (moment, number)
            assert numbers_of(written, moment) in [list(range(length)) for length in range(4)]
            if not scope.cancelled_caught:
                assert len(acknowledged) == 3
                break

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(cancel_everywhere())
