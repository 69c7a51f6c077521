"""Dials: from a host and port to a transport, by name lookup and TCP connect, or by the `dial` option of the user."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, cast

from aioproducer._core.address import Address, ResolvedAddress
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.worker_threads import LOOKUP_THREADS, NoThread
from aioproducer.errors import AuthenticationFailed, ProducerError

HAPPY_EYEBALLS_DELAY_S: Final = 0.25
"""Head start of one address of a host over the next address, in seconds (RFC 8305)."""

KEEPALIVE: Final = {
    # macOS names the idle time differently.
    "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE": 60,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 6,
}
"""Idle time before the first probe, interval of the probes (seconds), and the number of unanswered probes that ends the
connection. NAT gateways and load balancers drop idle flows after 240 s (Azure) or 350 s (AWS); Linux starts to probe
after two hours. TCP_USER_TIMEOUT stays unset: it would end connections to throttling brokers, which read nothing."""

_AddressInfo: TypeAlias = tuple[int, int, int, str, Any]
"""Result of `getaddrinfo`: family, type, protocol, canonical name, address."""

_Name: TypeAlias = tuple[int, str, int]
_Lookup: TypeAlias = Future[Sequence[_AddressInfo]]

AnyProtocol: TypeAlias = asyncio.Protocol | asyncio.BufferedProtocol
MakeProtocol: TypeAlias = Callable[[], AnyProtocol]


class Dial(Protocol):
    """Function that connects the protocol made by *make_protocol* to a host and port."""

    def __call__(self, host: str, port: int, make_protocol: MakeProtocol, /) -> Awaitable[asyncio.Transport]:
        """Return the transport, after the protocol's `connection_made`. Raises: OSError, ValueError."""


routes: Final[dict[tuple[str, int], Dial]] = {}
"""Dial functions of hosts and ports inside this process, in place of TCP."""


async def dial(host: str, port: int, make_protocol: MakeProtocol, /) -> asyncio.Transport:
    """Connect the protocol made by *make_protocol* to the first address of *host* that accepts.

    Raises: OSError if no address accepts; ValueError for an invalid host or port.
    A cancellation leaves no socket open.
    """
    route = routes.get((host, port))
    if route is not None:
        return await route(host, port, make_protocol)
    if not 0 < port < 65_536:  # getaddrinfo would take the port modulo 65,536
        raise ValueError(f"there is no port {port}")
    candidates = await _resolve(host, port)
    # The order is random: an address that accepts but stays silent must not be the first of every dial.
    sock = await _connect_to_any(random.sample(candidates, len(candidates)))
    return await _over_socket(sock, make_protocol)


async def endpoints(address: Address) -> list[Address]:
    """Return the numeric addresses of the name in *address*, each with the name; *address* itself if the name has one address.

    Raises: OSError if the lookup fails; ValueError for an invalid host.
    """
    if address in routes:
        return [address]
    found: list[Address] = [
        ResolvedAddress(to[0], address.port, address.host)
        for *_, to in await _resolve(address.host, address.port)
    ]
    return list(dict.fromkeys(found)) if len(found) > 1 else [address]


async def _resolve(host: str, port: int) -> Sequence[_AddressInfo]:
    if "\0" in host:  # given bytes, getaddrinfo would resolve the part before the NUL
        raise ValueError(f"there is no host {host!r}")
    try:  # numeric addresses need no thread; bytes need no IDNA tables
        return socket.getaddrinfo(
            host.encode("ascii"), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except (socket.gaierror, UnicodeEncodeError):
        pass
    name = (os.getpid(), host, port)
    lookup = _lookups.get(name)
    try:
        if lookup is None:  # else this dial joins a running lookup, so each name uses at most one thread
            lookup = _lookups[name] = Future()
            lookup.set_running_or_notify_cancel()  # a cancelled dial leaves the lookup to other dials
            work = LOOKUP_THREADS.submit(_look_up, host, port)
            work.add_done_callback(partial(_settle_lookup, name, lookup))
        return await asyncio.wrap_future(lookup)
    except NoThread:
        return _look_up(host, port)


_lookups: Final[dict[_Name, _Lookup]] = {}


def _look_up(host: str, port: int) -> Sequence[_AddressInfo]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _settle_lookup(name: _Name, lookup: _Lookup, done: _Lookup) -> None:
    _lookups.pop(name, None)
    error = done.exception()
    if error is None:
        lookup.set_result(done.result())
    else:
        lookup.set_exception(error)


async def _connect_to_any(candidates: Sequence[_AddressInfo]) -> socket.socket:
    """Return a socket: try the next of *candidates* after a failure, or in parallel after a delay (RFC 8305).

    asyncio's happy eyeballs may lose a connected socket at a cancellation.
    """
    untried = deque(candidates)
    attempts: list[asyncio.Task[socket.socket]] = []
    running: set[asyncio.Task[socket.socket]] = set()
    winner = None
    try:
        while winner is None and (untried or running):
            if untried:
                attempts.append(asyncio.create_task(_connect(untried.popleft())))
                running.add(attempts[-1])
            delay_s = HAPPY_EYEBALLS_DELAY_S if untried else None
            done, running = await asyncio.wait(running, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
            winner = next((each for each in done if each.exception() is None), None)
    finally:
        for each in attempts:
            if each is not winner:
                each.cancel()
                each.add_done_callback(_close_result)
    if winner is None:
        raise OSError("; ".join(str(each.exception()) for each in attempts))
    return winner.result()


async def _connect(candidate: _AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = candidate
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException as error:
        sock.close()
        if isinstance(error, NotImplementedError):
            loop = type(asyncio.get_running_loop()).__name__
            why = "implements no sockets; use asyncio's event loop, or ThreadedProducer beside this loop"
            raise OSError(f"{loop} {why}") from error
        raise
    return sock


def _close_result(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def configure_socket(transport: asyncio.BaseTransport, settings: ConnectionSettings) -> None:
    """Set the socket options of *transport*, if it has a socket. TCP_NODELAY is asyncio's default."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            with suppress(OSError):  # raised for a Unix socket of a custom dial, or by an old Windows
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
    if settings.send_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
    if settings.receive_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)


Dialled: TypeAlias = "socket.socket | tuple[asyncio.StreamReader, asyncio.StreamWriter]"
"""A connected socket, or the streams of a connection."""

DialHook: TypeAlias = Callable[[str, int], Awaitable[Dialled]]
"""`dial(host, port)`, a coroutine function."""

_writers: Final[set[asyncio.StreamWriter]] = set()
"""Writers of open connections. Python 3.13 closes the transport of a garbage-collected writer."""


def hooked(hook: DialHook) -> Dial:
    """Return a dial that gets its connections from *hook*."""

    async def dial_by_hook(host: str, port: int, make_protocol: MakeProtocol, /) -> asyncio.Transport:
        dialled: object = await hook(host, port)
        match dialled:
            case socket.socket():
                return await _over_socket(dialled, make_protocol)
            case (asyncio.StreamReader() as reader, asyncio.StreamWriter() as writer):
                return _over_streams(reader, writer, make_protocol)
        raise TypeError(
            f"dial returned {type(dialled).__name__}; return a connected socket, or a pair of StreamReader and"
            " StreamWriter"
        )

    return dial_by_hook


async def _over_socket(sock: socket.socket, make_protocol: MakeProtocol) -> asyncio.Transport:
    try:
        sock.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(make_protocol, sock=sock)
    except BaseException:
        sock.close()
        raise
    return transport


def _over_streams(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, make_protocol: MakeProtocol
) -> asyncio.Transport:
    """Take over the transport of a pair of streams. No byte is lost: brokers send nothing before the first request."""
    transport = cast("asyncio.Transport", writer.transport)
    if transport.is_closing() or reader.at_eof():
        writer.close()
        raise ConnectionResetError("dial returned closed streams; return open streams")
    if getattr(reader, "_buffer", b""):
        writer.close()
        raise ConnectionError("dial returned streams with unread bytes; read the answer of the proxy in full")
    for each in tuple(_writers):
        if each.transport.is_closing():
            _writers.discard(each)
    _writers.add(writer)
    protocol = make_protocol()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    return transport


def is_failure(error: BaseException) -> bool:
    """Return True if *error* is a failure of the dial without an error class of this package.

    A dial runs name resolution, OpenSSL and callables of the user, which may raise any exception: TypeError for a NUL in a
    host name, RuntimeError without threads, CancelledError from a task of the user. A ProducerError has a class of this
    package; the cancellation of the current task, KeyboardInterrupt and SystemExit are passed on.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return not isinstance(error, ProducerError | KeyboardInterrupt | SystemExit | GeneratorExit)


def described(error: BaseException) -> str:
    """Return the text of *error*, or only its class if user code may have put a secret into the text."""
    if isinstance(error, OSError | ValueError) and str(error):
        return str(error)
    return f"{type(error).__name__}, which is the cause"


def again(error: AuthenticationFailed) -> AuthenticationFailed:
    """Return a copy of *error* for another caller."""
    another = type(error)(*error.args, broker=error.broker, mechanism=error.mechanism)
    another.__cause__ = error.__cause__
    return another
