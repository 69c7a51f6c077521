"""Structured concurrency around the calls: task groups, scopes and timeouts of anyio and of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest

from aioproducer import Producer, ProducerClosed, ProducerError, RecordMetadata, TopicAuthorizationFailed
from tests.scenarios.rig import TOPIC, cluster, now, producing, scenario, settle, values


def nothing_is_pending() -> bool:
    """True if all cancellations of this task were undone, as the owner of a scope or timeout has to do."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


class TestTimeouts:
    @scenario
    async def test_move_on_scope_ends_only_the_wait(self) -> None:
        async with producing(linger_ms=500) as (producer, cluster):
            with anyio.move_on_after(0.1) as scope:
                await producer.send(TOPIC, b"goes on")
            assert scope.cancelled_caught
            assert nothing_is_pending()
            assert now() < 0.5
            await producer.flush()
            assert values(cluster) == [b"goes on"]

    @scenario
    async def test_fail_after_raises_a_plain_timeout_error(self) -> None:
        async with producing(linger_ms=500) as (producer, _):
            with pytest.raises(TimeoutError) as raised, anyio.fail_after(0.1):
                await producer.send(TOPIC, b"goes on")
            assert not isinstance(raised.value, ProducerError)
            assert nothing_is_pending()

    @scenario
    async def test_inner_timeout_does_not_reach_the_outer_one(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(2)
            future = producer.send_nowait(TOPIC, b"v")
            with anyio.fail_after(5) as scope:
                with pytest.raises(TimeoutError), anyio.fail_after(1):
                    await producer.flush()
                with pytest.raises(TimeoutError):
                    await producer.flush(timeout_s=0.5)
                assert nothing_is_pending()
                assert (await future).offset == 0
            assert not scope.cancelled_caught

    @scenario
    async def test_timeout_at_the_answer_has_a_certain_outcome(self) -> None:
        """The call returns or is cancelled by the scope, exactly one of the two."""
        async with producing(linger_ms=0) as (producer, cluster):
            for number in range(5):
                cluster.on("produce", topic=TOPIC).delay(0.1)
                sent: RecordMetadata | None = None
                with anyio.move_on_after(0.1) as scope:
                    sent = await producer.send(TOPIC, b"%d" % number)
                assert scope.cancelled_caught is (sent is None)
                await producer.flush()
            assert len(values(cluster)) == 5


class TestScopes:
    @scenario
    async def test_cancelled_scope_closes_the_producer_at_once(self) -> None:
        """A scope of anyio also cancels the waits of `close`, unlike a cancellation of asyncio."""
        async with cluster() as opened:
            futures = []
            with anyio.move_on_after(1):
                async with Producer(opened.bootstrap_servers) as producer:
                    await producer.send(TOPIC, b"acknowledged")
                    opened.freeze_broker(1)
                    futures.append(await producer.enqueue(TOPIC, b"lost"))
                    await anyio.sleep_forever()
            assert now() == 1
            assert isinstance(futures[0].exception(), ProducerClosed)
            opened.thaw_broker(1)

    @scenario
    async def test_shielded_scope_sends_pending_records(self) -> None:
        async with cluster() as opened:
            producer = Producer(opened.bootstrap_servers, linger_ms=100)
            with anyio.move_on_after(1):
                await producer.start()
                try:
                    await anyio.sleep(0.99)
                    future = await producer.enqueue(TOPIC, b"at the last moment")
                    await anyio.sleep_forever()
                finally:
                    with anyio.move_on_after(5, shield=True):
                        assert await producer.close() == 0
            assert future.result().offset == 0

    @scenario
    async def test_producer_started_in_a_scope_outlives_it(self) -> None:
        async with cluster() as opened:
            producer = Producer(opened.bootstrap_servers)
            with anyio.move_on_after(1) as scope:
                await producer.start()
                await anyio.sleep_forever()
            assert scope.cancelled_caught
            await anyio.sleep(5)
            assert (await producer.send(TOPIC, b"v")).offset == 0
            await producer.close()


Group = Callable[[], AbstractAsyncContextManager[Any]]
in_each_group = pytest.mark.parametrize(
    "group", [asyncio.TaskGroup, anyio.create_task_group], ids=["asyncio", "anyio"]
)


def spawn(group: Any, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    if isinstance(group, asyncio.TaskGroup):
        group.create_task(call())
    else:
        group.start_soon(call)


class TestTaskGroups:
    @in_each_group
    @scenario
    async def test_failed_record_ends_the_task_group_with_its_error(self, group: Group) -> None:
        async with producing(linger_ms=0, partitions=2) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, partition=0).answer(TopicAuthorizationFailed)
            cluster.on("produce", topic=TOPIC, partition=1).delay(1)

            async def send_both() -> None:
                async with group() as tasks:
                    spawn(tasks, lambda: producer.send(TOPIC, b"waits", partition=1))
                    await settle()
                    spawn(tasks, lambda: producer.send(TOPIC, b"fails", partition=0))
                    await anyio.sleep(60)

            with pytest.raises(ExceptionGroup) as raised:
                await send_both()
            [error] = raised.value.exceptions
            assert isinstance(error, TopicAuthorizationFailed)
            assert now() < 2
            assert nothing_is_pending()
            await producer.flush()
            assert values(cluster, 1) == [b"waits"], "it goes on, as after any cancellation"
            assert (await producer.send(TOPIC, b"v", partition=0)).offset == 0

    @in_each_group
    @scenario
    async def test_exception_group_has_each_failed_record_once(self, group: Group) -> None:
        async with producing(linger_ms=10) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)

            async def send_all() -> None:
                async with group() as tasks:
                    for _ in range(50):
                        spawn(tasks, lambda: producer.send(TOPIC, b"v"))

            with pytest.raises(ExceptionGroup) as raised:
                await send_all()
            errors = raised.value.exceptions
            assert {type(error) for error in errors} == {TopicAuthorizationFailed}
            assert len({id(error) for error in errors}) == len(errors) >= 1

    @in_each_group
    @scenario
    async def test_producer_may_be_closed_in_another_task(self, group: Group) -> None:
        async with cluster() as opened:
            producer = Producer(opened.bootstrap_servers)
            async with group() as tasks:
                spawn(tasks, producer.start)
            async with group() as tasks:
                for _ in range(10):
                    spawn(tasks, lambda: producer.send(TOPIC, b"v"))
            async with group() as tasks:
                spawn(tasks, producer.close)
            assert len(values(opened)) == 10
