"""Ending, describing, listing and fencing of transactions without a producer (KIP-98, KIP-664, KIP-890)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.metadata.metadata_source import request_metadata
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.net.pool import Pool
from aioproducer._core.protocol.admin import ListTransactionsRequest
from aioproducer._core.protocol.metadata import MetadataRequest
from aioproducer._core.protocol.produce import InitProducerIdRequest
from aioproducer._core.protocol.schema import Message, Request
from aioproducer._core.protocol.transactions import DescribeTransactionsRequest, EndTxnRequest
from aioproducer._core.transactions.coordinator import Coordinators, Key, KeyType, Node, Refusals
from aioproducer._core.transactions.transaction_manager import ADDED_BY_PRODUCE, Api
from aioproducer._core.transactions.transaction_requests import (
    BEFORE_EPOCH_BUMPS,
    TWO_PHASE_COMMIT,
    timeout_error,
)
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.errors import (
    ConnectionFailed,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerError,
    ProducerFenced,
    TransactionalIdNotFound,
    TransactionLost,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
    UnsupportedVersion,
    broker_error,
)
from aioproducer.types import TopicPartition

K = TypeVar("K")
R = TypeVar("R", bound=Message)
T = TypeVar("T")

PIPELINED: Final = 64
"""Maximum number of requests in flight to a coordinator, which processes requests one by one: more requests would wait long."""
FROM_EPOCH_BUMPS: Final = BEFORE_EPOCH_BUMPS + 1
OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
NEVER_USED: Final = "Empty"


class TransactionDescription(NamedTuple):
    """State of a transactional id at its coordinator."""

    transactional_id: str
    state: str
    """Kafka's name of the state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, …"""
    producer_id: int
    epoch: int
    timeout_ms: int
    began_at_ms: int | None
    """Begin of the open or last transaction, in ms since the epoch by the coordinator's clock; None without a transaction."""
    partitions: frozenset[TopicPartition]
    """Partitions in the open transaction; a consumer group counts as a partition of `__consumer_offsets`."""


class TransactionListing(NamedTuple):
    """A transactional id in a list: its producer id and state."""

    transactional_id: str
    producer_id: int
    state: str


class Administration:
    """Implementation of `TransactionAdmin`. Each call is retried until it is answered, for at most *limit_s* seconds."""

    def __init__(
        self,
        pool: Pool,
        updater: MetadataUpdater,
        backoff: Backoff,
        *,
        limit_s: float,
        timeout_ms: int,
        limits: LogLimits | None = None,
    ) -> None:
        self._pool = pool
        self._updater = updater
        self._backoff = backoff
        self._limits = limits or LogLimits()
        self._limit_s = limit_s
        self._timeout_ms = timeout_ms
        self._open_calls: dict[Coordinators, asyncio.Timeout] = {}
        self._is_closed = False
        self._finding = asyncio.Semaphore(PIPELINED)
        self._slots: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(PIPELINED))

    def connections_changed(self) -> None:
        """Wake calls that wait for a connection: a node was connected or lost, or a connection attempt failed."""
        for each in tuple(self._open_calls):
            each.connections_changed()

    def close(self) -> None:
        """Fail the calls in progress."""
        self._is_closed = True
        for scope in self._open_calls.values():
            if not scope.expired():  # an expired call is cancelled already, and its task runs next
                scope.reschedule(asyncio.get_running_loop().time())

    async def end(self, prepared: PreparedTransaction, *, commit: bool, timeout_s: float | None) -> None:
        """End *prepared* in its own transaction version; a coordinator would misinterpret a retry in another version."""
        what = f"{'commit' if commit else 'abort'} the transaction of {prepared.transactional_id!r}"
        is_written = False

        def written() -> None:
            nonlocal is_written
            is_written = True

        try:
            async with self._in_time(what, timeout_s) as coordinators:
                await self._end(coordinators, prepared, commit=commit, on_written=written)
        except TransactionTimeout as timeout:
            if not is_written:
                raise
            unknown = TransactionOutcomeUnknown(f"{timeout}; the outcome is unknown; repeat the call")
            raise unknown from timeout.__cause__

    async def end_many(
        self, prepared: Iterable[PreparedTransaction], *, commit: bool
    ) -> dict[PreparedTransaction, ProducerError | None]:
        """End each transaction of *prepared*, and return the error of each transaction, or None."""
        return await _each(lambda each: _error_of(self.end(each, commit=commit, timeout_s=None)), prepared)

    async def describe(self, ids: Iterable[str]) -> dict[str, TransactionDescription | None]:
        """Return the description of each id by its coordinator; None for an unknown id."""

        async def describe(name: str) -> TransactionDescription | None:
            async with self._in_time(f"describe {name!r}", None) as coordinators:
                return await self._describe(coordinators, name)

        return await _each(describe, ids)

    async def list(
        self, pattern: str | None, states: Sequence[str], longer_than_ms: int | None
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers that match the filters, sorted by transactional id."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )
        attempt = 0
        async with self._in_time("list transactions", None) as coordinators:
            while True:
                try:
                    found = await self._list(coordinators, request)
                except ProducerError as error:
                    if not error.retriable:
                        raise
                    coordinators.last_error = error
                else:
                    return sorted(found)
                await asyncio.sleep(self._backoff.delay_s(attempt))
                attempt += 1

    async def fence(self, ids: Iterable[str]) -> None:
        """Fence the producer of each id, and abort the open transaction of the id."""

        async def fence(name: str) -> None:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=self._timeout_ms)
            async with self._in_time(f"fence {name!r}", None) as coordinators:
                await self._ask(
                    coordinators, Api.INIT_PRODUCER_ID, name, request,
                    lambda answer: [(answer.error_code, "")],
                    at_most=TWO_PHASE_COMMIT - 1,
                )  # fmt: skip

        for error in (await _each(lambda name: _error_of(fence(name)), ids)).values():
            if error is not None:
                raise error

    async def _end(
        self,
        coordinators: Coordinators,
        prepared: PreparedTransaction,
        *,
        commit: bool,
        on_written: Callable[[], None],
    ) -> None:
        version = prepared.transaction_version
        bumps = version >= ADDED_BY_PRODUCE
        request = EndTxnRequest(
            transactional_id=prepared.transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.epoch,
            committed=commit,
        )
        try:
            await self._ask(
                coordinators, Api.COMMIT if commit else Api.ABORT, prepared.transactional_id, request,
                lambda answer: [(answer.error_code, "")],
                version=version,
                at_least=FROM_EPOCH_BUMPS if bumps else 0,
                at_most=None if bumps else BEFORE_EPOCH_BUMPS,
                on_written=on_written,
            )  # fmt: skip
        except InvalidTxnState as refused:
            try:
                was_empty = await self._was_empty(coordinators, prepared)
            except UnsupportedVersion:  # before Kafka 3.0 no request returns the state of a transaction
                raise _unknown_outcome(prepared, refused) from refused
            if not was_empty:
                raise _refused(prepared, refused, commit=commit) from refused
        except (InvalidProducerEpoch, InvalidProducerIdMapping, ProducerFenced) as refused:
            raise _unknown_outcome(prepared, refused) from refused

    async def _was_empty(self, coordinators: Coordinators, prepared: PreparedTransaction) -> bool:
        """Return True if nothing was written in *prepared*, so that a commit or abort of *prepared* counts as successful."""
        found = await self._describe(coordinators, prepared.transactional_id)
        if found is None or (found.producer_id, found.epoch) != (prepared.producer_id, prepared.epoch):
            return False
        if prepared.transaction_version < ADDED_BY_PRODUCE:
            return found.state == NEVER_USED  # other states may be the end of an earlier transaction
        return found.state not in OPEN_STATES  # every end, also by a timeout, bumps the epoch

    async def _describe(self, coordinators: Coordinators, name: str) -> TransactionDescription | None:
        try:
            answer = await self._ask(
                coordinators, Api.DESCRIBE, name, DescribeTransactionsRequest(transactional_ids=[name]),
                lambda answer: [(each.error_code, "") for each in answer.transaction_states],
            )  # fmt: skip
        except TransactionalIdNotFound:
            return None
        for each in answer.transaction_states:
            if each.transactional_id == name:
                return TransactionDescription(
                    name,
                    each.transaction_state,
                    each.producer_id,
                    each.producer_epoch,
                    each.transaction_timeout_ms,
                    each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None,
                    frozenset(
                        TopicPartition(topic.topic, partition)
                        for topic in each.topics
                        for partition in topic.partitions
                    ),
                )
        return None

    async def _list(
        self, coordinators: Coordinators, request: ListTransactionsRequest
    ) -> set[TransactionListing]:
        broker = await coordinators.any_broker(set())
        cluster = await request_metadata(broker, MetadataRequest(topics=[], allow_auto_topic_creation=False))
        nodes = [Node(each.node_id, Address(each.host, each.port)) for each in cluster.brokers]
        listings = await _each(lambda node: self._list_at(coordinators, node, request), nodes)
        return set().union(*listings.values())

    async def _list_at(
        self, coordinators: Coordinators, node: Node, request: ListTransactionsRequest
    ) -> set[TransactionListing]:
        while (connection := self._pool.get(node.node_id)) is None:
            error = await coordinators.dial(node)
            if error is not None:
                raise ConnectionFailed(str(error)) from error
        try:
            answer = await connection.request(request)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(
                f"{connection} cannot list transactions by these filters: states need Kafka 3.0, longer_than_ms needs"
                f" Kafka 3.8 and pattern needs Kafka 4.1; leave the newer filters out ({error})"
            ) from error
        if answer.error_code:
            kind = broker_error(answer.error_code)
            raise kind(f"{connection}: {kind.__doc__ or kind.__name__}")
        if answer.unknown_state_filters:
            raise ValueError(
                f"states: {connection} knows no {', '.join(answer.unknown_state_filters)}; expected Kafka's names,"
                " such as Ongoing, PrepareCommit, CompleteCommit"
            )
        return {
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
        }

    async def _ask(
        self,
        coordinators: Coordinators,
        api: Api,
        name: str,
        request: Request[R],
        refusals: Callable[[R], Refusals],
        *,
        version: int = ADDED_BY_PRODUCE,
        at_least: int = 0,
        at_most: int | None = None,
        on_written: Callable[[], None] = lambda: None,
    ) -> R:
        """Send *request* to the coordinator of *name*. Concurrent calls to one coordinator are pipelined."""
        key = Key(KeyType.TRANSACTION, name)
        async with self._finding:
            node = await coordinators.find(key)
        async with self._slots[node.node_id]:
            return await coordinators.request(
                api, key, request, refusals,
                version=version, at_least=at_least, at_most=at_most, on_written=on_written,
            )  # fmt: skip

    @asynccontextmanager
    async def _in_time(self, what: str, timeout_s: float | None) -> AsyncIterator[Coordinators]:
        """Yield the `Coordinators` of one call; raise TransactionTimeout at the time limit."""
        limit_s = self._limit_s if timeout_s is None else timeout_s
        coordinators = Coordinators(self._pool, self._updater, self._backoff, self._limits)
        scope = self._open_calls[coordinators] = asyncio.timeout(limit_s)
        try:
            async with scope:
                yield coordinators
        except ProducerError as error:
            error.abortable = error.fatal = False  # both flags describe the state of a producer
            raise
        except TimeoutError:
            ended = timeout_error(what, limit_s, coordinators.last_error)
            if self._is_closed:
                ended = TransactionTimeout(f"cannot {what}: the admin was closed")
            ended.abortable = False
            raise ended from coordinators.last_error
        finally:
            del self._open_calls[coordinators]


def _refused(prepared: PreparedTransaction, refused: InvalidTxnState, *, commit: bool) -> ProducerError:
    """Return the error for INVALID_TXN_STATE, which proves the outcome in version 2, and proves nothing in version 1."""
    whose = f"the transaction of {prepared.transactional_id!r}"
    if prepared.transaction_version < ADDED_BY_PRODUCE:
        return _unknown_outcome(prepared, refused)
    if commit:
        return TransactionLost(
            f"{whose} is not committed, and cannot be any more: its time ran out, or it was aborted; its records are"
            " gone"
        )
    return TransactionStateError(f"{whose} cannot be aborted: it is committed")


def _unknown_outcome(prepared: PreparedTransaction, refused: ProducerError) -> TransactionOutcomeUnknown:
    return TransactionOutcomeUnknown(
        f"the outcome of the transaction of {prepared.transactional_id!r} is unknown: {type(refused).__name__}, because"
        " the id was used, fenced or expired since the transaction began"
    )


async def _error_of(call: Awaitable[None]) -> ProducerError | None:
    try:
        await call
    except ProducerError as error:
        return error
    return None


async def _each(work: Callable[[K], Coroutine[Any, Any, T]], items: Iterable[K]) -> dict[K, T]:
    """Run *work* for all items concurrently, and return the results by item. The first error cancels the other tasks."""
    tasks = {item: asyncio.create_task(work(item)) for item in dict.fromkeys(items)}
    if not tasks:
        return {}
    try:
        done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        return {item: task.result() for item, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.wait(tasks.values())
        for task in tasks.values():
            _ = task.cancelled() or task.exception()  # asyncio logs every unretrieved exception
