from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aioproducer import Producer
from aioproducer.cli.demo.events import Events
from aioproducer.cli.demo.measure import Measured, send_in_bulk, send_one_by_one
from aioproducer.errors import InvalidRecord, SendManyError
from aioproducer.testing import Cluster
from aioproducer.types import RecordMetadata

EVENTS = Events.load(60)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics={"clicks": 2}, transport="memory") as cluster:
        yield cluster


@pytest.fixture
async def producer(cluster: Cluster) -> AsyncIterator[Producer]:
    async with Producer(cluster.bootstrap_servers, linger_ms=1, compression_type="zstd") as producer:
        yield producer


def measured(latencies_s: list[float]) -> Measured:
    return Measured(
        seconds=1.0,
        batches=1,
        bytes_before_compression=300,
        bytes_sent=100,
        acknowledged=[],
        latencies_s=latencies_s,
    )


def everything(cluster: Cluster) -> dict[tuple[int, int], bytes | None]:
    return {
        (partition, record.offset): record.value
        for partition in range(2)
        for record in cluster.records("clicks", partition)
    }


@pytest.mark.parametrize("send", [send_one_by_one, send_in_bulk])
async def test_all_events_are_sent_and_acknowledged_in_their_order(
    cluster: Cluster, producer: Producer, send: Callable[[Producer, str, Events], Awaitable[Measured]]
) -> None:
    part = await send(producer, "clicks", EVENTS)
    assert part.records == len(EVENTS) == len(part.acknowledged)
    in_log = everything(cluster)
    assert [in_log[where.partition, where.offset] for where in part.acknowledged] == EVENTS.values
    assert part.seconds > 0


async def test_what_is_counted_is_of_this_part_alone(cluster: Cluster, producer: Producer) -> None:
    await send_in_bulk(producer, "clicks", EVENTS.part(0, 20))
    batches_before = sum(len(cluster.batches("clicks", partition)) for partition in range(2))
    part = await send_in_bulk(producer, "clicks", EVENTS.part(20, 60))
    batches = [batch for partition in range(2) for batch in cluster.batches("clicks", partition)]
    assert part.batches == len(batches) - batches_before
    counted = producer.metrics()["producer"]
    assert 0 < part.bytes_sent < counted["bytes_delivered"]
    assert part.bytes_sent < part.bytes_before_compression < counted["bytes_before_compression"]


async def test_each_call_is_timed_when_records_are_sent_one_by_one(producer: Producer) -> None:
    part = await send_one_by_one(producer, "clicks", EVENTS, tasks=7)
    assert len(part.latencies_s) == len(EVENTS)
    assert list(part.latencies_s) == sorted(part.latencies_s)
    assert 0 < part.latencies_s[0] <= part.latencies_s[-1] < part.seconds


async def test_as_many_tasks_as_asked_for_wait_at_a_time(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = producer.send
    waiting: list[int] = [0]

    async def counted_send(topic: str, value: bytes, key: bytes) -> RecordMetadata:
        waiting.append(waiting[-1] + 1)
        acknowledged = await send(topic, value, key)
        waiting.append(waiting[-1] - 1)
        return acknowledged

    monkeypatch.setattr(producer, "send", counted_send)
    await send_one_by_one(producer, "clicks", EVENTS, tasks=7)
    assert max(waiting) == 7


async def test_the_first_failure_is_raised_as_it_is(cluster: Cluster, producer: Producer) -> None:
    cluster.on("produce", times=None).answer(InvalidRecord)
    with pytest.raises(InvalidRecord):
        await send_one_by_one(producer, "clicks", EVENTS)
    with pytest.raises(SendManyError):
        await send_in_bulk(producer, "clicks", EVENTS)


@pytest.mark.parametrize(
    ("share", "latency_s"), [(0.001, 1.0), (0.25, 1.0), (0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (1.0, 4.0)]
)
def test_a_percentile_is_a_latency_that_was_measured(share: float, latency_s: float) -> None:
    assert measured([1.0, 2.0, 3.0, 4.0]).latency_s(share) == latency_s
    assert measured([4.0]).latency_s(share) == 4.0


def test_the_compression_ratio_is_how_many_times_smaller_the_batches_were() -> None:
    assert measured([]).compression_ratio == 3.0
