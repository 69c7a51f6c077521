"""Serializers that await and send: a record from inside a serializer is appended ahead of the waiting call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioproducer import BufferTimeout, Producer, SerializationError, SerializerTimeout
from aioproducer.serializers import Serialized
from tests.cases import for_each
from tests.scenarios.awaiting import begin, encode, logged
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, scenario, settle

Inside = Callable[[Producer], Awaitable[Any]]


async def sent(producer: Producer) -> None:
    await producer.send(TOPIC, "in 0")
    await producer.send(TOPIC, "in 1")


async def in_a_task(producer: Producer) -> None:
    await asyncio.create_task(sent(producer))


async def in_a_task_of_a_task(producer: Producer) -> None:
    await asyncio.create_task(in_a_task(producer))


async def gathered(producer: Producer) -> None:
    await asyncio.gather(producer.send(TOPIC, "in 0"), producer.send(TOPIC, "in 1"))


async def in_a_group(producer: Producer) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(producer.send(TOPIC, "in 0"))
        group.create_task(producer.send(TOPIC, "in 1"))


async def with_a_limit(producer: Producer) -> None:
    await asyncio.wait_for(sent(producer), 10)


async def enqueued(producer: Producer) -> None:
    futures = [await producer.enqueue(TOPIC, f"in {index}") for index in range(2)]
    assert not any(each.done() for each in futures)


async def in_bulk(producer: Producer) -> None:
    await producer.send_many(TOPIC, ["in 0", "in 1"])


async def slow_ones(producer: Producer) -> None:
    await asyncio.gather(producer.send(TOPIC, "in 0:0.2"), producer.send(TOPIC, "in 1"))


async def flushed(producer: Producer) -> None:
    futures = [await producer.enqueue(TOPIC, f"in {index}") for index in range(2)]
    await producer.flush()
    assert all(each.done() for each in futures)


async def left_behind(producer: Producer) -> None:
    tasks.extend(asyncio.ensure_future(producer.send(TOPIC, f"in {index}:0.1")) for index in range(2))
    await settle()


tasks: list[Any] = []
WAYS: list[Inside] = [
    sent,
    in_a_task,
    in_a_task_of_a_task,
    gathered,
    in_a_group,
    with_a_limit,
    enqueued,
    in_bulk,
    slow_ones,
    flushed,
    left_behind,
]


class Sending:
    """Serializer that calls *inside* once, for the value "outer"."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self.producer: Producer

    async def __call__(self, value: str) -> bytes | None:
        if value == "outer":
            await self._inside(self.producer)
        return await encode(value)


async def run(
    inside: Inside, outer: Callable[[Producer], Awaitable[Any]], *, is_plain: bool = False, **options: Any
) -> list[str]:
    """Return the log after *outer*, with 'before' and 'behind' around it."""
    serializer = Sending(inside)

    def plainly(value: str) -> Awaitable[Serialized]:
        return serializer(value)

    async with (
        open_cluster() as opened,
        Producer(
            opened.bootstrap_servers, value_serializer=plainly if is_plain else serializer, **options
        ) as producer,
    ):
        serializer.producer = producer
        began = now()
        await producer.send(TOPIC, "before")
        waiting = begin(_done(outer(producer)))
        await asyncio.sleep(0)
        await producer.send(TOPIC, "behind")
        await waiting
        await asyncio.gather(*tasks)
        tasks.clear()
        assert now() - began < 5
        assert producer.metrics()["producer"]["calls_waiting"] == 0
        return [each.partition(":")[0] for each in logged(opened)]


async def _done(work: Awaitable[Any]) -> None:
    await work


@for_each("is_plain", [False, True])
@for_each("inside", WAYS)
@scenario
async def test_records_from_inside_precede_a_send(inside: Inside, is_plain: bool) -> None:
    log = await run(inside, lambda producer: producer.send(TOPIC, "outer"), is_plain=is_plain)
    assert log == ["before", "in 0", "in 1", "outer", "behind"]


@for_each("is_plain", [False, True])
@for_each("inside", WAYS)
@scenario
async def test_records_from_inside_precede_a_send_many(inside: Inside, is_plain: bool) -> None:
    log = await run(
        inside, lambda producer: producer.send_many(TOPIC, ["first", "outer", "last"]), is_plain=is_plain
    )
    log.remove("behind")  # may go between chunks
    assert log == ["before", "first", "in 0", "in 1", "outer", "last"]


@pytest.mark.parametrize("inside", [sent, gathered, in_bulk], ids=lambda each: each.__name__)
@scenario
async def test_records_from_inside_precede_when_memory_is_short(inside: Inside) -> None:
    log = await run(
        inside,
        lambda producer: producer.send(TOPIC, "outer"),
        buffer_memory=600,
        max_request_size=500,
        batch_size=100,
    )
    assert log == ["before", "in 0", "in 1", "outer", "behind"]


@scenario
async def test_serializers_send_from_inside_each_other() -> None:
    async def nested(value: int) -> bytes:
        if value:
            await producer.send(TOPIC, value - 1)
        return b"%d" % value

    async with (
        open_cluster() as opened,
        Producer(opened.bootstrap_servers, value_serializer=nested) as producer,
    ):
        await asyncio.gather(producer.send(TOPIC, 3), producer.send(TOPIC, 2))
        assert logged(opened) == list("0123012")


@scenario
async def test_record_returns_to_its_topic_by_way_of_another() -> None:
    async def nested(value: str) -> bytes:
        if value == "outer":
            await producer.send("acquaintance", "other")
        if value == "other":
            await producer.send(TOPIC, "back")
        return value.encode()

    async with (
        open_cluster() as opened,
        Producer(opened.bootstrap_servers, value_serializer=nested) as producer,
    ):
        await producer.send(TOPIC, "outer")
        assert logged(opened) == ["back", "outer"]
        assert logged(opened, "acquaintance") == ["other"]


@scenario
async def test_calls_queue_behind_an_awaiting_serializer() -> None:
    async def inside(producer: Producer) -> None:
        await asyncio.sleep(1)
        await producer.send(TOPIC, "in 0")

    log = await run(inside, lambda producer: producer.send(TOPIC, "outer"))
    assert log == ["before", "in 0", "outer", "behind"]


@scenario
async def test_task_that_outlives_its_serializer_queues_as_usual() -> None:
    going = asyncio.Event()

    async def later(producer: Producer) -> None:
        await going.wait()
        await producer.send(TOPIC, "late")

    async def inside(producer: Producer) -> None:
        tasks.append(asyncio.ensure_future(later(producer)))

    serializer = Sending(inside)
    async with (
        open_cluster() as opened,
        Producer(opened.bootstrap_servers, value_serializer=serializer) as producer,
    ):
        serializer.producer = producer
        await producer.send(TOPIC, "outer")
        slow = begin(producer.send(TOPIC, "slow:1"))
        await settle()
        going.set()
        await asyncio.gather(slow, *tasks)
        tasks.clear()
        assert logged(opened) == ["outer", "slow:1", "late"]


@scenario
async def test_serializer_may_use_another_producer() -> None:
    async def inside(_: Producer) -> None:
        await other.send(TOPIC, b"other")

    serializer = Sending(inside)
    async with (
        open_cluster() as opened,
        Producer(opened.bootstrap_servers) as other,
        Producer(opened.bootstrap_servers, value_serializer=serializer) as producer,
    ):
        serializer.producer = producer
        await producer.send(TOPIC, "outer")
        assert logged(opened) == ["other", "outer"]


@scenario
async def test_two_topics_that_wait_for_each_other_fail_in_time() -> None:
    async def nested(value: str) -> bytes:
        await asyncio.sleep(0.1)
        if value == "outer orders":
            await producer.send("acquaintance", "inner")
        if value == "outer acquaintance":
            await producer.send(TOPIC, "inner")
        return value.encode()

    async with (
        open_cluster() as opened,
        Producer(opened.bootstrap_servers, value_serializer=nested, max_block_ms=5_000) as producer,
    ):
        began = now()
        outcomes = await asyncio.gather(
            producer.send(TOPIC, "outer orders"),
            producer.send("acquaintance", "outer acquaintance"),
            return_exceptions=True,
        )
        assert all(isinstance(each, SerializationError) for each in outcomes)
        assert now() - began < 6
        await producer.send(TOPIC, "next")


@pytest.mark.parametrize("ends", [True, False])
@scenario
async def test_call_ends_when_a_record_from_inside_hangs(ends: bool) -> None:
    async def inside(producer: Producer) -> None:
        task = asyncio.ensure_future(producer.send(TOPIC, "hung"))
        tasks.append(task)
        await asyncio.wait([task], timeout=1 if ends else None)

    serializer = Sending(inside)
    async with (
        open_cluster() as opened,
        Producer(opened.bootstrap_servers, value_serializer=serializer, max_block_ms=5_000) as producer,
    ):
        serializer.producer = producer
        began = now()
        [outcome] = await asyncio.gather(producer.send(TOPIC, "outer"), return_exceptions=True)
        assert isinstance(outcome, BufferTimeout if ends else SerializerTimeout)
        await asyncio.wait(tasks)
        assert isinstance(tasks.pop().exception(), SerializerTimeout)
        assert now() - began < 6
        await producer.send(TOPIC, "next")
        assert logged(opened) == ["next"]


@scenario
async def test_cancelling_the_outer_call_withdraws_both() -> None:
    async def inside(producer: Producer) -> None:
        await producer.send(TOPIC, "hung")

    serializer = Sending(inside)
    async with (
        open_cluster() as opened,
        Producer(opened.bootstrap_servers, value_serializer=serializer) as producer,
    ):
        serializer.producer = producer
        outer = begin(producer.send(TOPIC, "outer"))
        await settle()
        outer.cancel()
        await producer.send(TOPIC, "next")
        assert outer.cancelled()
        assert logged(opened) == ["next"]
        assert producer.metrics()["producer"]["calls_waiting"] == 0


@scenario
async def test_record_from_inside_may_name_a_new_partition() -> None:
    async def inside(producer: Producer) -> None:
        with pytest.raises(ValueError, match="partition=7"):
            await producer.send(TOPIC, "nowhere", partition=7)
        await producer.send(TOPIC, "in 0", partition=0)

    log = await run(inside, lambda producer: producer.send(TOPIC, "outer"))
    assert log == ["before", "in 0", "outer", "behind"]
