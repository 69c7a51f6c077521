"""Every call is cancelled at every iteration of the event loop that it takes, in each way to cancel.

Whatever the moment: the call ends at once, no record is there twice or out of order, none of what was acknowledged is
missing, nothing is left behind, and the producer goes on as if nothing had been.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest

from aioproducer import Producer, ProducerClosed, RecordMetadata
from tests.cases import for_each
from tests.scenarios.cancelling import MANNERS, Manner
from tests.scenarios.rig import cluster, producing, scenario, values

LARGE = b"x" * 400

in_each_manner = pytest.mark.parametrize("manner", MANNERS, ids=[manner.__name__ for manner in MANNERS])


async def behind_another(producer: Producer, topic: str) -> None:
    other = asyncio.create_task(producer.send(topic, b"other"))
    await asyncio.sleep(0)
    await producer.send(topic, b"v")
    await other


async def short_of_memory(producer: Producer, topic: str) -> None:
    _ = await producer.enqueue(topic, LARGE)
    await producer.send(topic, LARGE)


async def flush(producer: Producer, topic: str) -> None:
    _ = await producer.enqueue(topic, b"v")
    await producer.flush()


class Case(NamedTuple):
    call: Callable[[Producer, str], Coroutine[Any, Any, Any]]
    sends: list[bytes]
    """What it sends, in order."""
    knows_the_topic: bool = False
    at_once: bool = False
    """Whether the append is the first thing to happen."""


CASES = {
    "send": Case(
        lambda producer, topic: producer.send(topic, b"v"), [b"v"], knows_the_topic=True, at_once=True
    ),
    "send to a new topic": Case(lambda producer, topic: producer.send(topic, b"v"), [b"v"]),
    "send with a timeout": Case(lambda producer, topic: producer.send(topic, b"v", timeout_s=60), [b"v"]),
    "send behind another": Case(behind_another, [b"other", b"v"]),
    "send short of memory": Case(short_of_memory, [LARGE, LARGE], knows_the_topic=True),
    "enqueue": Case(lambda producer, topic: producer.enqueue(topic, b"v"), [b"v"]),
    "send_many": Case(lambda producer, topic: producer.send_many(topic, [LARGE] * 5), [LARGE] * 5),
    "flush": Case(flush, [b"v"], knows_the_topic=True, at_once=True),
    "partitions_for": Case(lambda producer, topic: producer.partitions_for(topic), []),
}


@in_each_manner
@for_each("case", CASES.values())
@scenario
async def test_call_may_be_cancelled_at_any_step(case: Case, manner: Manner) -> None:
    cancelled_with: set[int] = set()
    async with producing(linger_ms=5, buffer_memory=800) as (producer, cluster):
        for turns in count():
            topic = f"topic-{turns}"
            if case.knows_the_topic:
                await producer.partitions_for(topic)
            outcome = await manner(partial(case.call, producer, topic), turns)
            await producer.send(topic, b"after")
            *written, last = values(cluster, topic=topic)
            assert last == b"after"
            assert written == case.sends[: len(written)]
            if outcome.returned:
                assert written == case.sends
            else:
                cancelled_with.add(len(written))
            assert producer._engine is not None
            assert producer._engine.accumulator.idle
            assert producer._engine.accumulator.memory.used == 0
            if outcome.too_late:
                assert outcome.returned
                break
    if case.sends and not case.at_once:
        assert min(cancelled_with) < len(case.sends), "it was never cancelled before the append"
    if case.call is not CASES["enqueue"].call:  # the wait ends once the record is appended
        assert max(cancelled_with) == len(case.sends), "it was never cancelled after the append"


def of_ours() -> set[str]:
    """Return the names of the producer's tasks; those of the brokers are none of its business."""
    names = {task.get_name() for task in asyncio.all_tasks()}
    return {name for name in names if name.startswith("aioproducer") and ".testing" not in name}


@in_each_manner
@scenario
async def test_start_cancelled_at_any_iteration_can_be_repeated(manner: Manner) -> None:
    async with cluster() as opened:
        for turns in count():
            producer = Producer(opened.bootstrap_servers)
            outcome = await manner(producer.start, turns)
            if not outcome.returned:
                assert (producer.state, of_ours()) == ("new", set())
                await producer.start()
            await producer.close()
            assert of_ours() == set()
            if outcome.too_late:
                break
        assert turns > 5


@in_each_manner
@scenario
async def test_close_cancelled_at_any_iteration_closes(manner: Manner) -> None:
    async with cluster() as opened:
        for turns in count():
            producer = Producer(opened.bootstrap_servers, linger_ms=1_000)
            await producer.start()
            futures = [await producer.enqueue(f"topic-{turns}", b"%d" % number) for number in range(3)]
            outcome = await manner(producer.close, turns)
            if turns == 0 and not outcome.returned:  # it had not begun
                await producer.close()
            assert (producer.state, of_ours()) == ("closed", set())
            failed = [future for future in futures if isinstance(future.exception(), ProducerClosed)]
            delivered = [future for future in futures if future.exception() is None]
            assert len(delivered) + len(failed) == 3
            if outcome.returned:
                assert (outcome.result, failed) == (0, [])
            assert len(values(opened, topic=f"topic-{turns}")) >= len(delivered)
            if outcome.too_late:
                break
        assert turns > 5


async def a_life(producer: Producer, topic: str, acknowledged: list[RecordMetadata]) -> None:
    async with producer:
        acknowledged.append(await producer.send(topic, b"0"))
        async with asyncio.TaskGroup() as group:
            for number in range(1, 4):
                group.create_task(producer.send(topic, b"%d" % number))
        acknowledged.append(await producer.send(topic, b"4"))


@in_each_manner
@scenario
async def test_producer_may_be_cancelled_at_any_step(manner: Manner) -> None:
    async with cluster() as opened:
        for turns in count():
            producer = Producer(opened.bootstrap_servers)
            acknowledged: list[RecordMetadata] = []

            outcome = await manner(partial(a_life, producer, f"topic-{turns}", acknowledged), turns)
            assert producer.state in {"new", "closed"}
            assert of_ours() == set()
            if acknowledged:
                written = values(opened, topic=f"topic-{turns}")
                assert written == [b"%d" % number for number in range(len(written))]
                assert len(written) > acknowledged[-1].offset
            if outcome.too_late:
                assert len(acknowledged) == 2
                break
