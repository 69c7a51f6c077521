"""Partitions of records, and the components that choose them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from aioproducer import (
    Murmur3Partitioner,
    ProducerError,
    RoundRobinPartitioner,
)
from aioproducer._core.murmur2 import murmur2
from tests.scenarios.rig import TOPIC, producing, scenario, values


class TestPartitioners:
    @scenario
    async def test_keys_land_where_the_jvm_client_puts_them(self) -> None:
        async with producing(partitions=7) as (producer, _):
            for number in range(20):
                key = b"customer-%d" % number
                sent = await producer.send(TOPIC, b"v", key=key)
                assert sent.partition == (murmur2(key) & 0x7FFFFFFF) % 7

    @scenario
    async def test_explicit_partition_wins(self) -> None:
        async with producing(partitions=7) as (producer, _):
            assert (await producer.send(TOPIC, b"v", key=b"k", partition=5)).partition == 5

    @scenario
    async def test_round_robin_chooses_partitions_in_turn(self) -> None:
        async with producing(partitions=3, partitioner=RoundRobinPartitioner()) as (producer, _):
            sent = [await producer.send(TOPIC, b"v") for _ in range(6)]
            assert [each.partition for each in sent] == [0, 1, 2, 0, 1, 2]

    @scenario
    async def test_murmur3_is_another_one(self) -> None:
        async with (
            producing(partitions=50) as (default, _),
            producing(partitions=50, partitioner=Murmur3Partitioner()) as (other, _),
        ):
            keys = [b"%d" % number for number in range(20)]
            ours = [(await default.send(TOPIC, b"v", key)).partition for key in keys]
            theirs = [(await other.send(TOPIC, b"v", key)).partition for key in keys]
            assert ours != theirs
            assert theirs == [(await other.send(TOPIC, b"v", key)).partition for key in keys]

    @scenario
    async def test_partitioner_may_be_a_function_of_other_clients(self) -> None:
        asked: list[tuple[bytes | None, Sequence[int], Sequence[int]]] = []

        def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
            asked.append((key, partitions, available))
            return 2 if key else 1

        async with producing(partitions=3, partitioner=choose) as (producer, _):
            assert (await producer.send(TOPIC, b"v", key=b"k")).partition == 2
            assert (await producer.send(TOPIC, b"v")).partition == 1
            result = await producer.send_many(TOPIC, [b"a", b"b"], keys=[b"k", None])
            assert [result.partition(0), result.partition(1)] == [2, 1]
            assert asked[0] == (b"k", [0, 1, 2], [0, 1, 2])

    @scenario
    async def test_partitioner_may_be_a_class(self) -> None:
        class ByLength:
            keyless_is_sticky: ClassVar[bool] = True

            def partition(
                self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
            ) -> int | None:
                return None if key is None else len(key) % partition_count

        async with producing(partitions=3, partitioner=ByLength()) as (producer, _):
            assert [(await producer.send(TOPIC, b"v", key=b"k" * size)).partition for size in (1, 2, 3)] == [
                1,
                2,
                0,
            ]

    @pytest.mark.parametrize("chosen", [-1, 3, None, "0"])
    @scenario
    async def test_failing_partitioner_fails_the_call(self, chosen: Any) -> None:
        async with producing(
            acquainted=False,
            partitions=3,
            partitioner=lambda *_: chosen,
        ) as (producer, cluster):
            for _ in range(2):
                with pytest.raises(
                    ProducerError, match="the partitioner failed for a record of 'orders'"
                ) as raised:
                    await producer.send(TOPIC, b"v")
                assert raised.value.__cause__ is not None
            assert [values(cluster, partition) for partition in range(3)] == [[], [], []]

    @scenario
    async def test_keys_may_be_ignored(self) -> None:
        async with producing(partitions=5, partitioner_ignore_keys=True, linger_ms=100) as (producer, _):
            futures = [producer.send_nowait(TOPIC, b"v", key=b"%d" % number) for number in range(10)]
            await producer.flush()
            assert len({(await future).partition for future in futures}) == 1


class TestSlowBroker:
    """Three brokers with as many partitions each, and records without keys; the third takes its time, one by one."""

    async def shares(self, *, partitions: int = 3, slow_s: float = 0.1, **options: Any) -> list[float]:
        """Return which share of records each broker got."""
        async with producing(brokers=3, partitions=partitions, **options) as (producer, cluster):
            random.seed(1)
            for node, pause_s in ((1, 0.002), (2, 0.002), (3, slow_s)):
                cluster.on("produce", node=node, times=None).delay(pause_s)
            sent = []
            for _ in range(1_000):
                sent += [producer.send_nowait(TOPIC, bytes(100)) for _ in range(8)]
                await asyncio.sleep(8 / 4_000)
            went = Counter(each.partition % 3 for each in await asyncio.gather(*sent))
        return [went[broker] / len(sent) for broker in range(3)]

    @pytest.mark.parametrize("options", [{}, {"linger_ms": 0}, {"batch_size": 16_384, "linger_ms": 5}])
    @scenario
    async def test_slow_broker_gets_no_more_than_its_share(self, options: dict[str, Any]) -> None:
        fast, also_fast, slow = await self.shares(**options)
        assert slow <= 0.33
        assert min(fast, also_fast) > 0.3

    @pytest.mark.parametrize("slow_s", [0.02, 0.1])
    @pytest.mark.parametrize("options", [{}, {"linger_ms": 0}])
    @scenario
    async def test_slow_broker_has_a_small_share_of_many_partitions(
        self, options: dict[str, Any], slow_s: float
    ) -> None:
        fast, also_fast, slow = await self.shares(partitions=12, slow_s=slow_s, **options)
        assert 0 < slow <= 0.1, "it was a quarter when backlogs alone counted"
        assert min(fast, also_fast) > 0.3

    @scenario
    async def test_brokers_that_are_equally_slow_get_the_same(self) -> None:
        async with producing(brokers=3, partitions=12) as (producer, cluster):
            random.seed(1)
            cluster.on("produce", times=None).delay(0.05)
            sent = []
            for _ in range(1_000):
                sent += [producer.send_nowait(TOPIC, bytes(100)) for _ in range(8)]
                await asyncio.sleep(8 / 4_000)
            went = Counter(each.partition % 3 for each in await asyncio.gather(*sent))
        assert min(went.values()) / len(sent) > 0.25

    @scenario
    async def test_recovered_broker_gets_its_share(self) -> None:
        async with producing(brokers=3, partitions=12) as (producer, cluster):
            random.seed(1)
            for node in (1, 2):
                cluster.on("produce", node=node, times=None).delay(0.002)
            slow = cluster.on("produce", node=3, times=None).delay(0.1)
            went = []
            for _ in range(2):
                sent = []
                for _ in range(1_000):
                    sent += [producer.send_nowait(TOPIC, bytes(100)) for _ in range(8)]
                    await asyncio.sleep(8 / 4_000)
                went.append(Counter(each.partition % 3 for each in await asyncio.gather(*sent)))
                slow.remove()
        assert went[0][2] < 0.1 * went[0].total()
        assert went[1][2] > 0.25 * went[1].total()

    @scenario
    async def test_slow_broker_has_a_fair_share_without_adaptation(self) -> None:
        *_, slow = await self.shares(partitioner_adaptive_partitioning_enable=False)
        assert slow <= 0.5, "by chance; before bytes were counted it was 0.97"
