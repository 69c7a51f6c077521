from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from aioproducer._core.protocol.metadata import ApiVersionsRequest, MetadataRequest
from aioproducer.testing import Cluster, in_virtual_time
from aioproducer.testing.cluster import Transport
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client, fetch_request, produce_request

ASK = MetadataRequest(topics=[])
ASK_VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")


@pytest.fixture(params=["tcp", "memory"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """These tests are about connections: they hold for both kinds."""
    transport: Transport = request.param
    async with Cluster(topics={"orders": 1}, transport=transport) as cluster:
        yield cluster


async def test_requests_of_a_connection_are_answered_in_order(cluster: Cluster, client: Client) -> None:
    cluster.on("produce").delay(0.02)
    first, second = produce_request({0: batch()}), MetadataRequest(topics=None)
    client.send(first)
    client.send(second)
    assert (await client.answer_to(first)).responses[0].name == "orders"
    assert (await client.answer_to(second)).topics[0].name == "orders"


async def test_one_connection_does_not_wait_for_another(cluster: Cluster, client: Client) -> None:
    waiting = cluster.on("fetch")
    client.send(fetch_request({0: 0}, max_wait_ms=60_000))
    await waiting.happened()
    async with await Client.to(cluster) as other:
        await other.ask(ASK)


async def test_request_may_arrive_in_pieces(cluster: Cluster, client: Client) -> None:
    frame = bytes.fromhex("0000000b 0012 0000 00000001 0001 78")
    for byte in frame:
        client.writer.write(bytes([byte]))
        await client.writer.drain()
    await client.answer_to(ASK_VERSIONS, 0)


@pytest.mark.parametrize(
    "frame",
    [
        "0000000a 0063 0000 00000001 0000",  # an API that there is not
        "0000000a 0003 0003 00000001 0000",  # a version too old
        "0000000a 0003 0063 00000001 0000",  # a version too new
        "0000000b 0003 0004 00000001 0000 ff",  # a body that is cut
        "00000004 00000000",  # not even a header
        "ffffffff",  # a length that cannot be
        "7fffffff 00",
        "474554202f20485454502f312e31",  # another protocol
    ],
)
async def test_malformed_request_closes_connection(client: Client, frame: str) -> None:
    client.writer.write(bytes.fromhex(frame))
    assert await client.is_closed()


async def test_large_request_arrives_whole(cluster: Cluster, client: Client) -> None:
    answer = await client.produce(batch(bytes(1_000_000)))
    assert answer.error_code == 0
    [part] = (await client.ask(fetch_request({0: 0}))).responses[0].partitions
    assert len(part.records or b"") > 1_000_000


async def test_client_may_disconnect_at_any_byte(cluster: Cluster) -> None:
    waiting = cluster.on("fetch", times=2)
    for leave in ("close", "abort"):
        async with await Client.to(cluster) as client:
            client.send(fetch_request({0: 0}, max_wait_ms=100))
            if leave == "abort":
                client.writer.transport.abort()
    async with await Client.to(cluster) as client:
        client.writer.write(b"\0\0\0")
    async with await Client.to(cluster) as client:
        await client.ask(ASK)
    assert waiting.hits <= 2


async def test_disconnect_resets_connections_and_accepts_new_ones(cluster: Cluster, client: Client) -> None:
    await client.ask(ASK)
    cluster.disconnect(1)
    with pytest.raises(ConnectionResetError):
        await client.reader.read()
    async with await Client.to(cluster) as again:
        await again.ask(ASK)


async def test_stopped_node_resets_connections_and_refuses_new_ones(cluster: Cluster, client: Client) -> None:
    await client.ask(ASK)
    await cluster.stop_broker(1)
    assert await client.is_closed()
    with pytest.raises(OSError, match=r"refused|failed|nothing listens"):
        await Client.to(cluster)


async def test_node_starts_again_at_its_address_with_its_records(cluster: Cluster, client: Client) -> None:
    await client.produce()
    address = cluster.bootstrap_servers
    for _ in range(2):
        await cluster.stop_broker(1)
        await cluster.start_broker(1)
    assert cluster.bootstrap_servers == address
    async with await Client.to(cluster) as again:
        assert (await again.produce()).base_offset == 1


async def test_frozen_node_serves_requests_after_thaw(cluster: Cluster, client: Client) -> None:
    cluster.freeze_broker(1)
    client.send(ASK)
    async with await Client.to(cluster) as other:
        other.send(ASK)
        cluster.thaw_broker(1)
        await client.answer_to(ASK)
        await other.answer_to(ASK)


@in_virtual_time
async def test_frozen_node_serves_no_request() -> None:
    async with Cluster(transport="memory") as cluster, await Client.to(cluster) as client:
        cluster.freeze_broker(1)
        client.send(ASK)
        await asyncio.sleep(3600)
        assert cluster.request_count("metadata") == 0
        assert not client.writer.is_closing()


@in_virtual_time
async def test_frozen_node_sends_no_response() -> None:
    async with (
        Cluster(topics={"orders": 1}, transport="memory") as cluster,
        await Client.to(cluster) as client,
    ):
        cluster.on("produce").delay(1)
        request = produce_request({0: batch()})
        client.send(request)
        await asyncio.sleep(0.5)
        cluster.freeze_broker(1)
        await asyncio.sleep(100)
        assert len(cluster.records("orders", 0)) == 1
        cluster.thaw_broker(1)
        await client.answer_to(request)
        assert asyncio.get_running_loop().time() == 100.5


async def test_frozen_node_can_be_stopped_and_starts_thawed(cluster: Cluster, client: Client) -> None:
    cluster.freeze_broker(1)
    client.send(ASK)
    await cluster.stop_broker(1)
    await cluster.start_broker(1)
    async with await Client.to(cluster) as again:
        await again.ask(ASK)


async def test_client_that_never_reads_does_not_block_stop(cluster: Cluster, client: Client) -> None:
    for _ in range(4):
        await client.produce(batch(bytes(1_000_000)))
    served = cluster.on("fetch", times=4)
    for _ in range(4):
        client.send(fetch_request({0: 0}, max_bytes=10_000_000, partition_max_bytes=10_000_000))
    await served.happened()


async def test_bug_in_node_is_raised_by_stop(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(transport="memory")
    await cluster.__aenter__()
    cluster.on("metadata").rewrite(lambda frame: frame[10**9].to_bytes())
    async with await Client.to(cluster) as client:
        client.send(ASK)
        assert await client.is_closed()
    with pytest.raises(ExceptionGroup, match="broker 1 failed") as group:
        await cluster.__aexit__(None, None, None)
    assert group.group_contains(IndexError)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "broker.bug node_id=1")
    ]
