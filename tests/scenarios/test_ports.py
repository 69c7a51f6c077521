"""Ports with another server than a broker: the error names the address and the protocol at once."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from aioproducer import ConnectionFailed, DeliveryTimeout, Producer
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, producing, scenario

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

AT_ONCE_S = 1.0
"""Far less than any timeout."""


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


async def shell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await reader.read()


async def cache(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"-ERR unknown command\r\n")
    await reader.read()


async def tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close the connection if the first bytes are no handshake, as OpenSSL does."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(await reader.read(1000))
    try:
        server.do_handshake()
    except ssl.SSLError:
        writer.write(outgoing.read())


async def tls_with_an_alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As other servers do."""
    await reader.read(100)
    writer.write(b"\x15\x03\x03\x00\x02\x02\x46")


async def nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept, and hang up."""


async def small_talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the first bytes of a frame of 16 MB and nothing more."""
    writer.write(b"\x01\x00\x00\x00hello")
    await reader.read()


@asynccontextmanager
async def port(serve: Serve) -> AsyncIterator[str]:
    """Run *serve* behind a port, and check that no connection remains."""
    served: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()
        if served:
            await asyncio.wait(served, timeout=10)
        assert all(each.done() for each in served)
        gc.collect(1)


@for_each(
    ("serve", "looks_like"),
    [
        (web, "web server"),
        (shell, "SSH"),
        (cache, "it begins with b'-ERR'"),
        (tls, "does this listener require TLS"),
        (tls_with_an_alert, "expects TLS"),
        (nobody, "closed by the broker"),
        (small_talk, "bytes long"),
    ],
)
async def test_start_fails_at_once_and_names_the_protocol_there(serve: Serve, looks_like: str) -> None:
    loop = asyncio.get_running_loop()
    async with port(serve) as address:
        began_at = loop.time()
        with pytest.raises(ConnectionFailed, match=looks_like) as raised:
            await Producer(address).start()
        assert address in str(raised.value)
        assert loop.time() - began_at < AT_ONCE_S


async def test_foreign_port_among_bootstrap_servers_is_skipped() -> None:
    for _ in range(5):  # which one is asked first is left to chance
        async with (
            Cluster(topics={TOPIC: 1}) as cluster,
            port(web) as address,
            Producer([address, cluster.bootstrap_servers]) as producer,
        ):
            await producer.send(TOPIC, b"v")


@scenario
async def test_records_expire_naming_a_broker_of_another_protocol() -> None:
    async with producing(
        delivery_timeout_ms=5_000,
        request_timeout_ms=1_000,
        linger_ms=0,
    ) as (producer, cluster):
        await producer.send(TOPIC, b"before")
        page = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        rule = cluster.on("api_versions", times=None).rewrite(lambda _: page)
        cluster.disconnect(1)
        with pytest.raises(DeliveryTimeout, match="web server") as raised:
            await producer.send(TOPIC, b"meanwhile")
        assert cluster.bootstrap_servers in str(raised.value)
        rule.remove()
        assert (await producer.send(TOPIC, b"after")).offset == 1
