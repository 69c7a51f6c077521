"""`flush`, `close`, commit and abort return after the done callbacks of the records that they waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from aioproducer import Producer
from aioproducer.testing import Cluster
from tests.scenarios.rig import TOPIC, producing, scenario

WAYS = ["flush", "close", "close_at_once", "commit", "abort"]
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


async def wait_by(way: str, producer: Producer) -> None:
    match way:
        case "flush":
            await producer.flush()
        case "close":
            await producer.close()
        case "close_at_once":
            await producer.close(0)
        case "commit":
            await producer.commit_transaction()
        case _:
            await producer.abort_transaction()


@pytest.mark.parametrize("way", WAYS)
@scenario
async def test_callbacks_have_run_when_a_task_flushes_between_them(way: str) -> None:
    """The first Future wakes a task that calls `flush` before the callbacks of the others have had their turn."""
    options = {"transactional_id": "callbacks"} if way in {"commit", "abort"} else {}
    async with producing(**options, acquainted=False) as (producer, _):  # type: ignore[arg-type]
        if options:
            await producer.begin_transaction()
        await producer.send(TOPIC, b"the leader knows us")
        first, *others = [await producer.enqueue(TOPIC, b"%d" % number) for number in range(1_000)]
        called: list[object] = []

        async def waiting() -> int:
            await first
            await wait_by(way, producer)
            return len(called)

        task = asyncio.create_task(waiting())
        await asyncio.sleep(0)  # it is the first to wait for the first
        for each in others:
            each.add_done_callback(called.append)
        assert await task == len(others)


@pytest.mark.parametrize("way", WAYS)
@scenario
async def test_callbacks_of_failed_records_have_run(way: str) -> None:
    options = {"transactional_id": "callbacks"} if way in {"commit", "abort"} else {}
    async with producing(**options, acquainted=False, linger_ms=1_000, delivery_timeout_ms=2_000, request_timeout_ms=500) as (producer, cluster):  # type: ignore[arg-type]  # fmt: skip
        if options:
            await producer.begin_transaction()
        await producer.send(TOPIC, b"the leader knows us")
        called: list[object] = []
        for number in range(1_000):
            (await producer.enqueue(TOPIC, b"%d" % number)).add_done_callback(called.append)
        if way in {"flush", "close"}:
            cluster.freeze_broker(1)
        await wait_by(way, producer)
        assert len(called) == 1_000
        cluster.thaw_broker(1)


@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("way", ["flush", "close"])
def test_callbacks_of_many_batches_have_run(
    way: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def rounds() -> None:
        async with Cluster(brokers=2, topics={TOPIC: 12}) as cluster:
            for _ in range(4):
                async with Producer(cluster.bootstrap_servers) as producer:
                    called: list[object] = []
                    for number in range(6_000):
                        future = await producer.enqueue(TOPIC, b"%d" % number, partition=number % 12)
                        future.add_done_callback(called.append)
                    await wait_by(way, producer)
                    assert len(called) == 6_000

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(rounds())
