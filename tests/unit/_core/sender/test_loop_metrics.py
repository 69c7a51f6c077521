"""Metrics that the sender counts per request."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.protocol.produce import ProduceResponse
from aioproducer._core.records.compression import Codec
from aioproducer.errors import ConnectionFailed
from aioproducer.testing import in_virtual_time
from tests.fakes import FakeConnection
from tests.unit._core.sender.loop_rig import LINGER_S, Rig, advance
from tests.unit.floor_rig import NODE, TOPIC, settle


def counted(rig: Rig) -> dict[str, float]:
    return rig.metrics.topics[TOPIC].numbers()


@in_virtual_time
async def test_batches_records_and_bytes_are_counted_when_written() -> None:
    async with Rig(partitions=2) as rig:
        rig.fill(b"a", b"b", partition=0)
        await asyncio.sleep(LINGER_S / 2)
        rig.fill(b"c", partition=1)
        assert TOPIC not in rig.metrics.topics
        await advance(LINGER_S)
        sent = [
            len(data.records)
            for call in rig.connection.calls
            for topic in call.request.topic_data
            for data in topic.partition_data
        ]
        numbers = counted(rig)
        assert (numbers["batches"], numbers["records"], numbers["requests"]) == (
            2,
            3,
            len(rig.connection.calls),
        )
        assert (numbers["bytes"], numbers["bytes_max"]) == (sum(sent), max(sent))
        assert numbers["uncompressed"] == sum(sent)
        assert numbers["queued_s"] == pytest.approx(
            1.5 * LINGER_S
        )  # the second batch joins the request of the first


@in_virtual_time
async def test_batch_counts_as_its_share_of_a_request() -> None:
    async with Rig(partitions=3) as rig:
        for partition in range(3):
            rig.fill(b"%d" % partition, partition=partition)
        await advance(LINGER_S)
        assert len(rig.connection.calls) == 1
        assert counted(rig)["batches"] == 3
        assert counted(rig)["requests"] == pytest.approx(1)


@in_virtual_time
async def test_compressed_bytes_are_counted_beside_uncompressed() -> None:
    async with Rig(codec=Codec.GZIP) as rig:
        batch = rig.fill(b"x" * 1_000)
        await advance(LINGER_S)
        assert counted(rig)["uncompressed"] == batch.size > 1_000
        assert counted(rig)["bytes"] < 200


@in_virtual_time
async def test_answer_is_counted_with_latency_and_throttle_time() -> None:
    async with Rig() as rig:
        rig.fill()
        await advance(LINGER_S)
        await advance(0.25)
        rig.connection.answer(ProduceResponse(responses=[], throttle_time_ms=40))
        numbers = rig.connection.counters.numbers()
        assert (numbers["answers"], numbers["throttle_ms"]) == (1, 40)
        assert numbers["latency_s"] == pytest.approx(0.25)


@in_virtual_time
async def test_records_are_delivered_at_the_time_of_the_read() -> None:
    async with Rig() as rig:
        rig.fill()
        await advance(LINGER_S + 1)
        rig.accept(read_s_ago=0.25)
        assert rig.witness.delivered_at == [rig.loop.time() - 0.25]


@in_virtual_time
async def test_lost_connection_counts_no_answer_and_retries_recount() -> None:
    async with Rig() as rig:
        rig.fill(b"a", b"b")
        await advance(LINGER_S)
        lost = rig.connection
        rig.pool.connections[NODE] = FakeConnection()
        lost.answer(ConnectionFailed("lost"))
        assert lost.counters.numbers()["answers"] == 0
        await advance(10)
        assert len(rig.connection.calls) == 1
        assert counted(rig)["records"] == 4
        assert len(rig.witness.retried_batches) == 1


@in_virtual_time
async def test_batches_are_counted_without_acknowledgements() -> None:
    async with Rig(acks=0, idempotent=False) as rig:
        rig.fill(b"a", b"b")
        await advance(LINGER_S)
        assert (counted(rig)["batches"], counted(rig)["records"]) == (1, 2)


@in_virtual_time
async def test_unwritten_batch_is_not_counted() -> None:
    async with Rig() as rig:
        rig.connection.error = ConnectionFailed("closed", written=False)
        rig.fill()
        await advance(LINGER_S)
        await settle()
        assert TOPIC not in rig.metrics.topics
