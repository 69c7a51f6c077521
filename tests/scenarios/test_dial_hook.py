"""The option `dial`: real proxies on the loopback, address translation, and the failures of the function."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aioproducer import ConfigError, ConnectionFailed, Producer, TransactionAdmin
from aioproducer.testing import Cluster
from tests.cases import for_each

TOPIC = "orders"
DOCS = (Path(__file__).parents[2] / "docs/services.md").read_text(encoding="utf-8")


def documented() -> dict[str, Any]:
    """Return the functions of the documentation."""
    _, _, section = DOCS.partition("## Through a proxy or port-forward")
    block = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(block, names)
    return names


class Proxy:
    """A proxy for SOCKS5 and HTTP CONNECT."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.refuses = False
        self.port = 0
        self._targets: dict[str, str] = {}

    @asynccontextmanager
    async def serving(self, **targets: str) -> AsyncIterator[Proxy]:
        """Serve; *targets* are hosts by the names that clients use, with `_` for `.`."""
        self._targets = {name.replace("_", "."): host for name, host in targets.items()}
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == b"\x05":
            await reader.readexactly((await reader.readexactly(1))[0])
            writer.write(b"\x05\x00")
            head = await reader.readexactly(5)
            host = (await reader.readexactly(head[4])).decode()
            port = int.from_bytes(await reader.readexactly(2), "big")
            good, bad = b"\x05\x00\x00\x01" + bytes(6), b"\x05\x02\x00\x01" + bytes(6)
        else:
            head = await reader.readuntil(b"\r\n\r\n")
            host, _, number = head.split()[1].decode().rpartition(":")
            port = int(number)
            good, bad = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 403 Forbidden\r\n\r\n"
        self.asked.append((host, port))
        if self.refuses:
            writer.write(bad)
            await writer.drain()
            return
        upstream, down = await asyncio.open_connection(self._targets.get(host, host), port)
        writer.write(good)
        try:
            await asyncio.gather(_pump(reader, down), _pump(upstream, writer))
        finally:
            down.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("kind", ["through_http_proxy", "through_socks5"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_records_pass_a_proxy(kind: str, protocol: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, dial = Proxy(), documented()[kind]
    connect = asyncio.open_connection

    async def open_connection(host: str, port: int, **options: Any) -> Any:
        return await connect(
            *(("127.0.0.1", proxy.port) if host == "proxy.example" else (host, port)), **options
        )

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    async with Cluster(topics={TOPIC: 1}, security_protocol=protocol) as cluster, proxy.serving() as proxy:
        options = {**cluster.client_options, "dial": dial}
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            await producer.send(TOPIC, b"v")
            await producer.send_many(TOPIC, [b"w" * 1_000] * 500)
        async with TransactionAdmin(cluster.bootstrap_servers, **options) as admin:
            assert await admin.list() == []
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        assert set(proxy.asked) == {(host, int(port))}
        proxy.refuses = True
        with pytest.raises(ConnectionFailed, match="the proxy refused") as raised:
            await Producer(cluster.bootstrap_servers, **options).start()
        assert isinstance(raised.value.__cause__, Exception)


async def test_addresses_are_translated_without_a_lookup() -> None:
    async with Cluster(topics={TOPIC: 1}) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        asked: list[str] = []

        async def dial(name: str, number: int) -> socket.socket:
            asked.append(name)
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
            return sock

        async with Producer("name.invalid:1", dial=dial) as producer:
            await producer.send(TOPIC, b"v")
        assert asked[0] == "name.invalid"


@for_each(
    "result", [OSError("no way"), ValueError("x"), None, 5, ("reader", "writer"), asyncio.CancelledError()]
)
async def test_failures_of_the_function_are_failed_connections(result: object) -> None:
    async def dial(host: str, port: int) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    with pytest.raises(ConnectionFailed, match=r"localhost:1 .*cannot connect") as raised:
        await Producer("localhost:1", dial=dial).start()
    assert raised.value.__cause__ is not None


async def test_silent_connect_function_is_cancelled_at_its_timeout() -> None:
    cancelled = False

    async def dial(host: str, port: int) -> socket.socket:
        nonlocal cancelled
        try:
            await asyncio.sleep(60)
        finally:
            cancelled = True
        raise AssertionError("not reached")

    with pytest.raises(ConnectionFailed, match="no address responded in time"):
        await Producer("localhost:1", dial=dial, socket_connection_setup_timeout_ms=100).start()
    assert cancelled


async def test_streams_with_unread_bytes_are_refused() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        async def dial(host: str, number: int) -> Any:
            streams = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.1)
            return streams

        with pytest.raises(ConnectionFailed, match="unread bytes"):
            await Producer("localhost:1", dial=dial).start()


def test_connect_option_refuses_other_values() -> None:
    with pytest.raises(ConfigError, match="dial"):
        Producer("localhost:1", dial="socks5://proxy:1080")  # type: ignore[arg-type]
