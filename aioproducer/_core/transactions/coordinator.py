"""Requests to the coordinators of transactional ids and consumer groups: lookup, connection and retries."""

from __future__ import annotations

import asyncio
import logging
import random
from asyncio import Future
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from aioproducer._core.address import Address
from aioproducer._core.backoff import MARKERS_BACKOFF, Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.metadata.background_dials import LEAST_GAP_S
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.connection_protocol import caused
from aioproducer._core.net.dial import again
from aioproducer._core.net.pool import REFUSAL_TIMEOUT_S, Pool
from aioproducer._core.protocol.schema import Message, Request
from aioproducer._core.protocol.transactions import (
    Coordinator as Found,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aioproducer._core.steps import Log
from aioproducer._core.transactions.transaction_manager import Api, ClusterVersion, Reaction, react
from aioproducer.errors import (
    BrokerError,
    ConcurrentTransactions,
    ConnectionFailed,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerError,
    ProducerFenced,
    ProtocolError,
    RebootstrapRequired,
    UnsupportedVersion,
    broker_error,
)

log: Final = Log(__name__)

R = TypeVar("R", bound=Message)

RESPONSE_TIMEOUT_S: Final = 2.0
"""Time without a response after which the coordinator, perhaps frozen and replaced, is looked up again, in seconds."""
FIND_TIMEOUT_S: Final = 0.5
"""Time limit of a broker's response to FindCoordinator, in seconds. After the limit, another broker is asked."""
SUCCESSOR_TIMEOUT_S: Final = 1.0
"""Time limit for other brokers to name a new coordinator, in seconds. After the limit, the refusal of the old coordinator counts."""
FRESH_S: Final = 1.0
"""Maximum age of a check's answer, in seconds. The maximum grows by `FRESH_S` with each repeated check, for slow networks."""

MANY_KEYS: Final = 4
"""First version of FindCoordinator with lists of keys and coordinators (KIP-699)."""

NOT_ATTEMPTED: Final = 55
"""OPERATION_NOT_ATTEMPTED: another item of the request was refused, and the error of that item decides."""

ERRORS_OF_REPLACED_COORDINATORS: Final = (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
"""Errors that a replaced coordinator may return from its outdated state."""

Refusals = Sequence[tuple[int, str]]
"""Error codes in an answer, each with its subject."""


def _nothing() -> None:
    """Do nothing."""


class CoordinatorRequest(NamedTuple):
    """Request and the interpretation of its response."""

    api: Api
    request: Request[Any]
    refusals: Callable[[Any], Refusals]
    """Returns the error codes in the answer, and the subject of each code."""
    at_least: int = 0
    """Lowest version of the request."""
    at_most: int | None = None
    """Highest version of the request; None for the newest."""
    on_written: Callable[[], None] = _nothing
    on_uncertain: Callable[[], None] = _nothing


class KeyType(IntEnum):
    """Kind of a coordinator's key."""

    GROUP = 0
    TRANSACTION = 1


class Key(NamedTuple):
    """Key of a coordinator: a consumer group or a transactional id."""

    type: KeyType
    name: str

    def __str__(self) -> str:
        what = "transactional id" if self.type is KeyType.TRANSACTION else "group"
        return f"{what} {self.name!r}"


class Node(NamedTuple):
    """Id and address of a broker."""

    node_id: int
    address: Address


class Coordinators:
    """Sends one request at a time, and retries the request until its answer is final. Callers set time limits."""

    def __init__(
        self, pool: Pool, updater: MetadataUpdater, backoff: Backoff, limits: LogLimits | None = None
    ) -> None:
        self._pool = pool
        self._updater = updater
        self._backoff = backoff
        self._limits = limits or LogLimits()
        self._nodes: dict[Key, Node] = {}
        self._turn = asyncio.Lock()
        self._listeners: set[Future[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.last_error: ProducerError | None = None
        """Error of the latest attempt of the present request; None before an error and after the answer."""
        self.transaction_version: int = 0
        """The cluster's transaction.version; see `ClusterVersion`."""
        self._cluster_version = ClusterVersion()
        self._fails_refused: Api | None = None
        self._dial_not_before = 0.0
        self._left: ProducerError | None = None
        """Error of the latest change of the cluster."""

    def leave_cluster(self, error: ProducerError) -> None:
        """Fail all requests with *error*, because their transactions belong to the old cluster."""
        self._nodes.clear()
        self._cluster_version = ClusterVersion()
        self._left = error

    def left_cluster(self) -> RebootstrapRequired:
        """Return the error for transactions of the old cluster."""
        if self._left is None:
            raise AssertionError("the cluster never changed")
        error = caused(RebootstrapRequired(f"the transaction has failed: {self._left}"), self._left)
        error.abortable = True
        return error

    def connected(self, node_id: int) -> None:
        """Note the features and API versions of the new connection to *node_id*."""
        connection = self._pool.get(node_id)
        if connection is not None:
            self.transaction_version = self._cluster_version.update(node_id, connection.versions)
        self.connections_changed()

    def connections_changed(self) -> None:
        """Wake requests that wait for a connection: a node was connected or lost, or an attempt failed."""
        for each in self._listeners:
            if not each.done():
                each.set_result(None)

    async def request(
        self,
        api: Api,
        key: Key,
        request: Request[R],
        refusals: Callable[[R], Refusals],
        *,
        version: int,
        at_least: int = 0,
        at_most: int | None = None,
        on_written: Callable[[], None] = _nothing,
        on_uncertain: Callable[[], None] = _nothing,
        fails_refused: bool = False,
        check: CoordinatorRequest | None = None,
    ) -> R:
        """Return the answer to *request* without an error code. Requests are sent in the order of the calls.

        *check* is sent directly before each attempt, and an error in its answer counts as an error of *request*.
        Brokers without the API of *check* receive *request* alone.

        *version* is the transaction version; *at_least* and *at_most* (None: the newest) limit the request version.
        *on_written* is called when the request is handed to a socket, *on_uncertain* when a retried or cancelled
        request may still take effect. If *fails_refused*, the call fails once logins were refused for
        `REFUSAL_TIMEOUT_S`; otherwise the call waits for a broker that accepts the login.

        Raises: ProducerError, with `abortable` or `fatal`; RebootstrapRequired after `leave_cluster`. UnsupportedVersion
            without `abortable` and `fatal`, before any write, if the coordinator's version lacks a field of *request*.
        """
        wanted = CoordinatorRequest(api, request, refusals, at_least, at_most, on_written, on_uncertain)
        left = self._left
        async with self._turn:
            self.last_error = None
            self._fails_refused = api if fails_refused else None
            attempt, checks, checked_at = 0, 0, -inf
            refused_by: set[int] = set()
            while True:
                connection = await self._connection_in(left, key)
                now = self._loop.time()
                step = wanted if check is None or now - checked_at <= FRESH_S * checks else check
                checked_at = -inf
                outcome = await self._ask(key, connection, step)
                if isinstance(outcome, ProducerError):
                    if isinstance(outcome, UnsupportedVersion):
                        if step is check:
                            check = None
                            continue
                        outcome.fatal = True
                        raise outcome
                    self._nodes.pop(key, None)
                    error: ProducerError = outcome
                else:
                    refused = _worst_refusal(step.api, step.refusals(outcome), version)
                    if refused is None and step is check:
                        checks, checked_at = checks + 1, now
                        continue
                    if refused is None:
                        self.last_error = None
                        answer: R = outcome
                        return answer
                    reaction, error = refused
                    if reaction in {Reaction.ABORTABLE, Reaction.FATAL}:
                        refused_by.add(connection.node_id)
                        if isinstance(error, ERRORS_OF_REPLACED_COORDINATORS) and await self._has_successor(
                            key, refused_by
                        ):
                            continue
                        raise _final(error, step.api, key, connection, reaction)
                    if reaction is Reaction.FIND_AGAIN:
                        self._nodes.pop(key, None)
                await self._pause(step.api, key, error, attempt)
                attempt += 1

    async def _has_successor(self, key: Key, refused_by: set[int]) -> bool:
        """Return True if another broker names a coordinator that has not refused yet.

        A broker that was frozen may act as the coordinator for a while. The outdated state of this broker may show a
        transaction that is not open, or an epoch that belongs to another producer.
        """
        try:
            async with asyncio.timeout(SUCCESSOR_TIMEOUT_S):
                node = await self.find(key, besides=refused_by)
        except (ProducerError, TimeoutError):
            return False
        return node.node_id not in refused_by

    async def find(self, key: Key, *, besides: Collection[int] = ()) -> Node:
        """Look up the coordinator of *key*, first at brokers outside *besides*.

        Raises: ProducerError, with `abortable` or `fatal`.
        """
        attempt = 0
        silent: set[int] = set(besides)
        while True:
            connection = await self.any_broker(silent)
            try:
                found = await self._find_over(connection, key)
            except TimeoutError:
                silent.add(connection.node_id)
                continue
            except ProducerError as failure:
                if isinstance(failure, UnsupportedVersion):
                    failure.fatal = True
                    raise
                error: ProducerError = failure
            else:
                if not found.error_code:
                    node = Node(found.node_id, Address(found.host, found.port))
                    self._nodes[key] = node
                    known = self._updater.snapshot.brokers.get(node.node_id)
                    if known is not None and known.address != node.address:
                        self._updater.request_refresh()  # the pool uses the address of the newest metadata
                    log.debug("coordinator.found key=%s node_id=%d", key, node.node_id)
                    return node
                kind = broker_error(found.error_code)
                refused = kind(found.error_message or kind.__doc__ or kind.__name__)
                reaction = react(Api.FIND_COORDINATOR, refused, version=self.transaction_version)
                if key.type is KeyType.GROUP and reaction is Reaction.FATAL:
                    reaction = Reaction.ABORTABLE  # the error concerns this group only
                if reaction in {Reaction.ABORTABLE, Reaction.FATAL}:
                    raise _final(refused, Api.FIND_COORDINATOR, key, connection, reaction)
                error = refused
            await self._pause(Api.FIND_COORDINATOR, key, error, attempt)
            attempt += 1

    async def _ask(self, key: Key, connection: Connection, step: CoordinatorRequest) -> Any | ProducerError:
        """Return the answer to *step*, or the error of the attempt: a lost connection, or a new coordinator."""
        try:
            chosen = connection.versions.pick(type(step.request), at_most=step.at_most)
            if chosen < step.at_least:
                return UnsupportedVersion(
                    f"{connection} offers {type(step.request).__name__} up to version {chosen}, and {step.at_least}"
                    " is needed"
                )
        except ProducerError as error:
            return error
        answered: Future[Any] = self._loop.create_future()
        try:
            connection.call(step.request, answered.set_result, version=chosen)
        except UnsupportedVersion:
            raise  # the version lacks a field of the request; the producer remains usable
        except ProducerError as error:
            return error
        step.on_written()
        try:
            while True:
                await asyncio.wait([answered], timeout=RESPONSE_TIMEOUT_S)
                if answered.done():
                    break
                replaced = await self._replaced(key, connection.node_id, answered)
                if replaced is not None:
                    step.on_uncertain()
                    return replaced
        except asyncio.CancelledError:
            step.on_uncertain()
            raise
        outcome: Any | ProducerError = answered.result()
        if isinstance(outcome, ProducerError) and (
            not isinstance(outcome, ConnectionFailed) or outcome.written
        ):
            step.on_uncertain()
        return outcome

    async def _replaced(self, key: Key, node_id: int, answered: Future[Any]) -> ConnectionFailed | None:
        """Return an error if another broker has replaced the silent coordinator *node_id*, else None."""
        asking = self._loop.create_task(self.find(key), name=f"aioproducer: find the coordinator of {key}")
        try:
            await asyncio.wait(
                [asking, answered], return_when=asyncio.FIRST_COMPLETED, timeout=RESPONSE_TIMEOUT_S
            )
        except asyncio.CancelledError:
            asking.cancel()
            raise
        if not asking.done():
            asking.cancel()
            return None
        if asking.exception() is not None or asking.result().node_id == node_id or answered.done():
            return None
        return ConnectionFailed(f"node {node_id}, which is silent, is not the coordinator of {key} any more")

    async def _connection_in(self, left: ProducerError | None, key: Key) -> Connection:
        """Run `_connection`. Raises: RebootstrapRequired unless *left* is the error of the latest change of the cluster."""
        if left is self._left:
            connection = await self._connection(key)
            if left is self._left:
                return connection
        raise self.left_cluster()

    async def _connection(self, key: Key) -> Connection:
        """Return a connection to the coordinator of *key*. Waits without a time limit."""
        attempt = 0
        while True:
            node = self._nodes.get(key) or await self.find(key)
            connection = self._pool.get(node.node_id)
            if connection is not None:
                if connection.throttled_until <= self._loop.time():
                    return connection
                await connection.wait_unthrottled()
                continue
            error = await self.dial(node)
            if self._pool.get(node.node_id) is None:  # the node is closed or frozen, and perhaps replaced
                self._nodes.pop(key, None)
            if error is not None:
                self._check_logins([node.node_id])
                await self._pause(Api.FIND_COORDINATOR, key, error, attempt)
                attempt += 1

    async def dial(self, node: Node) -> ProducerError | None:
        """Connect to *node*; return the error of a failed attempt, else None."""
        pool = self._pool
        pool.connect_soon(node.node_id, node.address)
        if pool.next_attempt_at(node.node_id) is None:  # else the node is in its backoff
            await self._connections_change(RESPONSE_TIMEOUT_S)
            if pool.get(node.node_id) is not None or pool.next_attempt_at(node.node_id) is None:
                return None
        return pool.last_error(node.node_id) or ConnectionFailed(f"{node.address}: not connected")

    async def any_broker(self, silent: set[int]) -> Connection:
        """Return a connection to any broker, first to brokers outside *silent*. Waits without a time limit."""
        while True:
            brokers = self._updater.snapshot.brokers
            if not brokers.keys() - silent:
                silent.clear()
            connection = self._pool.least_loaded(brokers.keys() - silent)
            if connection is not None:
                return connection
            others = list(brokers.keys() - silent)
            timeout_s, now = FIND_TIMEOUT_S, self._loop.time()
            if others and now < self._dial_not_before:  # else each failure would start the next dial at once
                timeout_s = self._dial_not_before - now
            elif others:
                self._dial_not_before = now + LEAST_GAP_S
                node_id = random.choice(others)
                self._pool.connect_soon(node_id, brokers[node_id].address)
                self.last_error = self._pool.last_error(node_id) or self.last_error
                self._check_logins(others)
            await self._connections_change(timeout_s)

    def _check_logins(self, nodes: Iterable[int]) -> None:
        """Raise AuthenticationFailed if all dialled *nodes* have refused logins for `REFUSAL_TIMEOUT_S`."""
        dialled = [each for each in nodes if self._pool.last_error(each) is not None]
        refused = [each for node_id in dialled if (each := self._pool.refused_logins(node_id)) is not None]
        if self._fails_refused is None or not refused or len(refused) < len(dialled):
            return
        first = min(refused, key=lambda each: each.since)
        if self._loop.time() >= first.since + REFUSAL_TIMEOUT_S:
            error = again(first.error)
            error.abortable = self._fails_refused is not Api.INIT_PRODUCER_ID
            raise error

    async def _find_over(self, connection: Connection, key: Key) -> Found | FindCoordinatorResponse:
        version = connection.versions.pick(FindCoordinatorRequest)
        if version >= MANY_KEYS:
            request = FindCoordinatorRequest(key_type=key.type, coordinator_keys=[key.name])
        else:
            request = FindCoordinatorRequest(key_type=key.type, key=key.name)
        async with asyncio.timeout(FIND_TIMEOUT_S):
            answer = await connection.request(request, version=version)
        if version < MANY_KEYS:
            return answer
        if len(answer.coordinators) != 1:
            raise ProtocolError(
                f"{connection} names {len(answer.coordinators)} coordinators of {key}, expected 1"
            )
        return answer.coordinators[0]

    async def _pause(self, api: Api, key: Key, error: ProducerError, attempt: int) -> None:
        self.last_error = error
        concurrent = isinstance(error, ConcurrentTransactions)
        pause_s = (MARKERS_BACKOFF if concurrent else self._backoff).delay_s(attempt)
        if not concurrent:
            subject = Pairs(api=api.name, key=key)
            self._limits.log(
                log,
                logging.INFO,
                subject,
                "transaction.retry %s attempt=%d retry_in_s=%.3f error=%s: %s",
                *(subject, attempt + 1, pause_s, type(error).__name__, error),
            )
        await asyncio.sleep(pause_s)

    async def _connections_change(self, timeout_s: float) -> None:
        """Wait until a connection is opened or lost, for at most *timeout_s* seconds."""
        listener: Future[None] = self._loop.create_future()
        self._listeners.add(listener)
        try:
            await asyncio.wait([listener], timeout=timeout_s)
        finally:
            self._listeners.discard(listener)


def _worst_refusal(
    api: Api, refusals: Iterable[tuple[int, str]], version: int
) -> tuple[Reaction, BrokerError] | None:
    """Return the worst error in an answer, with its reaction; None for an answer without errors."""
    worst: tuple[Reaction, BrokerError] | None = None
    refused = [each for each in refusals if each[0]]
    for code, about in [each for each in refused if each[0] != NOT_ATTEMPTED] or refused:
        error = _error(code, about)
        reaction = react(api, error, version=version)
        if reaction is Reaction.FATAL and isinstance(error, InvalidProducerEpoch):
            error = _error(ProducerFenced.code, about)  # KIP-588: PRODUCER_FENCED is new in Kafka 2.7
        if worst is None or _SEVERITY[reaction] > _SEVERITY[worst[0]]:
            worst = reaction, error
    return worst


def _error(code: int, about: str) -> BrokerError:
    kind = broker_error(code)
    return kind(f"{about}: {kind.__doc__ or kind.__name__}" if about else kind.__doc__ or kind.__name__)


_SEVERITY: Final = {reaction: severity for severity, reaction in enumerate(Reaction)}


def _final(error: BrokerError, api: Api, key: Key, connection: Connection, reaction: Reaction) -> BrokerError:
    final = type(error)(f"{api.name} for {key} at {connection}: {error}")
    final.abortable, final.fatal = reaction is Reaction.ABORTABLE, reaction is Reaction.FATAL
    return final
