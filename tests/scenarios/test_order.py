"""Records of one partition are appended, and stay, in the order of the calls."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import BufferFull, MetadataUnavailable, Producer, RecordMetadata
from aioproducer.errors import BrokerError, NotEnoughReplicas, NotLeaderOrFollower, RequestTimedOut
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, cluster as open_cluster, producing, scenario, settle, values


class TestWhileACallWaits:
    @scenario
    async def test_later_calls_for_the_topic_queue_behind_it(self) -> None:
        async with producing(acquainted=False) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.5)
            await asyncio.gather(
                *(producer.send(TOPIC, b"%d" % number) for number in range(10)),
                producer.send_many(TOPIC, [b"many"]),
                producer.send(TOPIC, b"last"),
            )
            assert values(cluster) == [*(b"%d" % number for number in range(10)), b"many", b"last"]

    @scenario
    async def test_send_nowait_raises_while_a_call_waits(self) -> None:
        async with producing(buffer_memory=1_000, linger_ms=0) as (producer, cluster):
            cluster.on("produce").delay(1.0)
            first = producer.send_nowait(TOPIC, b"1" * 700)
            waiting = asyncio.create_task(producer.send(TOPIC, b"2" * 700))
            await settle()
            with pytest.raises(BufferFull, match="behind 1 earlier call for 'orders'"):
                _ = producer.send_nowait(TOPIC, b"3")
            await first
            await waiting
            await producer.send_nowait(TOPIC, b"4")
            assert values(cluster) == [b"1" * 700, b"2" * 700, b"4"]

    @scenario
    async def test_send_nowait_raises_for_an_unknown_topic(self) -> None:
        async with producing(acquainted=False) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.5)
            waiting = asyncio.create_task(producer.send(TOPIC, b"1"))
            await settle()
            with pytest.raises(MetadataUnavailable):
                _ = producer.send_nowait(TOPIC, b"2")
            await waiting

    @scenario
    async def test_waiting_call_delays_no_other_topic(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("metadata", topic="slow", times=None).drop()
            waiting = asyncio.create_task(producer.send("slow", b"1"))
            await settle()
            await producer.send(TOPIC, b"2")
            assert not waiting.done()
            waiting.cancel()
            await asyncio.wait([waiting])

    @scenario
    async def test_next_call_proceeds_when_a_waiting_call_times_out(self) -> None:
        async with producing(acquainted=False) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.5)
            hasty = asyncio.create_task(producer.send(TOPIC, b"hasty", timeout_s=0.2))
            patient = asyncio.create_task(producer.send(TOPIC, b"patient"))
            with pytest.raises(TimeoutError):
                await hasty
            assert (await patient).offset == 0
            assert values(cluster) == [b"patient"]


class TestRacing:
    @scenario
    async def test_tasks_that_race_for_a_partition_each_keep_their_order(self) -> None:
        async with producing(buffer_memory=2_000, batch_size=300, linger_ms=1) as (producer, cluster):

            async def write(name: str) -> list[RecordMetadata]:
                return [
                    await producer.send(TOPIC, f"{name}{number:02}".encode() * 20) for number in range(30)
                ]

            outcomes = await asyncio.gather(write("a"), write("b"))
            log = [str(value)[2:5] for value in values(cluster)]
            assert len(log) == 60
            for name, sent in zip("ab", outcomes, strict=True):
                mine = [offset for offset, value in enumerate(log) if value[0] == name]
                assert [each.offset for each in sent] == mine
                assert [log[offset] for offset in mine] == sorted(log[offset] for offset in mine)

    @scenario
    async def test_concurrent_calls_are_appended_in_order(self) -> None:
        async with producing(buffer_memory=5_000, batch_size=500) as (producer, cluster):
            sending = [producer.send(TOPIC, b"%04d" % number) for number in range(1_000)]
            sent = await asyncio.gather(*sending)
            assert [each.offset for each in sent] == list(range(1_000))
            assert values(cluster) == [b"%04d" % number for number in range(1_000)]


class TestRetries:
    @for_each("error", [NotLeaderOrFollower, NotEnoughReplicas, RequestTimedOut])
    @for_each("number_struck", [0, 1, 4])
    @scenario
    async def test_five_in_flight_stay_in_order(self, error: type[BrokerError], number_struck: int) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            await producer.send(TOPIC, b"first")  # from here on five may be in flight
            fault = cluster.on("produce", topic=TOPIC, after=number_struck).answer(error)
            cluster.on("produce", topic=TOPIC, times=2).delay(0.2)
            futures = []
            for number in range(8):
                futures.append(producer.send_nowait(TOPIC, b"%d" % number))
                await settle()
            sent = await asyncio.gather(*futures)
            assert fault.hits == 1
            assert [each.offset for each in sent] == list(range(1, 9))
            assert values(cluster) == [b"first", *(b"%d" % number for number in range(8))]

    @pytest.mark.parametrize("before_append", [True, False])
    @scenario
    async def test_lost_connection_keeps_order_without_duplicates(self, *, before_append: bool) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            await producer.send(TOPIC, b"first")
            cluster.on("produce", topic=TOPIC, after=2).close(before_append=before_append)
            futures = []
            for number in range(8):
                futures.append(producer.send_nowait(TOPIC, b"%d" % number))
                await settle()
            await asyncio.gather(*futures)
            assert values(cluster) == [b"first", *(b"%d" % number for number in range(8))]

    @scenario
    async def test_moved_leader_with_five_in_flight_keeps_order(self) -> None:
        async with producing(brokers=2, linger_ms=0) as (producer, cluster):
            await producer.send(TOPIC, b"first")
            cluster.on("produce", topic=TOPIC).delay(0.2)
            futures = []
            for number in range(8):
                futures.append(producer.send_nowait(TOPIC, b"%d" % number))
                await settle()
            cluster.move_leader(TOPIC, 0, to_broker=2)
            sent = await asyncio.gather(*futures)
            assert [each.offset for each in sent] == list(range(1, 9))
            assert set(cluster.produce_requests(TOPIC, 0)) == {1, 2}
            assert values(cluster)[1:] == [b"%d" % number for number in range(8)]


class TestWithoutIdempotence:
    @scenario
    async def test_partition_has_one_request_in_flight_without_idempotence(self) -> None:
        async with producing(partitions=2, enable_idempotence=False, linger_ms=0) as (producer, cluster):
            arrived = cluster.on("produce", topic=TOPIC, times=None)
            cluster.on("produce", topic=TOPIC, partition=0, times=1).delay(1.0)
            futures = []
            for number in range(4):
                futures.append(producer.send_nowait(TOPIC, b"%d" % number, partition=0))
                await settle()
            assert arrived.hits == 1
            await asyncio.gather(*futures)
            assert values(cluster) == [b"0", b"1", b"2", b"3"]

    @scenario
    async def test_partitions_are_in_flight_side_by_side(self) -> None:
        async with producing(
            brokers=2,
            partitions=2,
            enable_idempotence=False,
            linger_ms=0,
        ) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, partition=0).delay(1.0)
            slow = producer.send_nowait(TOPIC, b"slow", partition=0)
            await producer.send(TOPIC, b"quick", partition=1)
            assert not slow.done()
            await slow

    @scenario
    async def test_retry_is_not_overtaken_without_idempotence(self) -> None:
        async with producing(enable_idempotence=False, linger_ms=0) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, times=2).answer(NotEnoughReplicas)
            futures = []
            for number in range(4):
                futures.append(producer.send_nowait(TOPIC, b"%d" % number))
                await settle()
            await asyncio.gather(*futures)
            assert values(cluster) == [b"0", b"1", b"2", b"3"]


@scenario
async def test_producers_of_one_loop_are_independent() -> None:
    async with open_cluster() as cluster, producing() as (other, elsewhere):
        async with Producer(cluster.bootstrap_servers) as producer:
            await asyncio.gather(producer.send(TOPIC, b"here"), other.send(TOPIC, b"there"))
        assert values(cluster) == [b"here"]
        assert values(elsewhere) == [b"there"]
