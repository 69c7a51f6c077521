"""The delivery timeout ends a record in every state, and reports whether it may be in the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioproducer import DeliveryTimeout, MetadataTimeout, Producer, SendManyError
from aioproducer.errors import NotEnoughReplicas, RequestTimedOut
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.rig import TICK_S, TOPIC, now, producing, scenario, values

OPTIONS: dict[str, Any] = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 2_000, "linger_ms": 0}
DELIVERY_S = 3.0


async def expires(future: asyncio.Future[Any], began_at: float) -> DeliveryTimeout:
    """Check that *future* fails by its deadline and one tick; return why."""
    with pytest.raises(DeliveryTimeout) as raised:
        await future
    assert DELIVERY_S <= now() - began_at <= DELIVERY_S + TICK_S + 1e-6
    return raised.value


async def pause(producer: Producer, cluster: Cluster, ms: int) -> None:
    """Throttle the client, so that the next record is written late and expires before its request does."""
    cluster.on("produce", topic=TOPIC).throttle(ms)
    await producer.send(TOPIC, b"pause")


@scenario
async def test_record_without_connection_expires_unsent() -> None:
    async with producing(**OPTIONS) as (producer, cluster):
        await cluster.stop_broker(1)
        began_at = now()
        error = await expires(producer.send_nowait(TOPIC, b"v"), began_at)
        assert not error.possibly_persisted
        assert "never sent" in str(error)
        assert "never sent" in str(error)
        await cluster.start_broker(1)
        assert (await producer.send(TOPIC, b"next")).offset == 0


@scenario
async def test_record_without_leader_expires_unsent() -> None:
    async with producing(brokers=2, partitions=2, **OPTIONS) as (producer, cluster):
        await cluster.stop_broker(2)
        await asyncio.sleep(1)
        began_at = now()
        error = await expires(producer.send_nowait(TOPIC, b"v", partition=1), began_at)
        assert not error.possibly_persisted
        await producer.send(TOPIC, b"elsewhere", partition=0)


@scenario
async def test_record_in_flight_expires_as_possibly_persisted() -> None:
    async with producing(**OPTIONS) as (producer, cluster):
        await pause(producer, cluster, 1_500)
        cluster.on("produce", topic=TOPIC).delay(5.0)
        began_at = now()
        error = await expires(producer.send_nowait(TOPIC, b"v"), began_at)
        assert error.possibly_persisted
        assert "has not answered" in str(error)


@scenario
async def test_record_in_backoff_expires_with_its_last_error() -> None:
    async with producing(
        **OPTIONS,
        retry_backoff_ms=2_000,
        retry_backoff_max_ms=5_000,
    ) as (producer, cluster):
        cluster.on("produce", topic=TOPIC, times=None).answer(NotEnoughReplicas)
        began_at = now()
        error = await expires(producer.send_nowait(TOPIC, b"v"), began_at)
        assert not error.possibly_persisted, "every attempt was refused"
        assert isinstance(error.__cause__, NotEnoughReplicas)
        assert "last error: NotEnoughReplicas" in str(error)


@scenario
async def test_expiry_is_uncertain_after_one_uncertain_attempt() -> None:
    async with producing(**OPTIONS) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).answer(RequestTimedOut, before_append=False)
        cluster.on("produce", topic=TOPIC, times=None).answer(NotEnoughReplicas)
        error = await expires(producer.send_nowait(TOPIC, b"v"), now())
        assert error.possibly_persisted
        assert values(cluster) == [b"v"]


@scenario
async def test_record_waiting_for_metadata_expires_at_its_deadline() -> None:
    async with producing(**OPTIONS, max_block_ms=60_000) as (producer, cluster):
        cluster.on("metadata", topic="slow", times=None).drop()
        began_at = now()
        with pytest.raises(MetadataTimeout):
            await producer.send("slow", b"v")
        assert now() - began_at == pytest.approx(DELIVERY_S)


@scenario
async def test_delivery_timeout_includes_time_spent_waiting() -> None:
    async with producing(acquainted=False, **OPTIONS) as (producer, cluster):
        cluster.on("metadata", topic=TOPIC).delay(0.9)
        began_at = now()
        future = await producer.enqueue(TOPIC, b"v")
        assert now() - began_at >= 0.9
        cluster.on("produce", times=None).answer(NotEnoughReplicas)
        await expires(future, began_at)


@scenario
async def test_batch_expires_with_its_oldest_record() -> None:
    async with producing(**OPTIONS | {"linger_ms": 1_000}) as (producer, cluster):
        await cluster.stop_broker(1)
        began_at = now()
        first = producer.send_nowait(TOPIC, b"first")
        await asyncio.sleep(0.8)
        second = producer.send_nowait(TOPIC, b"second")
        await expires(first, began_at)
        assert isinstance(second.exception(), DeliveryTimeout)
        assert second.exception() is not first.exception()


@scenario
async def test_expired_batch_returns_its_sequence() -> None:
    async with producing(**OPTIONS) as (producer, cluster):
        await producer.send(TOPIC, b"a")
        await cluster.stop_broker(1)
        with pytest.raises(DeliveryTimeout):
            await producer.send(TOPIC, b"expired")
        await cluster.start_broker(1)
        await producer.send(TOPIC, b"b")
        batches = cluster.batches(TOPIC, 0)
        assert [(batch.producer_epoch, batch.base_sequence) for batch in batches] == [(0, 0), (0, 1)]


@scenario
async def test_abandoned_batch_keeps_sequences_in_step() -> None:
    async with producing(**OPTIONS) as (producer, cluster):
        await pause(producer, cluster, 1_500)
        cluster.on("produce", topic=TOPIC).delay(1.8)
        with pytest.raises(DeliveryTimeout):
            await producer.send(TOPIC, b"abandoned")
        sent = [await producer.send(TOPIC, b"%d" % number) for number in range(3)]
        log = values(cluster)
        assert [log[each.offset] for each in sent] == [b"0", b"1", b"2"]
        assert b"abandoned" in log
        assert len(log) == len(set(log)), "nothing twice"


@scenario
async def test_request_timeout_ends_the_connection_and_retries() -> None:
    async with producing(
        request_timeout_ms=1_000,
        delivery_timeout_ms=60_000,
        linger_ms=0,
    ) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).drop()
        began_at = now()
        sent = await producer.send(TOPIC, b"v")
        assert sent.offset == 0
        assert 1 <= now() - began_at <= 1.5


async def outage(
    send: Callable[[Producer, int], Awaitable[Any]], *, away_s: float, **options: Any
) -> list[float]:
    """Make a call per second while a broker is away for *away_s*, and return the durations of failed calls."""
    ages: list[float] = []

    async def one(producer: Producer, number: int) -> None:
        called_at = now()
        try:
            await send(producer, number)
        except (DeliveryTimeout, SendManyError):
            ages.append(now() - called_at)

    async with producing(brokers=2, partitions=1, **options) as (producer, cluster):
        await producer.send(TOPIC, b"warm")
        await cluster.stop_broker(1)
        calls = []
        for second in range(int(away_s) + 5):
            calls.append(asyncio.create_task(one(producer, second)))
            await asyncio.sleep(1)
            if second + 1 == away_s:
                await cluster.start_broker(1)
        await asyncio.wait(calls)
        assert len(set(values(cluster))) == len(values(cluster)) == 1 + len(calls) - len(ages)
    return ages


@pytest.mark.parametrize(
    "send",
    [
        lambda producer, n: producer.send(TOPIC, b"%d" % n),
        lambda producer, n: producer.send(TOPIC, b"%d" % n, key=b"k"),
        lambda producer, n: producer.send(TOPIC, b"%d" % n, headers=[("a", b"b")]),
        lambda producer, n: producer.send(TOPIC, b"%d" % n, partition=0),
        lambda producer, n: producer.send(TOPIC, b"%d" % n, timeout_s=100),
        lambda producer, n: producer.send_nowait(TOPIC, b"%d" % n),
        lambda producer, n: producer.send_many(TOPIC, [b"%d" % n]),
    ],
)
@for_each("options", [{}, {"acks": 1}, {"linger_ms": 200, "batch_size": 1_000_000}])
@scenario
async def test_record_has_its_whole_time_in_an_outage(
    send: Callable[[Producer, int], Awaitable[Any]], options: dict[str, Any]
) -> None:
    ages = await outage(send, away_s=40, delivery_timeout_ms=30_000, request_timeout_ms=2_000, **options)
    assert 8 <= len(ages) <= 13
    assert min(ages) >= 28.5


@scenario
async def test_deadline_of_send_many_counts_from_the_call() -> None:
    async with producing(acquainted=False, **OPTIONS) as (producer, cluster):
        cluster.on("metadata", topic=TOPIC).delay(0.9)
        cluster.on("produce", times=None).answer(NotEnoughReplicas)
        began_at = now()
        with pytest.raises(SendManyError):
            await producer.send_many(TOPIC, [b"v"] * 3)
        assert DELIVERY_S <= now() - began_at <= DELIVERY_S + TICK_S + 1e-6


@scenario
async def test_record_after_wait_for_memory_has_its_own_deadline() -> None:
    async with producing(**OPTIONS, buffer_memory=2_000, max_block_ms=60_000) as (producer, cluster):
        await cluster.stop_broker(1)
        early = producer.send_nowait(TOPIC, bytes(1_500))
        await asyncio.sleep(0.5)
        waiting = asyncio.create_task(producer.enqueue(TOPIC, bytes(1_200)))
        await asyncio.wait([early])  # the waiting call gets its memory
        late_at = now()
        assert late_at - 3 == pytest.approx(0, abs=0.3)
        late = producer.send_nowait(TOPIC, b"late")
        with pytest.raises(DeliveryTimeout):
            await (await waiting)
        assert now() - 0.5 == pytest.approx(DELIVERY_S, abs=0.3)
        assert not late.done()
        await expires(late, late_at)


@pytest.mark.parametrize("calls", [2_000, 16_000])
@pytest.mark.parametrize("is_out", [False, True])
@scenario
async def test_calls_of_one_batch_may_all_reach_their_own_deadline(calls: int, is_out: bool) -> None:
    async with producing(linger_ms=0, batch_max_size=1_000_000) as (producer, cluster):
        if is_out:
            cluster.on("produce", topic=TOPIC, times=None).delay(20)
        else:
            await cluster.stop_broker(1)
        cpu_s = time.process_time()
        futures = [
            await producer.enqueue(TOPIC, b"x", timeout_s=1 + number / calls) for number in range(calls)
        ]
        called_at = now()
        await asyncio.wait(futures[: calls // 2])
        assert now() - called_at < 1.6
        await asyncio.wait(futures)
        cpu_s = time.process_time() - cpu_s
        errors = [each.exception() for each in futures]
        assert {type(each) for each in errors} == {DeliveryTimeout}
        assert cpu_s < 1 + calls * 0.5e-3, "linear: the square would be several times as much"


@scenario
async def test_records_expire_in_time_when_a_broker_never_returns() -> None:
    async with producing(
        brokers=2,
        partitions=2,
        **OPTIONS,
        buffer_memory=3_000,
        max_block_ms=10_000,
    ) as (producer, cluster):
        await cluster.stop_broker(2)
        sending = []
        for number in range(60):
            sending.append(
                (now(), asyncio.create_task(producer.send(TOPIC, b"x" * 100, partition=number % 2)))
            )
            await asyncio.sleep(0.05)
        for called_at, task in sending:
            await asyncio.wait([task], timeout=called_at + DELIVERY_S + TICK_S + 1e-6 - now())
            assert task.done()
        delivered = [task.exception() is None for _, task in sending]
        assert delivered[0::2] == [True] * 30
        assert delivered[1::2] == [False] * 30


@scenario
async def test_first_record_of_a_producer_expires() -> None:
    """The call waits for metadata, so its own deadline is just before that of its batch."""
    async with producing(acquainted=False, **OPTIONS) as (producer, cluster):
        await asyncio.sleep(0.05)  # both deadlines are in the same tick
        cluster.on("metadata").delay(0.01)
        cluster.on("produce", times=None).delay(60.0)
        cluster.on("init_producer_id", times=None).delay(60.0)
        await expires(asyncio.ensure_future(producer.send(TOPIC, b"v")), now())
