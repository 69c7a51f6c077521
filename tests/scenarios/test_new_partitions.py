"""Records for a missing or new partition: other partitions are unaffected, and the order of calls is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioproducer import MetadataTimeout, Producer, ProducerClosed
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.faults import hostile
from tests.scenarios.rig import TOPIC, now, producing, scenario, settle, values

KEY = b"3"
"""Goes to partition 1 of two."""

MISSING = 99
LASTS_S = 0.6
WRONG: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "send": lambda producer: producer.send(TOPIC, b"wrong", partition=MISSING),
    "with a timeout": lambda producer: producer.send(TOPIC, b"wrong", partition=MISSING, timeout_s=60),
    "enqueue": lambda producer: producer.enqueue(TOPIC, b"wrong", partition=MISSING),
    "send_many": lambda producer: producer.send_many(TOPIC, [b"wrong"] * 10, partition=MISSING),
    "a column": lambda producer: producer.send_many(TOPIC, [b"wrong"] * 2, partitions=[0, MISSING]),
}
wrong_calls = pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))


class Nuisance:
    """Makes a hundred wrong calls per second, and checks that all of them fail."""

    def __init__(self, wrong: Callable[[Producer], Awaitable[object]]) -> None:
        self._wrong = wrong
        self._calls: list[asyncio.Task[None]] = []

    async def go_on(self, producer: Producer) -> None:
        while True:
            self._calls.append(asyncio.create_task(self._call(producer)))
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        assert len(self._calls) > 50
        await asyncio.gather(*self._calls)

    async def _call(self, producer: Producer) -> None:
        with pytest.raises(ValueError, match=rf"={MISSING}: 'orders' has 1 partition, 0$"):
            await self._wrong(producer)


class TestMissingPartition:
    @wrong_calls
    @scenario
    async def test_unknown_partition_delays_no_other_call(
        self, wrong: Callable[[Producer], Awaitable[object]]
    ) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            nuisance = Nuisance(wrong)
            bothering = asyncio.create_task(nuisance.go_on(producer))
            sent, until = 0, now() + LASTS_S
            while now() < until:
                await producer.send(TOPIC, b"right")
                await producer.send_many(TOPIC, [b"right"])
                sent += 2
                await asyncio.sleep(1 / 600)
            bothering.cancel()
            await nuisance.end()
            assert sent >= 0.8 * 1_200 * LASTS_S
            assert values(cluster) == [b"right"] * sent

    @wrong_calls
    @scenario
    async def test_send_nowait_is_unaffected_by_an_unknown_partition(
        self, wrong: Callable[[Producer], Awaitable[object]]
    ) -> None:
        async with producing() as (producer, cluster):
            nuisance = Nuisance(wrong)
            bothering = asyncio.create_task(nuisance.go_on(producer))
            for number in range(150):
                _ = producer.send_nowait(TOPIC, b"%d" % number)
                await asyncio.sleep(0.01)
            bothering.cancel()
            await nuisance.end()
            await producer.flush()
            assert values(cluster) == [b"%d" % number for number in range(150)]

    @scenario
    async def test_unknown_partition_does_not_delay_a_new_topic(self) -> None:
        async with producing(acquainted=False) as (producer, cluster):
            sending = [
                asyncio.create_task(producer.send(TOPIC, b"wrong", partition=MISSING)) for _ in range(50)
            ]
            sending.append(asyncio.create_task(producer.send(TOPIC, b"right")))
            cluster.on("metadata", topic=TOPIC, after=1, times=None).delay(1.0)
            await sending.pop()
            assert now() < 0.5
            outcomes = await asyncio.gather(*sending, return_exceptions=True)
            assert {type(each) for each in outcomes} == {ValueError}
            assert values(cluster) == [b"right"]


async def unknown_to(producer: Producer, cluster: Cluster) -> None:
    """Add a second partition that is missing in the metadata of *producer*."""
    assert await producer.partitions_for(TOPIC) == {0}
    cluster.add_partitions(TOPIC, 2)


class TestNewPartition:
    @scenario
    async def test_new_partition_is_found(self) -> None:
        async with producing() as (producer, cluster):
            await unknown_to(producer, cluster)
            assert (await producer.send(TOPIC, b"v", partition=1)).partition == 1

    @pytest.mark.parametrize("memory", [100_000, 800])
    @scenario
    async def test_calls_for_a_new_partition_keep_their_order(self, memory: int) -> None:
        async with producing(buffer_memory=memory, batch_size=300) as (producer, cluster):
            await unknown_to(producer, cluster)
            calls: list[Awaitable[Any]] = []
            expected: list[bytes] = []
            for number in range(0, 60, 6):
                names = [b"%02d" % each for each in range(number, number + 6)]
                calls += [
                    producer.send(TOPIC, names[0], partition=1),
                    producer.send_many(TOPIC, names[1:3], partition=1),
                    producer.send(TOPIC, names[3], partition=1, timeout_s=60),
                    producer.send_many(TOPIC, [b"another", names[4]], partitions=[0, 1]),
                    producer.enqueue(TOPIC, names[5], partition=1),
                ]
                expected += names
            await asyncio.gather(*calls)
            await producer.flush()
            assert values(cluster, 1) == expected

    @pytest.mark.parametrize("with_code", [False, True])
    @scenario
    async def test_waiting_calls_precede_later_ones_in_a_new_partition(self, with_code: bool) -> None:
        """The first call may use the new partition by number, by key or by chance."""
        options: dict[str, Any] = {
            "batch_size": 0,
            "partitioner_adaptive_partitioning_enable": False,
        }  # chance alone
        if with_code:
            options["value_serializer"] = lambda value: value
        async with producing(linger_ms=0, **options) as (producer, cluster):
            await unknown_to(producer, cluster)
            waiting = [asyncio.create_task(producer.send(TOPIC, b"%d" % n, partition=1)) for n in range(10)]
            await cluster.on("metadata", topic=TOPIC).happened()
            later: list[asyncio.Future[Any]] = []
            while not all(each.done() for each in waiting):
                later.append(producer.send_nowait(TOPIC, b"by key", key=KEY))
                later.append(asyncio.create_task(producer.send_many(TOPIC, [b"keys"], keys=[KEY])))
                later.append(asyncio.create_task(producer.send(TOPIC, b"by number", partition=1)))
                later.append(producer.send_nowait(TOPIC, b"by chance"))
                await asyncio.sleep(0)
            await asyncio.gather(*later)
            log = values(cluster, 1)
            assert [each for each in log if each is not None and each.isdigit()] == [
                b"%d" % n for n in range(10)
            ]
            assert log[:10] == [b"%d" % n for n in range(10)]
            assert {b"by key", b"keys", b"by number", b"by chance"} <= set(log[10:])


SENT: dict[str, Callable[[Producer], Awaitable[Any]]] = {
    "send": lambda producer: producer.send(TOPIC, b"v", key=b"k", partition=1),
    "with a timeout": lambda producer: producer.send(
        TOPIC, b"v", headers={"h": b"1"}, partition=1, timeout_s=60
    ),
    "send_many": lambda producer: producer.send_many(TOPIC, [b"v"], partition=1),
    "a column": lambda producer: producer.send_many(TOPIC, [b"w", b"v"], partitions=[0, 1]),
}


class TestLaggingBrokers:
    @for_each("send", SENT.values())
    @for_each("codec", ["none", "gzip"])
    @scenario
    async def test_lagging_broker_alone_refuses_no_partition(
        self, send: Callable[[Producer], Awaitable[Any]], codec: str
    ) -> None:
        async with producing(brokers=3, compression_type=codec) as (producer, cluster):
            await unknown_to(producer, cluster)
            cluster.on("metadata", topic=TOPIC).rewrite(hostile.lagging(1))
            await send(producer)
            assert values(cluster, 1) == [b"v"]
            assert now() < 1.0

    @pytest.mark.parametrize("send", SENT.values(), ids=list(SENT))
    @scenario
    async def test_answer_from_before_the_call_refuses_no_partition(
        self, send: Callable[[Producer], Awaitable[Any]]
    ) -> None:
        """The answer is made before the partition exists, and arrives during the call."""
        async with producing() as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.5, before_append=False)
            with pytest.raises(ValueError, match="has 1 partition"):
                _ = producer.send_nowait(TOPIC, b"v", partition=1)  # sends the request
            await asyncio.sleep(0.1)
            await unknown_to(producer, cluster)
            await send(producer)
            assert values(cluster, 1) == [b"v"]

    @wrong_calls
    @scenario
    async def test_missing_partition_is_refused_soon(
        self, wrong: Callable[[Producer], Awaitable[object]]
    ) -> None:
        async with producing(brokers=3) as (producer, _):
            with pytest.raises(ValueError, match=rf"={MISSING}: 'orders' has 1 partition, 0$"):
                await wrong(producer)
            assert now() < 0.5


class TestWaitingForPartition:
    """The partition never appears in the metadata."""

    @scenario
    async def test_max_block_and_timeouts_end_the_wait(self) -> None:
        async with producing(max_block_ms=2_000) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC, times=None).drop()
            began_at = now()
            for timeout_s, ends_at in ((0.5, 0.5), (None, 2.5)):
                with pytest.raises(MetadataTimeout):
                    await producer.send(TOPIC, b"v", partition=1, timeout_s=timeout_s)
                assert now() - began_at == pytest.approx(ends_at)
            result = await asyncio.gather(
                producer.send_many(TOPIC, [b"v"], partition=1), return_exceptions=True
            )
            assert "MetadataTimeout" in str(result)
            assert now() - began_at == pytest.approx(4.5)

    @scenario
    async def test_cancelled_calls_leave_nothing_behind(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("metadata", topic=TOPIC, times=None).drop()
            waiting = [
                asyncio.create_task(producer.send(TOPIC, b"v", partition=1)),
                asyncio.create_task(producer.send_many(TOPIC, [b"v"], partition=1)),
            ]
            await settle()
            assert producer.metrics()["producer"]["calls_waiting"] == 2
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)
            assert producer.metrics()["producer"]["calls_waiting"] == 0
            await producer.send(TOPIC, b"next")
            assert values(cluster) == [b"next"]

    @scenario
    async def test_close_waits_for_a_call_for_a_new_partition(self) -> None:
        async with producing() as (producer, cluster):
            await unknown_to(producer, cluster)
            cluster.on("metadata", topic=TOPIC).delay(1.0)
            waiting = asyncio.create_task(producer.send(TOPIC, b"v", partition=1))
            await settle()
            assert await producer.close() == 0
            assert (await waiting).partition == 1

    @scenario
    async def test_close_fails_and_counts_waiting_calls(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("metadata", topic=TOPIC, times=None).drop()
            waiting = asyncio.create_task(producer.send(TOPIC, b"v", partition=1))
            many = asyncio.create_task(producer.send_many(TOPIC, [b"v"] * 5, partition=1))
            await settle()
            assert await producer.close(0) == 6
            with pytest.raises(ProducerClosed):
                await waiting
            assert "5 of 5 records" in str((await asyncio.gather(many, return_exceptions=True))[0])
