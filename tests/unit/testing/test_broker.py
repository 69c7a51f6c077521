from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aioproducer._core.protocol.metadata import ApiVersionsRequest, MetadataRequest
from aioproducer.testing import Cluster, in_virtual_time
from aioproducer.testing.cluster import Transport
from aioproducer.testing.listener import HIGH_WATER_BYTES
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client, fetch_request, metadata_request, produce_request

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


async def test_connection_does_not_wait_for_another(cluster: Cluster, client: Client) -> None:
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


HOST = "broker-1.memory"


def encrypted(**options: Any) -> Cluster:
    return Cluster(topics={"orders": 1}, **({"transport": "memory", "security_protocol": "SSL"} | options))


def trusting(cluster: Cluster) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=cluster.ca_pem)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    return context


async def secure(client: Client, context: ssl.SSLContext, host: str = HOST) -> None:
    await client.writer.start_tls(context, server_hostname=host)


async def test_cluster_supports_tls_in_memory() -> None:
    async with encrypted() as cluster, await Client.to(cluster) as client:
        await secure(client, trusting(cluster))
        assert client.writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert (await client.produce()).error_code == 0
        assert len((await client.ask(metadata_request("orders"))).topics) == 1


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_cluster_supports_tls_over_sockets(host: str) -> None:
    async with encrypted(transport="tcp") as cluster, await Client.to(cluster) as client:
        await secure(client, trusting(cluster), host)
        assert (await client.produce()).error_code == 0


async def test_large_data_passes_through_tls() -> None:
    async with encrypted() as cluster, await Client.to(cluster) as client:
        await secure(client, trusting(cluster))
        value = bytes(12 * HIGH_WATER_BYTES)
        assert (await client.produce(batch(value))).error_code == 0
        assert cluster.records("orders", 0)[0].value == value
        cluster.on("metadata").rewrite(lambda frame: [frame, value])
        await client.ask(metadata_request("orders"))
        assert await client.reader.readexactly(len(value)) == value


async def test_tls_1_2_is_accepted() -> None:
    async with encrypted() as cluster, await Client.to(cluster) as client:
        context = trusting(cluster)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        await secure(client, context)
        assert (await client.produce()).error_code == 0


@in_virtual_time
async def test_handshake_takes_a_round_trip() -> None:
    async with encrypted(latency_s=0.1) as cluster, await Client.to(cluster) as client:
        await secure(client, trusting(cluster))
        assert asyncio.get_running_loop().time() == pytest.approx(0.2)


async def test_plaintext_is_answered_with_an_alert() -> None:
    async with encrypted() as cluster, await Client.to(cluster) as client:
        client.send(metadata_request())
        assert await client.reader.read() == bytes.fromhex("15030300020250")


async def test_tls_to_a_listener_without_it_ends_the_connection() -> None:
    async with Cluster(transport="memory") as cluster, await Client.to(cluster) as client:
        with pytest.raises(ConnectionResetError):
            await secure(client, ssl.create_default_context())


@pytest.mark.parametrize(
    ("trouble", "verify_code"),
    [({"expired": True}, 10), ({"new_authority": True}, 20), ({"hosts": ["elsewhere.example"]}, 62)],
)
async def test_certificate_that_will_not_do_is_refused_by_the_client(
    trouble: dict[str, Any], verify_code: int
) -> None:
    async with encrypted() as cluster:
        trust = trusting(cluster)
        cluster.renew_certificates(**trouble)
        async with await Client.to(cluster) as client:
            with pytest.raises(ssl.SSLCertVerificationError) as refused:
                await secure(client, trust)
            assert refused.value.verify_code == verify_code
        cluster.renew_certificates()
        async with await Client.to(cluster) as client:
            await secure(client, trusting(cluster))
            assert (await client.produce()).error_code == 0


async def test_renewing_leaves_connections_alone() -> None:
    async with encrypted() as cluster, await Client.to(cluster) as client:
        await secure(client, trusting(cluster))
        cluster.renew_certificates(new_authority=True)
        assert (await client.produce()).error_code == 0


async def test_missing_client_certificate_fails_after_handshake() -> None:
    async with encrypted(client_auth=True) as cluster, await Client.to(cluster) as client:
        await secure(client, trusting(cluster))
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            await client.reader.read()


async def test_client_with_a_certificate_is_let_in(tmp_path: Path) -> None:
    async with encrypted(client_auth=True) as cluster, await Client.to(cluster) as client:
        options = cluster.client_options
        file = tmp_path / "client.pem"
        file.write_text(options["ssl_keystore_certificate_chain"] + options["ssl_keystore_key"])
        context = trusting(cluster)
        context.load_cert_chain(file)
        await secure(client, context)
        assert (await client.produce()).error_code == 0


async def test_client_that_leaves_during_handshake_is_ignored() -> None:
    async with encrypted() as cluster:
        for first in (b"", b"\x16\x03\x01"):
            async with await Client.to(cluster) as client:
                client.writer.write(first)
                client.writer.write_eof()
                assert await client.reader.read() == b""


async def test_unfinished_handshake_blocks_no_client() -> None:
    async with encrypted() as cluster, await Client.to(cluster) as client:
        client.writer.write(b"\x16\x03\x01")
        await cluster.stop_broker(1)
        assert await client.is_closed()


@in_virtual_time
async def test_frozen_node_performs_no_handshake() -> None:
    async with encrypted() as cluster, await Client.to(cluster) as client:
        cluster.freeze_broker(1)
        shaking = asyncio.create_task(secure(client, trusting(cluster)))
        await asyncio.sleep(5)
        assert not shaking.done()
        cluster.thaw_broker(1)
        await shaking
        assert (await client.produce()).error_code == 0


async def test_faults_strike_under_tls() -> None:
    async with encrypted() as cluster, await Client.to(cluster) as client:
        await secure(client, trusting(cluster))
        cluster.on("metadata").close()
        client.send(metadata_request())
        assert await client.is_closed()


async def test_reset_is_one_under_tls() -> None:
    async with encrypted() as cluster, await Client.to(cluster) as client:
        await secure(client, trusting(cluster))
        await client.produce()
        cluster.disconnect(1)
        assert await client.is_closed()
