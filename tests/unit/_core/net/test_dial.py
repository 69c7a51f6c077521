from __future__ import annotations

import asyncio
import gc
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from aioproducer._core.address import Address
from aioproducer._core.net import dial as dial_module
from aioproducer._core.net.dial import (
    MakeProtocol,
    configure_socket,
    described,
    dial,
    endpoints,
    hooked,
    is_failure,
    routes,
)
from aioproducer.errors import AuthenticationFailed, ConnectionFailed
from tests.cases import for_each
from tests.unit._core.net.scripted import ScriptedBroker, settings
from tests.unit._core.net.streams import dial_streams

SILENT_PORT = 9


@pytest.fixture
def dead_port() -> Iterator[int]:
    """Port that refuses connections: bound, without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Let every name have the loopback address once per port."""

    async def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", each))
            for each in ports
        ]

    monkeypatch.setattr(dial_module, "_resolve", resolve)
    monkeypatch.setattr(random, "sample", lambda population, _: list(population))


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("address", "text"),
    [(Address("kafka.example", 9092), "kafka.example:9092"), (Address("::1", 9092), "[::1]:9092")],
)
def test_address_is_formatted_as_in_bootstrap_servers(address: Address, text: str) -> None:
    assert str(address) == text


def test_numeric_address_does_not_import_the_idna_codec() -> None:
    program = """
import asyncio, sys
from aioproducer._core.address import Address
from aioproducer._core.net.dial import endpoints
assert asyncio.run(endpoints(Address("127.0.0.1", 9092))) == [("127.0.0.1", 9092)]
print("encodings.idna" in sys.modules)  # it takes longer to import than to connect
"""
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().strip() == "False"


async def test_names_are_resolved(broker: ScriptedBroker) -> None:
    _, writer = await dial_streams("localhost", broker.address.port)
    assert writer.get_extra_info("peername") == broker.address
    await hang_up(writer)


async def test_dial_tries_every_address_of_a_name(
    broker: ScriptedBroker, dead_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, dead_port, dead_port, broker.address.port)
    _, writer = await dial_streams("kafka.example", 1)
    assert writer.get_extra_info("peername") == broker.address
    await hang_up(writer)


async def test_dial_tries_the_addresses_in_random_order(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that accepts and then stays silent would otherwise be tried first every time."""
    async with ScriptedBroker() as other:
        resolve_to(monkeypatch, broker.address.port, other.address.port)
        monkeypatch.setattr(random, "sample", lambda population, _: list(reversed(population)))
        _, writer = await dial_streams("kafka.example", 1)
        assert writer.get_extra_info("peername") == other.address
        await hang_up(writer)


class TestEndpoints:
    async def test_endpoints_of_a_name_are_its_distinct_addresses(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
            found = [("10.0.0.1", port), ("10.0.0.2", port), ("10.0.0.1", port), ("::1", port, 0, 0)]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in found]

        monkeypatch.setattr(dial_module, "_resolve", resolve)
        found = await endpoints(Address("kafka.example", 9092))
        assert found == [("10.0.0.1", 9092), ("10.0.0.2", 9092), ("::1", 9092)]
        assert {each.name for each in found} == {"kafka.example"}

    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    async def test_endpoints_of_an_ip_address_are_the_address(self, host: str) -> None:
        assert await endpoints(Address(host, 9092)) == [Address(host, 9092)]

    async def test_endpoints_of_a_name_with_one_address_are_the_name(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Errors then show the name that the user configured."""
        resolve_to(monkeypatch, 9092)
        assert await endpoints(Address("kafka.example", 9092)) == [Address("kafka.example", 9092)]

    async def test_endpoints_of_a_route_are_the_route(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(routes, ("nowhere.invalid", 1), dial)
        assert await endpoints(Address("nowhere.invalid", 1)) == [Address("nowhere.invalid", 1)]


async def test_dial_raises_os_error_when_all_addresses_refuse(
    dead_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, dead_port, dead_port)
    with pytest.raises(OSError, match=str(dead_port)):
        await dial_streams("kafka.example", 1)


async def test_dial_uses_a_route_instead_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    async def route(host: str, port: int, _: MakeProtocol, /) -> asyncio.Transport:
        asked.append((host, port))
        raise ConnectionRefusedError("by the route")

    monkeypatch.setitem(routes, ("broker-1.memory", 9092), route)
    with pytest.raises(ConnectionRefusedError, match="by the route"):
        await dial_streams("broker-1.memory", 9092)
    assert asked == [("broker-1.memory", 9092)]


async def test_socket_has_nodelay_and_keepalive(broker: ScriptedBroker) -> None:
    _, writer = await dial_streams(*broker.address)
    configure_socket(writer.transport, settings())
    sock = writer.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    await hang_up(writer)


async def test_keepalive_probes_an_idle_connection(broker: ScriptedBroker) -> None:
    _, writer = await dial_streams(*broker.address)
    configure_socket(writer.transport, settings())
    sock = writer.get_extra_info("socket")
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", 0)
    values = [
        sock.getsockopt(socket.IPPROTO_TCP, each) for each in (idle, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    ]
    assert values == [60, 10, 6]
    assert values[0] + values[1] * values[2] < 240, "shorter than any known flow timeout"
    await hang_up(writer)


async def test_keepalive_is_left_out_where_the_platform_lacks_it(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TCP_KEEPIDLE", "TCP_KEEPALIVE", "TCP_KEEPINTVL", "TCP_KEEPCNT"):
        monkeypatch.delattr(socket, name, raising=False)
    _, writer = await dial_streams(*broker.address)
    configure_socket(writer.transport, settings())
    assert writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    await hang_up(writer)


async def test_keepalive_leaves_other_kinds_of_sockets_alone() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    configure_socket(transport, settings())
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    transport.abort()
    theirs.close()
    await asyncio.sleep(0)


async def test_buffer_sizes_are_set_if_asked_for(broker: ScriptedBroker) -> None:
    _, writer = await dial_streams(*broker.address)
    sock = writer.get_extra_info("socket")
    before = [sock.getsockopt(socket.SOL_SOCKET, each) for each in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    configure_socket(writer.transport, settings())
    assert before == [
        sock.getsockopt(socket.SOL_SOCKET, each) for each in (socket.SO_SNDBUF, socket.SO_RCVBUF)
    ]
    configure_socket(writer.transport, settings(send_buffer_bytes=10_000, receive_buffer_bytes=20_000))
    # Linux doubles what it is asked for.
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in {10_000, 20_000}
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in {20_000, 40_000}
    await hang_up(writer)


async def test_dial_does_not_wait_for_a_silent_address(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, SILENT_PORT, broker.address.port)
    monkeypatch.setattr(dial_module, "HAPPY_EYEBALLS_DELAY_S", 0.01)
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect
    cancelled = asyncio.Event()

    async def sock_connect(sock: socket.socket, address: tuple[str, int]) -> None:
        if address[1] != SILENT_PORT:
            return await connect(sock, address)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    _, writer = await dial_streams("kafka.example", 1)
    assert writer.get_extra_info("peername") == broker.address
    await cancelled.wait()
    await hang_up(writer)


async def test_slow_address_is_used_after_the_others_have_failed(
    broker: ScriptedBroker, dead_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, broker.address.port, dead_port)
    monkeypatch.setattr(dial_module, "HAPPY_EYEBALLS_DELAY_S", 0.01)
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect
    failed = asyncio.Event()

    async def sock_connect(sock: socket.socket, address: tuple[str, int]) -> None:
        if address[1] != dead_port:
            await failed.wait()
            return await connect(sock, address)
        loop.call_soon(failed.set)
        raise ConnectionRefusedError

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    _, writer = await dial_streams("kafka.example", 1)
    assert writer.get_extra_info("peername") == broker.address
    await hang_up(writer)


async def test_event_loop_without_sockets_is_named(broker: ScriptedBroker) -> None:
    class Loop:
        async def sock_connect(self, *_: object) -> None:
            raise NotImplementedError

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", Loop().sock_connect)
        with pytest.raises(OSError, match="EventLoop implements no sockets; use asyncio's event loop"):
            await dial_streams(*broker.address)


async def test_spare_connection_is_closed_when_two_addresses_accept(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, broker.address.port, broker.address.port)
    monkeypatch.setattr(dial_module, "HAPPY_EYEBALLS_DELAY_S", 0)
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect
    both = asyncio.Barrier(2)

    async def sock_connect(sock: socket.socket, address: tuple[str, int]) -> None:
        await connect(sock, address)
        await both.wait()

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    _, writer = await dial_streams("kafka.example", 1)
    first, second = await broker.accepted.get(), await broker.accepted.get()
    await asyncio.wait(
        [asyncio.create_task(each.gone.wait()) for each in (first, second)],
        return_when=asyncio.FIRST_COMPLETED,
    )
    assert first.gone.is_set() != second.gone.is_set()
    await hang_up(writer)
    await first.gone.wait()
    await second.gone.wait()


@for_each(
    ("host", "port"), [("127.0.0.1", 0), ("127.0.0.1", 65_536), ("127.0.0.1", -1), ("a" * 64 + ".x", 9092)]
)
async def test_invalid_host_or_port_is_a_value_error(host: str, port: int) -> None:
    with pytest.raises(ValueError):
        await dial_streams(host, port)


async def test_cancelled_dial_leaves_no_socket_at_any_step(broker: ScriptedBroker) -> None:
    """A socket left open would be a ResourceWarning, which is an error in this suite."""
    for steps in range(20):
        dialling = asyncio.create_task(dial_streams(*broker.address))
        for _ in range(steps):
            await asyncio.sleep(0)
        if dialling.cancel():
            with pytest.raises(asyncio.CancelledError):
                await dialling
        else:
            _, writer = await dialling
            await hang_up(writer)


async def test_transport_without_a_socket_is_not_configured() -> None:
    configure_socket(asyncio.Transport(), settings(send_buffer_bytes=1))


async def test_host_with_a_nul_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="there is no host"):
        await dial("127.0.0.1\0.example", 9092, asyncio.Protocol)
    with pytest.raises(ValueError, match="there is no host"):
        await endpoints(Address("127.0.0.1\0.example", 9092))


class HookListener(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.received = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.set_result(data)


@pytest.mark.parametrize("kind", ["socket", "blocking socket", "streams"])
async def test_hook_returns_a_connection(kind: str) -> None:
    ours, theirs = socket.socketpair()
    with theirs:

        async def hook(host: str, port: int) -> Any:
            assert (host, port) == ("broker-1", 9092)
            ours.setblocking(kind == "blocking socket")
            return ours if "socket" in kind else await asyncio.open_connection(sock=ours)

        listener = HookListener()
        transport = await hooked(hook)("broker-1", 9092, lambda: listener)
        assert listener.transport is transport
        gc.collect()  # Python 3.13 closes the transport of a writer that is garbage
        theirs.sendall(b"answer")
        assert await asyncio.wait_for(listener.received, 5) == b"answer"
        transport.write(b"request")
        assert theirs.recv(100) == b"request"
        transport.close()
        await asyncio.sleep(0)


async def test_streams_with_unread_bytes_are_refused() -> None:
    ours, theirs = socket.socketpair()
    with theirs:

        async def hook(host: str, port: int) -> Any:
            streams = await asyncio.open_connection(sock=ours)
            streams[0].feed_data(b"rest of the answer")
            return streams

        with pytest.raises(ConnectionError, match="unread bytes; read the answer of the proxy in full"):
            await hooked(hook)("broker-1", 9092, HookListener)
        await asyncio.sleep(0)
        assert theirs.recv(1) == b"", "closed"


async def test_writer_of_a_closed_connection_is_released() -> None:
    ends: list[socket.socket] = []
    writers: list[asyncio.StreamWriter] = []

    async def hook(host: str, port: int) -> Any:
        ours, theirs = socket.socketpair()
        ends.append(theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        writers.append(writer)
        return reader, writer

    kept = await hooked(hook)("broker-1", 9092, HookListener)
    for _ in range(3):
        (await hooked(hook)("broker-1", 9092, HookListener)).close()
    assert dial_module._writers & set(writers) == {writers[0], writers[-1]}
    kept.close()
    await asyncio.sleep(0)
    for each in ends:
        each.close()


async def test_closed_streams_are_refused() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()

    async def hook(host: str, port: int) -> Any:
        streams = await asyncio.open_connection(sock=ours)
        await streams[0].read()
        return streams

    with pytest.raises(ConnectionResetError, match="closed"):
        await hooked(hook)("broker-1", 9092, HookListener)
    await asyncio.sleep(0)


@for_each("result", [None, 1, ("a", "b"), ()])
async def test_hook_with_another_result_type_is_a_type_error(result: object) -> None:
    async def hook(host: str, port: int) -> Any:
        return result

    with pytest.raises(TypeError, match="return a connected socket"):
        await hooked(hook)("broker-1", 9092, HookListener)


class Unusual(BaseException):
    """As pytest's and gevent's own: no Exception."""


@for_each("error", [OSError(), TypeError(), RuntimeError(), Unusual(), asyncio.CancelledError()])
async def test_dial_fails_of_any_exception(error: BaseException) -> None:
    assert is_failure(error)


@for_each(
    "error", [ConnectionFailed(), AuthenticationFailed(), KeyboardInterrupt(), SystemExit(), GeneratorExit()]
)
async def test_dial_passes_on_known_errors_and_interrupts(error: BaseException) -> None:
    assert not is_failure(error)


async def test_dial_passes_on_the_cancellation_of_its_task() -> None:
    async def hang() -> bool:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            return is_failure(error)
        return True

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    task.cancel()
    assert not await task


@for_each(
    ("error", "text"),
    [
        (OSError("nobody there"), "nobody there"),
        (ValueError("no port 0"), "no port 0"),
        (OSError(), "OSError, which is the cause"),
        (RuntimeError("hunter2"), "RuntimeError, which is the cause"),
    ],
)
def test_text_of_a_callable_of_the_user_is_not_shown(error: BaseException, text: str) -> None:
    assert described(error) == text
