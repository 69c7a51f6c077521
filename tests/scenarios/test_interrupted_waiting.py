"""An exception that a signal handler raises in a call that waits costs at most the record of that call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aioproducer import Producer, RecordMetadata, TransactionStateError
from aioproducer.testing import Cluster
from tests.interrupting import interrupt_task
from tests.scenarios.rig import TOPIC, cluster, producing, scenario
from tests.scenarios.test_interrupted_append import check_accounts

pytestmark = [  # of the coroutine whose call is interrupted before it is awaited
    pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FAR_APART = 61
"""Bytecodes from one interruption to the next; all of them would take long."""
TIMEOUT_S = 3.0
"""Longer than anything here takes that is not stuck."""

Call = Callable[[Producer, str], Coroutine[Any, Any, object]]


async def send(producer: Producer, topic: str) -> object:
    return await producer.send(topic, b"interrupted", key=b"key")


async def send_in_time(producer: Producer, topic: str) -> object:
    return await producer.send(topic, b"interrupted", timeout_s=2.0)


async def enqueue(producer: Producer, topic: str) -> object:
    return await (await producer.enqueue(topic, b"interrupted"))


async def send_many(producer: Producer, topic: str) -> object:
    return await producer.send_many(topic, [b"interrupted"] * 4, keys=[b"key"] * 4)


CALLS = [send, send_in_time, enqueue, send_many]


def neighbours(
    producer: Producer, topic: str, values: tuple[bytes, ...]
) -> dict[bytes, asyncio.Task[RecordMetadata]]:
    return {value: asyncio.create_task(producer.send(topic, value, partition=0)) for value in values}


async def check(
    opened: Cluster, producer: Producer, topic: str, sent: dict[bytes, asyncio.Task[RecordMetadata]]
) -> None:
    """Each record of *sent* is in the log once, in order, and where it was acknowledged; nothing is left behind."""
    _, late = await asyncio.wait(sent.values(), timeout=TIMEOUT_S)
    assert not late
    await asyncio.wait_for(producer.flush(), TIMEOUT_S)
    log = {record.offset: record.value for record in opened.records(topic, 0)}
    assert [log[task.result().offset] for task in sent.values()] == list(sent)
    assert [value for value in log.values() if value in sent] == list(sent)
    check_accounts(producer)


@pytest.mark.parametrize("call", CALLS)
@scenario
async def test_neighbours_are_unaffected_when_nothing_is_waited_for(call: Call) -> None:
    async with producing() as (producer, opened):
        await producer.send(TOPIC, b"known")
        at, has_raised = 1, True
        while has_raised:
            sent = neighbours(producer, TOPIC, (b"%d-1" % at, b"%d-2" % at))
            task = asyncio.create_task(call(producer, TOPIC))
            sent |= neighbours(producer, TOPIC, (b"%d-3" % at, b"%d-4" % at))
            has_raised = await interrupt_task(task, at)
            await check(opened, producer, TOPIC, sent)
            at += FAR_APART
        assert at > 50


@pytest.mark.parametrize("call", CALLS)
@scenario
async def test_neighbours_are_unaffected_when_metadata_is_waited_for(call: Call) -> None:
    async with cluster() as opened, Producer(opened.bootstrap_servers) as producer:
        at, has_raised = 1, True
        while has_raised:
            topic = f"topic-{at}"
            opened.create_topic(topic)
            sent = neighbours(producer, topic, (b"1", b"2"))
            task = asyncio.create_task(call(producer, topic))
            sent |= neighbours(producer, topic, (b"3", b"4"))
            has_raised = await interrupt_task(task, at)
            await check(opened, producer, topic, sent)
            at += FAR_APART
        assert at > 50


@pytest.mark.parametrize("call", CALLS)
@scenario
async def test_first_waiting_call_delays_no_other_call(call: Call) -> None:
    """The call holds the lock and, on release, appends the records of later calls."""
    async with cluster() as opened, Producer(opened.bootstrap_servers) as producer:
        at, has_raised = 1, True
        while has_raised:
            topic = f"topic-{at}"
            opened.create_topic(topic)
            task = asyncio.create_task(call(producer, topic))
            sent = neighbours(producer, topic, (b"1", b"2", b"3"))
            has_raised = await interrupt_task(task, at)
            await check(opened, producer, topic, sent)
            at += FAR_APART
        assert at > 50


@pytest.mark.parametrize("call", CALLS)
@scenario
async def test_neighbours_are_unaffected_when_memory_is_waited_for(call: Call) -> None:
    async with producing(buffer_memory=1_000, linger_ms=0) as (producer, opened):
        await producer.send(TOPIC, b"known")
        opened.on("produce", topic=TOPIC, times=None).delay(0.01)
        at, has_raised = 1, True
        while has_raised:
            first, *others = (b"%d-%d" % (at, number) for number in range(5))
            sent = {
                first + bytes(700): asyncio.create_task(producer.send(TOPIC, first + bytes(700), partition=0))
            }
            sent |= neighbours(producer, TOPIC, tuple(each + bytes(300) for each in others[:2]))
            task = asyncio.create_task(call(producer, TOPIC))
            sent |= neighbours(producer, TOPIC, tuple(each + bytes(300) for each in others[2:]))
            has_raised = await interrupt_task(task, at)
            await check(opened, producer, TOPIC, sent)
            at += FAR_APART
        assert at > 50


@scenario
async def test_interrupted_flush_has_no_effect() -> None:
    async with producing(linger_ms=5) as (producer, opened):
        await producer.send(TOPIC, b"known")
        at, has_raised = 1, True
        while has_raised:
            sent = neighbours(producer, TOPIC, (b"%d-1" % at, b"%d-2" % at))
            await asyncio.sleep(0)
            has_raised = await interrupt_task(asyncio.create_task(producer.flush()), at)
            await check(opened, producer, TOPIC, sent)
            assert producer._engine is not None
            assert not producer._engine.accumulator.hurries()
            at += 1
        assert at > 50


@scenario
async def test_interrupted_close_fails_the_remaining_records() -> None:
    at, has_raised = 1, True
    while has_raised:
        async with cluster() as opened:
            producer = Producer(opened.bootstrap_servers, linger_ms=100)
            await producer.start()
            await producer.send(TOPIC, b"known")
            futures = [producer.send_nowait(TOPIC, b"value") for _ in range(3)]
            has_raised = await interrupt_task(asyncio.create_task(producer.close()), at)
            await asyncio.wait_for(producer.close(), TIMEOUT_S)
            assert all(future.done() for future in futures), at
            assert producer.state == "closed"
        at += FAR_APART
    assert at > 50


@scenario
async def test_producer_continues_after_an_interrupted_begin() -> None:
    async with producing(transactional_id="interrupted", acquainted=False) as (producer, _):
        for at in range(1, 1_000):
            has_raised = await interrupt_task(asyncio.create_task(producer.begin_transaction()), at)
            try:
                await producer.begin_transaction()
            except TransactionStateError:
                await producer.abort_transaction()
                await producer.begin_transaction()
            future = await producer.enqueue(TOPIC, b"value")
            if at % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                assert (await future).offset >= 0
            if not has_raised:
                break
        assert 20 < at < 999
