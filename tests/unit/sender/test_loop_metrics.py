"""What the sender counts of its requests."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import ConnectionFailed
from aioproducer.protocol.produce import ProduceResponse
from aioproducer.records.compression import Codec
from aioproducer.testing import in_virtual_time
from tests.unit.sender.loop_bench import LINGER_S, Bench, pass_time
from tests.unit.workbench import NODE, TOPIC, FakeConnection, settle


def counted(bench: Bench) -> dict[str, float]:
    return bench.metrics.topics[TOPIC].numbers()


@in_virtual_time
async def test_batches_records_and_bytes_are_counted_when_they_are_written() -> None:
    async with Bench(partitions=2) as bench:
        bench.fill(b"a", b"b", partition=0)
        await asyncio.sleep(LINGER_S / 2)
        bench.fill(b"c", partition=1)
        assert TOPIC not in bench.metrics.topics
        await pass_time(LINGER_S)
        sent = [
            len(data.records)
            for call in bench.connection.calls
            for topic in call.request.topic_data
            for data in topic.partition_data
        ]
        numbers = counted(bench)
        assert (numbers["batches"], numbers["records"], numbers["requests"]) == (
            2,
            3,
            len(bench.connection.calls),
        )
        assert (numbers["bytes"], numbers["bytes_max"]) == (sum(sent), max(sent))
        assert numbers["uncompressed"] == sum(sent)
        assert numbers["queued_s"] == pytest.approx(2 * LINGER_S)


@in_virtual_time
async def test_a_batch_is_its_share_of_a_request() -> None:
    async with Bench(partitions=3) as bench:
        for partition in range(3):
            bench.fill(b"%d" % partition, partition=partition)
        await pass_time(LINGER_S)
        assert len(bench.connection.calls) == 1
        assert counted(bench)["batches"] == 3
        assert counted(bench)["requests"] == pytest.approx(1)


@in_virtual_time
async def test_what_is_compressed_is_compared_with_its_size_before() -> None:
    async with Bench(codec=Codec.GZIP) as bench:
        batch = bench.fill(b"x" * 1_000)
        await pass_time(LINGER_S)
        assert counted(bench)["uncompressed"] == batch.size > 1_000
        assert counted(bench)["bytes"] < 200


@in_virtual_time
async def test_an_answer_is_counted_with_its_latency_and_what_it_asks_for() -> None:
    async with Bench() as bench:
        bench.fill()
        await pass_time(LINGER_S)
        bench.connection.last_used = bench.loop.time() + 0.25
        bench.connection.answer(ProduceResponse(responses=[], throttle_time_ms=40))
        numbers = bench.connection.tally.numbers()
        assert (numbers["answers"], numbers["throttle_ms"]) == (1, 40)
        assert numbers["latency_s"] == pytest.approx(0.25)


@in_virtual_time
async def test_a_connection_that_is_lost_is_no_answer_and_what_goes_again_counts_again() -> None:
    async with Bench() as bench:
        bench.fill(b"a", b"b")
        await pass_time(LINGER_S)
        lost = bench.connection
        bench.pool.connections[NODE] = FakeConnection()
        lost.answer(ConnectionFailed("lost"))
        assert lost.tally.numbers()["answers"] == 0
        await pass_time(10)
        assert len(bench.connection.calls) == 1
        assert counted(bench)["records"] == 4
        assert len(bench.witness.retried_batches) == 1


@in_virtual_time
async def test_without_acknowledgements_it_counts_the_same() -> None:
    async with Bench(acks=0, idempotent=False) as bench:
        bench.fill(b"a", b"b")
        await pass_time(LINGER_S)
        assert (counted(bench)["batches"], counted(bench)["records"]) == (1, 2)


@in_virtual_time
async def test_what_could_not_be_written_is_not_counted() -> None:
    async with Bench() as bench:
        bench.connection.error = ConnectionFailed("closed", written=False)
        bench.fill()
        await pass_time(LINGER_S)
        await settle()
        assert TOPIC not in bench.metrics.topics
