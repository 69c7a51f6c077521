"""Source of metadata: any reachable broker.

A broker may accept a connection and stay silent. After a delay, the next broker also receives the request, and the
first response wins.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aioproducer._core.address import Address
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.metadata.refresh_schedule import MetadataSettings
from aioproducer._core.metadata.snapshot import Broker
from aioproducer._core.metadata.staggered import Attempt, Refusals, first_success
from aioproducer._core.metrics import Metrics
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.net.dial import again, described, endpoints, is_failure
from aioproducer._core.net.opening import close_all, open_connection
from aioproducer._core.net.pool import Pool
from aioproducer._core.protocol.metadata import MetadataRequest, MetadataResponse
from aioproducer._core.steps import Log
from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ProducerError,
    RebootstrapRequired,
    broker_error,
)

if TYPE_CHECKING:
    from aioproducer._core.net.connection_security import ConnectionSecurity

log: Final = Log(__name__)

BOOTSTRAP: Final = -1
"""Node id of bootstrap addresses in metrics."""
FOREIGN_TIMEOUT_S: Final = 5.0
"""Time in which servers of the known cluster may answer after a server of another cluster, in seconds."""
CONNECT_STAGGER_S: Final = 0.25
"""Head start of one address over the next address, in seconds."""
MOST_DIALLED: Final = 10
"""Maximum number of brokers dialled per metadata request. The next request dials other brokers."""
ANSWER_TIMEOUT_S: Final = 1.0
"""Head start of a connected broker over the next broker, in seconds. Responses of large clusters are slow."""

OpenConnection: TypeAlias = Callable[[Address, Refusals], Awaitable[Connection]]
"""Callable that connects to a bootstrap address, which may be a name with several addresses, and counts the refusals."""


class Bootstrapped(NamedTuple):
    """Metadata from a bootstrap address."""

    address: Address
    connection: Connection
    metadata: MetadataResponse


class MetadataSource:
    """Sender of metadata requests, one at a time."""

    def __init__(
        self,
        settings: MetadataSettings,
        pool: Pool,
        open_connection: OpenConnection,
        limits: LogLimits | None = None,
        on_another_cluster: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """*on_another_cluster* is called with the ids of the old and the new cluster, before the new cluster is used."""
        self._settings = settings
        self._pool = pool
        self._open_connection = open_connection
        self._spare: Connection | None = None  # the bootstrap connection, until a node is connected
        self._news = asyncio.Event()
        self._unanswered_since: float | None = None
        self._rebootstrap_required = False
        self.answered_by: int = -1
        """Node that gave the last answer; below 0 if unknown. The next request goes to another node, for newer metadata."""
        self._requested_from: list[Connection] = []  # connections that received the current request
        self._limits = limits or LogLimits()
        self._on_another_cluster = on_another_cluster
        self.starts_over: bool = False
        """True from `start_over` until the bootstrap addresses have been asked."""
        self.is_refused: bool = False
        """True if the last `bootstrap` failed because each address that was asked refused the login or certificate."""
        self.cluster_id: str | None = None
        """Cluster id of the first response with a cluster id, or of the cluster adopted since; None without a check."""

    async def begin(self, request: MetadataRequest, deadline: float) -> MetadataResponse:
        """Request metadata from a connected node; without a connected node, or after a failure, call `bootstrap`.

        Connections taken over from another producer may be dead. After a failure, all connections are closed.
        """
        connection = self._pool.least_loaded(self._pool.nodes)
        if connection is not None:
            begins_at = max(asyncio.get_running_loop().time(), connection.throttled_until)
            try:
                async with asyncio.timeout_at(begins_at + ANSWER_TIMEOUT_S):
                    answer = await self._ask(connection, request)
            except (ProducerError, TimeoutError):
                for node_id in self._pool.nodes:
                    self._pool.forget(node_id)
            else:
                self._adopt(answer.cluster_id)
                return answer
        return await self.bootstrap(request, deadline)

    async def bootstrap(
        self, request: MetadataRequest, deadline: float, last_known: Iterable[Address] = ()
    ) -> MetadataResponse:
        """Request metadata from all bootstrap addresses, staggered; the first response wins.

        *last_known* are addresses of brokers, which receive the request after the bootstrap addresses. Any node may listen at
        the address of a broker, because brokers may have exchanged addresses. Only responses of the known cluster count.

        The connection of the first response goes to the pool if the cluster lists its address as a broker's address. The
        source keeps any other first connection until a node is connected.

        A refused login, or a certificate that does not verify, counts as an ordinary failure. At most three addresses
        may refuse, because brokers lock accounts after a few failed logins.

        Raises: ConnectionFailed with each address and its cause once all addresses have failed, or at *deadline*;
            AuthenticationFailed with each address and its cause if one of the addresses has refused.
        """
        opened: list[Connection] = []
        refusals = Refusals()
        self.is_refused = False
        foreign: list[Bootstrapped] = []
        limit = asyncio.timeout(None)

        async def ask(address: Address) -> Bootstrapped:
            connection = await self._open_connection(address, refusals)
            opened.append(connection)
            answer = Bootstrapped(address, connection, await self._ask(connection, request))
            error = self._mismatch(connection, answer.metadata)
            if error is None:
                return answer
            if address in self._settings.bootstrap:
                foreign.append(answer)
                limit.reschedule(min(deadline, asyncio.get_running_loop().time() + FOREIGN_TIMEOUT_S))
            raise error

        # The addresses are shuffled: many clients with the same list must not load the first server.
        addresses = random.sample(self._settings.bootstrap, len(self._settings.bootstrap))
        addresses += [each for each in dict.fromkeys(last_known) if each not in addresses]
        attempts = (Attempt(str(each), partial(ask, each), CONNECT_STAGGER_S) for each in addresses)
        try:
            try:
                async with limit:
                    winner = await first_success(
                        attempts,
                        deadline=deadline,
                        failure="no bootstrap server could be asked for metadata",
                        refusals=refusals,
                    )
            except (ProducerError, TimeoutError):
                if not foreign:
                    self.is_refused = refusals.is_final
                    raise
                # All servers that answered belong to another cluster, so the servers moved to that cluster.
                winner = foreign[0]
            self.starts_over = False
            self._adopt(winner.metadata.cluster_id)
            opened.remove(winner.connection)
            if self._spare is not None:
                opened.append(self._spare)
            self._spare = None if self._is_adopted(*winner) else winner.connection
        finally:
            await close_all(*opened)
        return winner.metadata

    async def ask(self, request: MetadataRequest, brokers: Mapping[int, Broker]) -> MetadataResponse:
        """Request metadata from any of *brokers*, or from the bootstrap addresses if no broker is reachable.

        A broker that refuses the authentication counts as reachable, because a bootstrap address would refuse as well.
        After `start_over` bootstrap addresses are asked first. Without *brokers* (the producer has not reached the cluster
        yet) only the bootstrap addresses are asked.

        Raises: AuthenticationFailed; ConnectionFailed with the cause of each broker. Cancelling leaves no connection open.
        """
        loop, timeout_s = asyncio.get_running_loop(), self._settings.request_timeout_s
        if not brokers or self.starts_over:
            try:
                return await self.bootstrap(request, loop.time() + timeout_s)
            except ProducerError:
                if not brokers:
                    raise
                self.starts_over = False  # the remaining known brokers may answer
        now = loop.time()
        if self._unanswered_since is None:
            self._unanswered_since = now
        silent_s = now - self._unanswered_since
        self._requested_from.clear()
        if not (self._settings.rebootstrap and silent_s >= self._settings.rebootstrap_trigger_s):
            try:
                return await first_success(
                    self._attempts(request, brokers),
                    deadline=now + timeout_s,
                    extended=self._after_throttles,
                    failure="no broker could be asked for metadata",
                )
            except ConnectionFailed as error:
                out_of_reach = self._rebootstrap_required or self._pool.least_loaded(brokers) is None
                if not (self._settings.rebootstrap and out_of_reach):
                    raise
                self._limits.log(
                    log, logging.WARNING, "", "metadata.rebootstrap silent_s=%.3f error=%s", silent_s, error
                )
        last_known = [broker.address for broker in brokers.values()]
        return await self.bootstrap(request, loop.time() + timeout_s, last_known)

    def _is_adopted(self, address: Address, connection: Connection, answer: MetadataResponse) -> bool:
        """Pass *connection* to the pool if *answer* lists a broker at *address*; return True if the pool adopted it."""
        for broker in answer.brokers:
            if (broker.host, broker.port) == address:
                return self._pool.adopt(connection, broker.node_id, address)
        return False

    def start_over(self, error: ProducerError) -> None:
        """Ask the bootstrap addresses next, because of *error*: a broker is another node or belongs to another cluster."""
        self.starts_over = True
        self._limits.log(
            log, logging.ERROR, "", "cluster.mismatch cluster_id=%s error=%s", self.cluster_id, error
        )

    def _mismatch(self, connection: Connection, answer: MetadataResponse) -> ConnectionFailed | None:
        """Return an error if *answer* over *connection* is from another cluster. A null cluster id is not compared."""
        if self.cluster_id is None or answer.cluster_id in {None, self.cluster_id}:
            return None
        return ConnectionFailed(
            f"{connection} belongs to cluster {answer.cluster_id!r}, not {self.cluster_id!r}", written=False
        )

    def _adopt(self, cluster_id: str | None) -> None:
        """Take over the cluster id that a bootstrap address, or the first broker that answered, has reported."""
        if cluster_id is None or not self._settings.checks_cluster:
            return
        before, self.cluster_id = self.cluster_id, cluster_id
        if before not in {None, cluster_id}:
            self._limits.log(log, logging.WARNING, "", "cluster.changed from=%s to=%s", before, cluster_id)
            self._on_another_cluster(str(before), cluster_id)

    def connected(self) -> None:
        """Record a new connection of the pool."""
        if self._spare is not None:
            self._spare.retire()
        self.disconnected()

    def disconnected(self) -> None:
        """Record a lost connection of the pool, or a failed attempt, and wake the requests that wait for a connection."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def abort(self, cause: ProducerError) -> None:
        """Close the spare bootstrap connection without waiting."""
        if self._spare is not None:
            self._spare.close(cause)

    async def close(self) -> None:
        """Close the spare bootstrap connection, and wait until its socket is closed."""
        spare, self._spare = self._spare, None
        if spare is not None:
            await close_all(spare)

    def _attempts(
        self, request: MetadataRequest, brokers: Mapping[int, Broker]
    ) -> Iterator[Attempt[MetadataResponse]]:
        """Yield connected brokers first, then unconnected brokers, and throttling brokers last."""
        rest = set(brokers)
        while (connection := self._pool.least_loaded(rest, self.answered_by)) and not connection.is_throttled:
            rest.discard(connection.node_id)
            yield Attempt(
                str(connection), partial(self._request_checked, connection, request), ANSWER_TIMEOUT_S
            )
        if self._spare is not None and not self._spare.closed:
            yield Attempt(
                str(self._spare), partial(self._request_checked, self._spare, request), ANSWER_TIMEOUT_S
            )
        in_any_order = random.sample(sorted(rest), len(rest))
        for node_id in sorted(in_any_order, key=self._rank)[:MOST_DIALLED]:
            broker = brokers[node_id]
            name = str(broker.address)
            yield Attempt(name, partial(self._connect_and_request, broker, request), CONNECT_STAGGER_S)

    def _rank(self, node_id: int) -> int:
        """Return the rank of a node without an answer: 0 for nodes to dial, 1 for failed nodes, 2 for throttling nodes."""
        if self._pool.get(node_id) is not None:
            return 2
        return int((self._pool.next_attempt_at(node_id) or 0.0) > asyncio.get_running_loop().time())

    async def _connect_and_request(self, broker: Broker, request: MetadataRequest) -> MetadataResponse:
        """Connect by the pool and request metadata; fail immediately during a backoff."""
        while (connection := self._pool.get(broker.node_id)) is None:
            pause_over_at = self._pool.next_attempt_at(broker.node_id)
            if pause_over_at is not None and pause_over_at > asyncio.get_running_loop().time():
                cause = self._pool.last_error(broker.node_id)
                if isinstance(cause, AuthenticationFailed):
                    raise again(cause)
                raise ConnectionFailed(str(cause), written=False) from cause
            news = self._news
            self._pool.connect_soon(broker.node_id, broker.address)
            await news.wait()
        return await self._request_checked(connection, request)

    async def _request_checked(self, connection: Connection, request: MetadataRequest) -> MetadataResponse:
        """Request metadata over *connection*; close *connection* if the response is from another cluster."""
        answer = await self._ask(connection, request)
        error = self._mismatch(connection, answer)
        if error is not None:
            self.start_over(error)
            connection.close(error)
            raise error
        if self.cluster_id is None:
            self._adopt(answer.cluster_id)
        return answer

    def _after_throttles(self) -> float:
        """Return the deadline of a request to throttling brokers: the request timeout after the last throttle."""
        throttled_until = max((each.throttled_until for each in self._requested_from), default=0.0)
        return throttled_until + self._settings.request_timeout_s if throttled_until else 0.0

    async def _ask(self, connection: Connection, request: MetadataRequest) -> MetadataResponse:
        self._requested_from.append(connection)
        try:
            answer = await request_metadata(connection, request)
        except RebootstrapRequired:
            self._rebootstrap_required = True
            raise
        self._unanswered_since = None
        self._rebootstrap_required = False
        self.answered_by = connection.node_id
        return answer


async def request_metadata(connection: Connection, request: MetadataRequest) -> MetadataResponse:
    """Send *request* over *connection*; return a response that lists at least one broker.

    A broker lists no brokers during its start, and while the controller has fenced all brokers (KIP-631). A response
    without brokers does not describe the cluster: all topics are unknown.

    Raises: ConnectionFailed if the response lists no broker; ProducerError.
    """
    answer = await connection.request(request)
    if answer.error_code:
        error = broker_error(answer.error_code)
        raise error(f"{connection}: {error.__name__} ({error.code})")
    if not answer.brokers:
        raise ConnectionFailed(f"{connection}: the broker lists no brokers, as it is starting up or fenced")
    return answer


def bootstrap_opener(
    settings: ConnectionSettings,
    *,
    security: ConnectionSecurity | None,
    metrics: Metrics,
    limits: LogLimits,
) -> Callable[[Address, Refusals], Awaitable[Connection]]:
    """Return a function that opens a connection to a bootstrap address, within the setup timeout.

    Raises, from the returned function: the errors of `open_to_any` and `open_connection`.
    """

    async def open_bootstrap(address: Address, refusals: Refusals) -> Connection:
        deadline = asyncio.get_running_loop().time() + settings.setup_timeout_s

        def open_endpoint(endpoint: Address) -> Awaitable[Connection]:
            counters = metrics.node(BOOTSTRAP)
            return open_connection(
                endpoint, settings, security=security, counters=counters, limits=limits, deadline=deadline
            )

        if settings.dial is not None:  # the option `dial` receives the host name itself
            return await open_endpoint(address)
        return await open_to_any(address, open_endpoint, deadline=deadline, refusals=refusals)

    return open_bootstrap


async def open_to_any(
    address: Address,
    open_connection: Callable[[Address], Awaitable[Connection]],
    *,
    deadline: float,
    refusals: Refusals,
) -> Connection:
    """Return the first connection past its handshake to any address of the host name in *address*.

    One of several addresses may be dead, refuse the login, or accept and stay silent. *refusals* counts the refusals.

    Raises: ConnectionFailed with each address and its cause; for a single address, the error of *open_connection*.
    """
    looking = asyncio.timeout_at(deadline)
    try:
        async with looking:
            found = await endpoints(address)
    except BaseException as error:
        if isinstance(error, TimeoutError) and looking.expired():
            why = "cannot connect: the name lookup did not finish in time"
            raise ConnectionFailed(f"{address}: {why}", written=False) from error
        if not is_failure(error):
            raise
        raise ConnectionFailed(f"{address}: cannot connect: {described(error)}", written=False) from error
    if len(found) == 1:
        return await open_connection(found[0])
    opened: list[Connection] = []

    async def open_one(endpoint: Address) -> Connection:
        opened.append(await open_connection(endpoint))
        return opened[-1]

    attempts = (Attempt(str(each), partial(open_one, each), CONNECT_STAGGER_S) for each in found)
    try:
        winner = await first_success(
            attempts,
            deadline=deadline,
            failure=f"{address}: cannot connect to any of {len(found)} addresses",
            refusals=refusals,
        )
        opened.remove(winner)
    finally:
        for each in opened:
            each.close()  # no await precedes the close: a cancellation must leave no connection open
        try:
            await close_all(*opened)
        except BaseException:
            await close_all(winner)
            raise
    return winner
