from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from aioproducer.testing import Cluster, in_virtual_time
from aioproducer.testing.memory import HIGH_WATER_BYTES
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client, metadata_request

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
