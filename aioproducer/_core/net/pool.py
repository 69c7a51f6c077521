"""Pool of connections: one per node, opened in the background, with a backoff after a failure.

No method waits for a connection. The pool reports each connected node and each failure to callables of its creator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.metrics import Metrics
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.net.dial import Dial, dial as dial_any
from aioproducer._core.net.handshake import NODE_CHECK
from aioproducer._core.net.opening import close_all, open_connection
from aioproducer._core.protocol.metadata import ApiVersionsRequest
from aioproducer._core.steps import Log, as_step
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProducerError

if TYPE_CHECKING:
    from aioproducer._core.net.connection_security import ConnectionSecurity

log: Final = Log(__name__)

REFUSAL_TIMEOUT_S: Final = 3.5
"""Time from the first refused login until sends of a running producer fail, in seconds. Changed credentials may reach
client or broker late. Logins are tried after 1 s and 3 s (`authentication.py`); sends fail within 5 s."""
RETIRED_TIMEOUT_S: Final = 2.0
"""Longest wait for responses of a node that moved or left, in seconds. An abandoned address may stay silent."""


class RefusedLogins(NamedTuple):
    """Consecutive refusals of the authentication by a node."""

    error: AuthenticationFailed
    """Error of the last refusal."""
    since: float
    """Time of the first refusal (loop clock)."""


class _Node:
    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.failures = 0  # consecutive failed attempts
        self.next_attempt_at: float | None = None
        self.last_error: ProducerError | None = None
        self.refused_since: float | None = None

    @property
    def is_connecting(self) -> bool:
        return self.connecting is not None and not self.connecting.done()


class Pool:
    """The connections of one producer. Nodes with an id below 0 are bootstrap addresses."""

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        on_connected: Callable[[int], None],
        on_disconnected: Callable[[int, ProducerError | None], None],
        metrics: Metrics,
        security: ConnectionSecurity | None = None,
        dial: Dial = dial_any,
        limits: LogLimits | None = None,
    ) -> None:
        """The callables must not wait or raise.

        *on_connected* receives the id of a node once `get` returns its connection. *on_disconnected* receives the id of
        a node after the loss of its connection or a failed attempt, and the error, or None if the pool closed the
        connection.
        """
        self._settings = settings
        self._security = security
        self._dial = dial
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._metrics = metrics
        self._limits = limits or LogLimits()
        self._setup_timeout = Backoff(settings.setup_timeout_s, settings.setup_timeout_max_s)
        self._nodes: dict[int, _Node] = {}
        self._addresses: Mapping[int, Address] = {}
        self._cluster_id: str | None = None
        self._checks_node = False
        """True if the newest connection was to a broker with ApiVersions v5."""
        self._open: set[Connection] = set()  # includes retired connections with calls in flight
        self._tasks: set[asyncio.Task[None]] = set()
        # `_closing_sockets` has futures of closed connections whose sockets are still open.
        self._closing_sockets: set[asyncio.Future[None]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closed = False

    def get(self, node_id: int) -> Connection | None:
        """Return the connection of the node; None if the connection accepts no requests now."""
        node = self._nodes.get(node_id)
        # `node.connection` is read once: metrics call `get` from other threads.
        connection = None if node is None else node.connection
        return connection if connection is not None and connection.accepts_calls() else None

    def connect_soon(self, node_id: int, address: Address) -> None:
        """Start connecting to the node, unless the node is connected, connecting or in its backoff.

        The address of `follow` overrides *address*, which may be older.
        """
        if self._closed:
            return
        address = self._addresses.get(node_id, address)
        node = self._nodes.get(node_id)
        if node is None or node.address != address:
            self.forget(node_id)
            node = self._nodes.setdefault(node_id, _Node(address))
        if node.connection is not None or node.is_connecting:
            return
        now = asyncio.get_running_loop().time()
        if node.next_attempt_at is None or node.next_attempt_at <= now:
            node.next_attempt_at = None
            node.connecting = asyncio.get_running_loop().create_task(
                self._connect(node_id, node), name=f"aioproducer: connect to {address}"
            )
            self._tasks.add(node.connecting)
            node.connecting.add_done_callback(self._tasks.discard)

    @as_step
    def follow(self, addresses: Mapping[int, Address], cluster_id: str | None = None) -> None:
        """Move to *addresses* of all nodes in the newest metadata, and retire connections to other addresses.

        Each new connection must lead to a node of the cluster *cluster_id*; None disables the check.

        A node that moved is dialled immediately if it was connected, connecting or backing off. A node that left is
        dropped once, and its dial is cancelled. Later dials of a node that left are allowed.
        """
        before, self._addresses, self._cluster_id = self._addresses, addresses, cluster_id
        for node_id, node in tuple(self._nodes.items()):
            address = addresses.get(node_id)
            if address is None:
                if node_id in before:
                    self.forget(node_id)
            elif node.address != address:
                self._limits.log(
                    log,
                    logging.INFO,
                    Pairs(node_id=node_id),
                    "connection.moved node_id=%d address=%s new_address=%s",
                    *(node_id, node.address, address),
                )
                is_wanted = node.connection or node.is_connecting or node.next_attempt_at is not None
                self.forget(node_id)
                if is_wanted:
                    self.connect_soon(node_id, address)

    def adopt(self, connection: Connection, node_id: int, address: Address) -> bool:
        """Adopt *connection*, opened to *address* outside of the pool; return False if the pool cannot use *connection*."""
        if self._closed or connection.closed:
            return False
        node = self._nodes.setdefault(node_id, _Node(address))
        if node.address != address or node.connection is not None or node.is_connecting:
            return False
        connection.node_id = node_id
        connection.counters, connection.limits = self._metrics.node(node_id), self._limits
        self._keep(connection, node)
        return True

    def take_over(self, connections: Iterable[tuple[Address, Connection]]) -> None:
        """Adopt *connections* released by another pool; close unusable connections and connections idle for too long."""
        now = asyncio.get_running_loop().time()
        for address, connection in connections:
            connection.on_closed = self._lost  # `close` of this pool also waits for unusable connections
            timeout_s = self._settings.idle_timeout_s
            is_stale = timeout_s is not None and 0 < timeout_s <= now - connection.last_used
            if is_stale or not self.adopt(connection, connection.node_id, address):
                connection.close()
            else:
                connection.counters.at(now).opened += 1

    def release(self) -> list[tuple[Address, Connection]]:
        """Remove and return the connections without requests in flight, still open, for `take_over` of another pool."""
        released = []
        for node_id, node in self._nodes.items():
            connection = self.get(node_id)
            if connection is not None and not connection.in_flight:
                node.connection = connection.on_closed = None
                self._open.discard(connection)
                connection.counters.at(asyncio.get_running_loop().time()).closed += 1
                released.append((node.address, connection))
        return released

    def next_attempt_at(self, node_id: int) -> float | None:
        """Return the time of the next connection attempt (loop clock); None without a backoff."""
        node = self._nodes.get(node_id)
        return None if node is None else node.next_attempt_at

    def last_error(self, node_id: int) -> ProducerError | None:
        """Return the error of the last failed attempt or lost connection; None once the node is connected."""
        node = self._nodes.get(node_id)
        return None if node is None else node.last_error

    def refused_logins(self, node_id: int) -> RefusedLogins | None:
        """Return the consecutive refusals of the authentication; None if the last attempt was not refused."""
        node = self._nodes.get(node_id)
        if (
            node is None
            or node.refused_since is None
            or not isinstance(node.last_error, AuthenticationFailed)
        ):
            return None
        return RefusedLogins(node.last_error, node.refused_since)

    @property
    def nodes(self) -> list[int]:
        """Node ids passed to `connect_soon`, connected or not."""
        return list(self._nodes)

    def counts_for(self, node_id: int) -> bool:
        """True while a connection to the node is open, or a socket is being closed: the node's counters may still change."""
        return bool(self._closing_sockets) or any(each.node_id == node_id for each in self._open)

    @property
    def in_flight(self) -> int:
        """Number of calls in flight on all connections."""
        return sum(connection.in_flight for connection in tuple(self._open))

    def least_loaded(self, candidates: Iterable[int], avoided: int = -1) -> Connection | None:
        """Return the usable connection with the fewest calls in flight. Throttled connections come last.

        At equal counts, the node *avoided* comes last.
        """
        usable = (connection for each in candidates if (connection := self.get(each)) is not None)
        return min(
            usable,
            key=lambda connection: (
                connection.is_throttled,
                connection.in_flight,
                connection.node_id == avoided,
            ),
            default=None,
        )

    @as_step
    def forget(self, node_id: int) -> None:
        """Drop the node and all its state. Calls in flight may be answered for another `RETIRED_TIMEOUT_S`."""
        node = self._nodes.pop(node_id, None)
        if node is None:
            return
        if node.connecting is not None:
            node.connecting.cancel()
        if node.connection is not None:
            node.connection.retire(RETIRED_TIMEOUT_S)
            self._on_disconnected(node_id, None)

    @as_step
    def start_over(self, cause: ProducerError) -> None:
        """Drop all nodes, and fail the calls on all connections to the old cluster with *cause*."""
        connected = [node_id for node_id in self._nodes if self.get(node_id) is not None]
        nodes, self._nodes, self._addresses = self._nodes, {}, {}
        for node in nodes.values():
            if node.connecting is not None:
                node.connecting.cancel()
        for connection in tuple(self._open):
            connection.close(cause)
        for node_id in connected:
            self._on_disconnected(node_id, None)

    async def close(self) -> None:
        """Close all connections, fail the calls in flight, and wait for the end of sockets and tasks."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for node in self._nodes.values():
            if node.connecting is not None:
                node.connecting.cancel()
        for connection in tuple(self._open):
            connection.close()
        while self._tasks or self._closing_sockets:
            await asyncio.wait(self._tasks | self._closing_sockets)

    def abort(self, cause: ProducerError) -> None:
        """Close all connections without waiting, because the event loop is closing."""
        self._closed = True
        for connection in tuple(self._open):
            connection.close(cause)

    async def _connect(self, node_id: int, node: _Node) -> None:
        deadline = asyncio.get_running_loop().time() + self._setup_timeout.delay_s(node.failures)
        try:
            connection = await open_connection(
                node.address,
                self._settings,
                dial=self._dial,
                security=self._security,
                node_id=node_id,
                counters=self._metrics.node(node_id),
                limits=self._limits,
                deadline=deadline,
                cluster_id=self._cluster_id,
                checks_node=self._checks_node,
            )
        except ProducerError as error:
            self._failed(node_id, node, error)
        except asyncio.CancelledError:  # `forget`, `start_over` or `close` cancelled the task
            raise
        except BaseException as error:  # KeyboardInterrupt: the event loop may continue
            self._failed(node_id, node, ConnectionFailed(f"{node.address}: interrupted by {error!r}"))
            raise
        else:
            self._keep(connection, node)

    @as_step
    def _failed(self, node_id: int, node: _Node, error: ProducerError) -> None:
        retry_in_s = self._back_off(node, error, attempt=node.failures)
        node.failures += 1
        self._limits.log(
            log,
            logging.WARNING,
            Pairs(node_id=node_id),
            "connection.failed node_id=%d address=%s attempts=%d retry_in_s=%.3f error=%s",
            *(node_id, node.address, node.failures, retry_in_s, error),
            event="connection.lost",
        )
        self._on_disconnected(node_id, error)

    @as_step
    def _keep(self, connection: Connection, node: _Node) -> None:
        connection.on_closed = self._lost
        self._open.add(connection)
        _, newest = connection.versions.offered.get(ApiVersionsRequest.API_KEY, (0, 0))
        self._checks_node = newest >= NODE_CHECK
        node.connection, node.failures, node.last_error, node.refused_since = connection, 0, None, None
        subject = Pairs(node_id=connection.node_id)
        if not self._limits.over(
            "connection.lost", subject, "connection.opened %s address=%s", subject, node.address
        ):
            self._limits.log(
                log, logging.INFO, subject, "connection.opened %s address=%s", subject, node.address
            )
        self._watch_idle()
        self._on_connected(connection.node_id)

    @as_step
    def _lost(self, connection: Connection, error: ProducerError | None) -> None:
        self._open.discard(connection)
        self._closing_sockets.add(connection.socket_closed)
        connection.socket_closed.add_done_callback(self._closing_sockets.discard)
        node_id = connection.node_id
        node = self._nodes.get(node_id)
        if node is None or node.connection is not connection:
            return  # the pool has already reported that the node was forgotten or moved
        node.connection = None
        if error is not None:
            retry_in_s = self._back_off(node, error, attempt=0)
            self._limits.log(
                log,
                logging.WARNING,
                Pairs(node_id=node_id),
                "connection.lost node_id=%d address=%s retry_in_s=%.3f error=%s",
                *(node_id, node.address, retry_in_s, error),
            )
        self._on_disconnected(node_id, error)

    def _back_off(self, node: _Node, error: ProducerError, *, attempt: int) -> float:
        delay_s = self._settings.reconnect_backoff.delay_s(attempt)
        now = asyncio.get_running_loop().time()
        if isinstance(error, AuthenticationFailed) and self._security is not None:
            rest_s = self._security.next_login_at - now
            delay_s = min(delay_s, rest_s) if rest_s > 0 else delay_s
        node.next_attempt_at = now + delay_s
        node.last_error = error
        if not isinstance(error, AuthenticationFailed):
            node.refused_since = None
        elif node.refused_since is None:
            node.refused_since = now
        return delay_s

    def _watch_idle(self) -> None:
        """Set the timer for the connection that reaches the idle timeout first, unless the timer is set."""
        timeout_s = self._settings.idle_timeout_s
        connected = [node.connection for node in self._nodes.values() if node.connection is not None]
        if not timeout_s or not connected or self._idle_timer is not None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        idle_since = min(now if each.in_flight else each.idle_since for each in connected)
        self._idle_timer = loop.call_at(idle_since + timeout_s, self._close_idle, timeout_s)

    @as_step
    def _close_idle(self, timeout_s: float) -> None:
        self._idle_timer = None
        now = asyncio.get_running_loop().time()
        for node in tuple(self._nodes.values()):
            connection = node.connection
            if (
                connection is not None
                and not connection.in_flight
                and connection.idle_since + timeout_s <= now
            ):
                self._limits.log(
                    log,
                    logging.INFO,
                    Pairs(node_id=connection.node_id),
                    "connection.idle node_id=%d address=%s",
                    *(connection.node_id, connection.address),
                )
                connection.close()
        self._watch_idle()


class ConnectionCache:
    """Open connections and their security, kept for the next producer on the same event loop with the same options.

    The transactional ids of the producers may differ.
    """

    def __init__(self, security: ConnectionSecurity | None) -> None:
        self.security: Final = security
        self._connections: list[tuple[Address, Connection]] = []

    def put(self, connections: Iterable[tuple[Address, Connection]]) -> None:
        """Keep *connections*, none of which has a request in flight."""
        self._connections += connections

    def take(self) -> list[tuple[Address, Connection]]:
        """Return the kept connections, and forget them. Brokers may have closed some of the connections."""
        taken, self._connections = self._connections, []
        return taken

    async def close(self) -> None:
        """Close the kept connections and their `ConnectionSecurity`."""
        if self.security is not None:
            self.security.close()
        await close_all(*(connection for _, connection in self.take()))
