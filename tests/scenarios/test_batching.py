"""Times at which records are sent, and the records that share a request."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Literal

import pytest

from aioproducer import Producer, RecordMetadata, SendManyError
from aioproducer._core.acceleration import accelerated
from aioproducer.errors import NotEnoughReplicas, UnsupportedCompressionType
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.rig import (
    TOPIC,
    cluster,
    now,
    producing,
    scenario,
    settle,
    speak_no_newer,
    values,
)

LINGER_S = 0.5


def batches(cluster: Cluster, partition: int = 0) -> list[list[bytes | None]]:
    """Return the values of each batch in a partition's log."""
    return [[record.value for record in batch.records] for batch in cluster.batches(TOPIC, partition)]


class TestLinger:
    @scenario
    async def test_partial_batch_waits_for_its_linger(self) -> None:
        async with producing(linger_ms=500) as (producer, cluster):
            began_at = now()
            first = producer.send_nowait(TOPIC, b"a")
            await asyncio.sleep(LINGER_S * 0.9)
            second = producer.send_nowait(TOPIC, b"b")
            await asyncio.gather(first, second)
            assert now() - began_at == pytest.approx(LINGER_S)
            assert batches(cluster) == [[b"a", b"b"]]

    @scenario
    async def test_full_batch_is_sent_at_once(self) -> None:
        async with producing(linger_ms=500, batch_size=200) as (producer, cluster):
            began_at = now()
            first = producer.send_nowait(TOPIC, b"a" * 100)
            second = producer.send_nowait(TOPIC, b"b" * 100)
            await first
            assert now() == began_at
            await second
            assert now() - began_at == pytest.approx(LINGER_S)
            assert batches(cluster) == [[b"a" * 100], [b"b" * 100]]

    @pytest.mark.parametrize("how", ["flush", "close"])
    @scenario
    async def test_flush_and_close_do_not_wait_for_the_linger(self, how: str) -> None:
        async with producing(linger_ms=500) as (producer, _):
            began_at = now()
            future = producer.send_nowait(TOPIC, b"a")
            await getattr(producer, how)()
            assert future.done()
            assert now() == began_at

    @scenario
    async def test_record_is_sent_at_once_without_linger(self) -> None:
        async with producing(linger_ms=0) as (producer, _):
            began_at = now()
            for _ in range(5):
                await producer.send(TOPIC, b"v")
            assert now() == began_at

    @scenario
    async def test_records_during_a_request_share_the_next_one(self) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(1.0)
            futures = []
            for number in range(10):
                futures.append(producer.send_nowait(TOPIC, b"%d" % number))
                await settle()
            await asyncio.gather(*futures)
            assert len(batches(cluster)) < 10
            assert values(cluster) == [b"%d" % number for number in range(10)]

    @scenario
    async def test_batch_size_zero_sends_each_record_alone(self) -> None:
        async with producing(batch_size=0, linger_ms=500) as (producer, cluster):
            futures = [producer.send_nowait(TOPIC, b"%d" % number) for number in range(3)]
            await producer.flush()
            assert [(await future).offset for future in futures] == [0, 1, 2]
            assert batches(cluster) == [[b"0"], [b"1"], [b"2"]]


class TestGrowing:
    @pytest.mark.parametrize(
        ("options", "largest"),
        [({}, 100), ({"batch_size": 16_384}, 14), ({"max_request_size": 40_000}, 36 if accelerated else 35)],
    )
    @scenario
    async def test_unsendable_batch_grows_unless_batch_size_is_set(
        self, options: dict[str, Any], largest: int
    ) -> None:
        async with producing(max_in_flight_requests_per_connection=1, **options) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(1.0)
            futures = [producer.send_nowait(TOPIC, b"first")]
            await settle()
            futures += [producer.send_nowait(TOPIC, b"%1100d" % number) for number in range(100)]
            await asyncio.gather(*futures)
            assert max(map(len, batches(cluster))) == largest
            assert values(cluster)[1:] == [b"%1100d" % number for number in range(100)]

    @scenario
    async def test_ready_batch_is_sent_as_soon_as_possible(self) -> None:
        async with producing(linger_ms=500) as (producer, cluster):
            began_at = now()
            for number in range(45):
                _ = producer.send_nowait(TOPIC, b"%1100d" % number)
                await settle()
            assert now() == began_at
            assert list(map(len, batches(cluster))) == [15, 15, 15]

    @scenario
    async def test_batch_too_large_for_the_topic_is_split(self) -> None:
        sent = [b"%1100d" % number for number in range(1_000)]
        async with producing() as (producer, cluster):
            cluster.create_topic("small", 1, message_max_bytes=50_000)
            refused = cluster.on("produce", topic="small", times=None)
            assert (await producer.send_many("small", sent)).delivered == 1_000
            assert values(cluster, topic="small") == sent
            before = refused.hits
            assert (await producer.send_many("small", sent[:200])).delivered == 200
            assert refused.hits - before <= 8  # of 28 records or so: no other one is refused
            assert max(len(batch.records) for batch in cluster.batches("small", 0)) <= 45


class TestRequests:
    @scenario
    async def test_lingering_batches_join_a_request_to_their_broker(self) -> None:
        async with producing(brokers=2, partitions=4, linger_ms=500) as (producer, cluster):
            requests = cluster.on("produce", topic=TOPIC, times=None)
            began_at = now()
            futures = []
            for partition in range(4):
                futures.append(producer.send_nowait(TOPIC, b"v", partition=partition))
                await asyncio.sleep(LINGER_S / 10)
            await asyncio.gather(*futures)
            assert requests.hits == 2
            assert now() - began_at == pytest.approx(LINGER_S * 1.1)

    @scenario
    async def test_requests_share_batches_up_to_max_request_size(self) -> None:
        async with producing(partitions=6, max_request_size=1_000, linger_ms=500) as (producer, cluster):
            requests = cluster.on("produce", topic=TOPIC, times=None)
            for partition in range(6):
                _ = producer.send_nowait(TOPIC, b"x" * 300, partition=partition)
            await producer.flush()
            assert requests.hits == 3

    @scenario
    async def test_oversized_batch_is_sent_alone(self) -> None:
        async with producing(
            partitions=3,
            max_request_size=1_000,
            batch_size=3_000,
            linger_ms=500,
        ) as (producer, cluster):
            requests = cluster.on("produce", topic=TOPIC, times=None)
            for _ in range(6):
                _ = producer.send_nowait(TOPIC, b"x" * 300, partition=1)
            for partition in (0, 2):
                _ = producer.send_nowait(TOPIC, b"x", partition=partition)
            await producer.flush()
            assert requests.hits == 2
            assert batches(cluster, 1) == [[b"x" * 300] * 6]

    @scenario
    async def test_partitions_take_turns_in_requests(self) -> None:
        async with producing(
            partitions=3,
            batch_size=0,
            linger_ms=500,
            max_request_size=250,
        ) as (producer, cluster):
            for partition in range(3):
                for _ in range(20):
                    _ = producer.send_nowait(TOPIC, b"x" * 100, partition=partition)
            cluster.on("produce", topic=TOPIC, after=15).drop()  # a standstill, to count
            flushing = asyncio.create_task(producer.flush())
            await settle()
            counts = [len(batches(cluster, partition)) for partition in range(3)]
            assert sum(counts) == 15
            assert max(counts) - min(counts) <= 2
            flushing.cancel()
            await asyncio.wait([flushing])
            await producer.close(0)

    @scenario
    async def test_busy_broker_delays_no_other_broker(self) -> None:
        async with producing(brokers=2, partitions=2, linger_ms=0) as (producer, cluster):
            cluster.freeze_broker(1)
            stuck = producer.send_nowait(TOPIC, b"v", partition=0)
            for _ in range(10):
                await producer.send(TOPIC, b"v", partition=1)
            assert not stuck.done()
            cluster.thaw_broker(1)
            await stuck

    @scenario
    async def test_throttling_broker_receives_no_request(self) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).throttle(2_000)
            await producer.send(TOPIC, b"a")
            began_at = now()
            arrived = cluster.on("produce", topic=TOPIC)
            future = producer.send_nowait(TOPIC, b"b")
            await asyncio.sleep(1.9)
            assert arrived.hits == 0
            await future
            assert now() - began_at == pytest.approx(2.0)

    @scenario
    async def test_retry_waits_for_its_backoff_alone(self) -> None:
        async with producing(partitions=2, retry_backoff_ms=1_000, linger_ms=0) as (producer, cluster):
            cluster.on("produce", partition=0, topic=TOPIC).answer(NotEnoughReplicas)
            began_at = now()
            retried = producer.send_nowait(TOPIC, b"v", partition=0)
            await producer.send(TOPIC, b"v", partition=1)
            assert now() == began_at
            await retried
            assert 0.8 <= now() - began_at <= 1.2


class TestStickiness:
    @scenario
    async def test_keyless_records_share_a_batch_before_switching(self) -> None:
        async with producing(partitions=4, batch_size=480, linger_ms=500) as (producer, cluster):
            futures = [producer.send_nowait(TOPIC, b"x" * 100) for _ in range(40)]
            await producer.flush()
            used = [(await future).partition for future in futures]
            assert all(used[at] == used[at - at % 3] for at in range(len(used))), "three fit into each"
            assert len(set(used)) > 1
            assert sum(len(batches(cluster, partition)) for partition in range(4)) == 14

    @scenario
    async def test_partitions_without_a_leader_are_passed_over(self) -> None:
        async with producing(
            brokers=2,
            partitions=2,
            linger_ms=0,
            metadata_max_age_ms=1_000,
        ) as (producer, cluster):
            await cluster.stop_broker(2)
            await asyncio.sleep(3)
            sent = [await producer.send(TOPIC, b"v") for _ in range(10)]
            assert {each.partition for each in sent} == {0}

    @scenario
    async def test_keyed_records_keep_their_partitions_in_an_outage(self) -> None:
        async with producing(
            brokers=2,
            partitions=2,
            linger_ms=0,
            metadata_max_age_ms=1_000,
        ) as (producer, cluster):
            before = {key: (await producer.send(TOPIC, b"v", b"%d" % key)).partition for key in range(10)}
            await cluster.stop_broker(2)
            await asyncio.sleep(3)
            futures = {key: producer.send_nowait(TOPIC, b"v", b"%d" % key) for key in range(10)}
            await cluster.start_broker(2)
            assert {key: (await future).partition for key, future in futures.items()} == before


class TestCompression:
    @for_each("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    @for_each("size", [10, 2_000])
    @scenario
    async def test_large_batches_are_compressed_in_a_thread_in_order(self, codec: str, size: int) -> None:
        async with producing(compression_type=codec, batch_size=200_000) as (producer, cluster):
            futures = [producer.send_nowait(TOPIC, b"%04d" % number * size) for number in range(60)]
            await asyncio.gather(*futures)
            assert values(cluster) == [b"%04d" % number * size for number in range(60)]
            assert {str(batch.codec) for batch in cluster.batches(TOPIC, 0)} == {codec}
            counters = producer.metrics()["topics"][TOPIC]
            if codec != "none":
                assert counters["bytes_delivered"] < counters["bytes_before_compression"] / 2


@scenario
async def test_idle_producer_schedules_nothing() -> None:
    async with producing(partitions=50) as (producer, cluster):
        await producer.send_many(TOPIC, [b"v"] * 50, partitions=range(50))
        before = cluster.request_count("produce"), cluster.request_count("metadata")
        await asyncio.sleep(60)
        assert (cluster.request_count("produce"), cluster.request_count("metadata")) == before


class TestAdaptiveLinger:
    """The adaptive linger if `linger_ms` is unset."""

    @scenario
    async def test_record_is_sent_at_once_to_an_idle_broker(self) -> None:
        async with producing() as (producer, _):
            for _ in range(3):
                began_at = now()
                await producer.send(TOPIC, b"value")
                assert now() == began_at

    @scenario
    async def test_records_for_a_busy_broker_are_sent_after_its_answer(self) -> None:
        async with producing() as (producer, cluster):
            produced = cluster.on("produce", times=None)
            slow = cluster.on("produce").delay(0.002, before_append=False)
            began_at = now()
            first = producer.send_nowait(TOPIC, b"first")
            await slow.happened()
            await asyncio.gather(
                first, *[producer.send_nowait(TOPIC, b"%d" % number) for number in range(10)]
            )
            assert now() - began_at == pytest.approx(0.002)
            assert produced.hits == 2

    @scenario
    async def test_adaptive_linger_is_at_most_5_ms(self) -> None:
        async with producing() as (producer, cluster):
            await producer.send(TOPIC, b"the leader knows us")
            slow = cluster.on("produce").delay(1.0, before_append=False)
            first = producer.send_nowait(TOPIC, b"first")
            await slow.happened()
            second = producer.send_nowait(TOPIC, b"second")
            await asyncio.sleep(0.004)
            assert producer.metrics()["producer"]["requests_in_flight"] == 1
            await asyncio.sleep(0.002)
            assert producer.metrics()["producer"]["requests_in_flight"] == 2
            await asyncio.gather(first, second)

    @scenario
    async def test_explicit_linger_delays_every_record(self) -> None:
        async with producing(linger_ms=5) as (producer, _):
            began_at = now()
            await producer.send(TOPIC, b"value")
            assert now() - began_at == pytest.approx(0.005)


class TestCompressedSizes:
    """Batches reach `batch_size` after compression if the rate is predictable."""

    @scenario
    async def test_batch_size_follows_the_compression_ratio(
        self,
    ) -> None:
        alike, chance = [bytes(500)] * 10_000, random.Random(1)
        others = [chance.randbytes(500) for _ in range(100)]
        async with producing(compression_type="zstd", batch_size=5_000, linger_ms=5) as (producer, cluster):
            cluster.message_max_bytes = 10_000
            for number, value in enumerate(alike, 1):
                _ = await producer.enqueue(TOPIC, value, partition=0)
                if number % 100 == 0:
                    await producer.flush()
            sizes = [len(batch) for batch in batches(cluster)]
            assert (sizes[0], sizes[-1]) == (9, 100)
            for value in others:
                _ = await producer.enqueue(TOPIC, value, partition=0)
            await producer.flush()
            assert values(cluster, 0) == alike + others
            assert producer.metrics()["producer"]["batch_split_total"] > 0
            assert max(len(batch) for batch in batches(cluster)[-8:]) <= 19, "split until they fit"


class TestSmallTopicLimit:
    """A topic with a small max.message.bytes: batches grow to the limit, and few requests are refused."""

    @pytest.mark.parametrize("codec", ["none", "lz4"])
    @pytest.mark.parametrize("bulk", [False, True], ids=["one by one", "in bulk"])
    @scenario
    async def test_batches_are_nearly_as_large_as_the_topic_allows(
        self, codec: Literal["none", "lz4"], bulk: bool
    ) -> None:
        values_sent = [random.Random(number).randbytes(500) for number in range(3_000)]
        async with (
            cluster(partitions=2, message_max_bytes=5_000, latency_s=0.005) as opened,
            Producer(opened.bootstrap_servers, compression_type=codec, linger_ms=20) as producer,
        ):
            if bulk:
                for start in range(0, 3_000, 100):
                    await producer.send_many(TOPIC, values_sent[start : start + 100], partitions=[0, 1] * 50)
            else:
                for number, value in enumerate(values_sent):
                    _ = await producer.enqueue(TOPIC, value, partition=number % 2)
                    await asyncio.sleep(0.0005)
                await producer.flush()
            batches = [each for partition in range(2) for each in opened.batches(TOPIC, partition)]
            assert sum(len(each.records) for each in batches) == 3_000
            late = [len(each.records) for each in batches if each.base_offset >= 500]
            assert sum(late) / len(late) >= (7 if codec == "none" else 6), (
                "nine fit; codecs have a margin of 5 %"
            )
            assert producer.metrics()["producer"]["batch_split_total"] <= 0.25 * len(batches)

    @scenario
    async def test_limit_does_not_oscillate(self) -> None:
        async with (
            cluster(message_max_bytes=3_000) as opened,
            Producer(opened.bootstrap_servers, linger_ms=100) as producer,
        ):
            splits = []
            for _ in range(12):
                for _ in range(20):
                    await producer.send_many(TOPIC, [b"x" * 1_000] * 20)
                    await asyncio.sleep(6)
                splits.append(producer.metrics()["producer"]["batch_split_total"])
            assert splits[0] <= 10
            assert splits[-1] - splits[0] <= 5, "one larger batch is tried every 5 minutes"

    @scenario
    async def test_raised_limit_is_used(self) -> None:
        async with (
            cluster(message_max_bytes=3_000) as opened,
            Producer(opened.bootstrap_servers, linger_ms=100) as producer,
        ):
            await producer.send_many(TOPIC, [b"x" * 1_000] * 100)
            opened.message_max_bytes = 1_000_000
            for _ in range(20):
                await producer.send_many(TOPIC, [b"x" * 1_000] * 100)
                await asyncio.sleep(60)
            await producer.send_many(TOPIC, [b"x" * 1_000] * 100)
            assert len(opened.batches(TOPIC, 0)[-1].records) > 10

    @scenario
    async def test_lowered_limit_is_followed(self) -> None:
        async with (
            cluster(message_max_bytes=10_000) as opened,
            Producer(opened.bootstrap_servers, linger_ms=100) as producer,
        ):
            await producer.send_many(TOPIC, [b"x" * 1_000] * 200)
            opened.message_max_bytes = 3_000
            await producer.send_many(TOPIC, [b"x" * 1_000] * 200)
            await producer.send_many(TOPIC, [b"x" * 1_000] * 200)
            tail = [len(each.records) for each in opened.batches(TOPIC, 0)[-50:]]
            assert tail.count(2) >= 40


@pytest.mark.parametrize("bulk", [False, True], ids=["one by one", "in bulk"])
@scenario
async def test_zstd_is_refused_for_a_broker_before_2_1(bulk: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    speak_no_newer(monkeypatch, produce=6)
    async with cluster() as opened, Producer(opened.bootstrap_servers, compression_type="zstd") as producer:
        if bulk:
            with pytest.raises(SendManyError) as raised:
                await producer.send_many(TOPIC, [b"v"] * 1_000)
            errors: list[BaseException | RecordMetadata] = [*raised.value.result.failures.values()]
            assert len(errors) == 1_000
        else:
            calls = (producer.send(TOPIC, b"v") for _ in range(3))
            errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in errors} == {UnsupportedCompressionType}
        assert not any(
            each.possibly_persisted for each in errors if isinstance(each, UnsupportedCompressionType)
        )
        assert opened.request_count("produce") == 0
