"""Brokers for tests of transaction administration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.snapshot import Broker, MetadataSnapshot
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.net.pool import Pool
from aioproducer._core.protocol.admin import ListTransactionsRequest, ListTransactionsResponse
from aioproducer._core.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer._core.protocol.schema import ApiVersionTable, Request
from aioproducer._core.protocol.transactions import (
    Coordinator,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    TransactionState as Described,
)
from aioproducer._core.transactions.administration import Administration
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.errors import ConnectionFailed
from aioproducer.testing.virtual_time import in_virtual_time

OFFERED = {3: (0, 13), 10: (0, 6), 22: (0, 5), 26: (0, 5), 65: (0, 0), 66: (0, 2)}
LIMIT_S = 60.0


def prepared(name: str = "orders-1", *, version: int = 2, epoch: int = 3) -> PreparedTransaction:
    return PreparedTransaction(name, 7, epoch, version, began_at_ms=1_000, timeout_ms=60_000)


class Brokers:
    """Two brokers that answer at once as the test says, and store the requests with their versions.

    Ids that end with an even number are coordinated by node 0, the others by node 1.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[Request[Any], int]] = []
        self.ends: list[int | None] = []
        """Codes of the next answers to EndTxn, then 0; None: the connection is lost."""
        self.silent = False
        self.waiting = 0
        self.most_waiting = 0
        self.state: Described | None = None
        self.listed: dict[int, list[Any]] = {0: [], 1: []}
        self.inits: dict[str, int] = {}
        self.find_code = 0
        self.starting = 0
        """Number of the next answers to Metadata without brokers."""
        self.offered = dict(OFFERED)
        self.snapshot = MetadataSnapshot(brokers={node: Broker(node, "b", 9092 + node) for node in (0, 1)})
        self.connections = {node: Node(self, node) for node in (0, 1)}
        self.dials: list[int] = []
        self.refused_dials = 0
        """Number of the next dials that fail at once."""
        self.on_dial: Callable[[int], object] = lambda _node: None
        """Called with the node of a dial that does not fail."""

    def of(self, kind: type[Request[Any]]) -> list[Any]:
        return [request for request, _ in self.asked if isinstance(request, kind)]

    def versions(self, kind: type[Request[Any]]) -> list[int]:
        return [version for request, version in self.asked if isinstance(request, kind)]

    # --- a pool ---
    def get(self, node_id: int) -> Any:
        return self.connections.get(node_id)

    def least_loaded(self, candidates: Any, _rather_not: int = -1) -> Any:
        return next((self.connections[each] for each in sorted(candidates)), None)

    def connect_soon(self, node_id: int, _address: object) -> None:
        self.dials.append(node_id)
        if len(self.dials) > self.refused_dials:
            self.on_dial(node_id)

    def next_attempt_at(self, _node_id: int) -> float | None:
        return asyncio.get_running_loop().time() if len(self.dials) <= self.refused_dials else None

    def last_error(self, _node_id: int) -> ConnectionFailed | None:
        return ConnectionFailed("b:9093: refused")

    def answer(self, node: int, request: Any) -> Any:  # noqa: PLR0911 - a table
        match request:
            case FindCoordinatorRequest():
                (name,) = request.coordinator_keys
                at = int(name[-1]) % 2 if name[-1].isdigit() else 0
                found = Coordinator(key=name, node_id=at, host="b", port=9092 + at, error_code=self.find_code)
                return FindCoordinatorResponse(coordinators=[found])
            case EndTxnRequest():
                code = self.ends.pop(0) if self.ends else 0
                if code is None:
                    return ConnectionFailed("reset", written=True)
                return EndTxnResponse(error_code=code)
            case DescribeTransactionsRequest():
                (name,) = request.transactional_ids
                state = self.state or Described(error_code=105, transactional_id=name)
                return DescribeTransactionsResponse(transaction_states=[state])
            case InitProducerIdRequest():
                return InitProducerIdResponse(
                    error_code=self.inits.get(request.transactional_id or "", 0), producer_epoch=1
                )
            case MetadataRequest():
                self.starting, known = max(self.starting - 1, 0), () if self.starting else (0, 1)
                return MetadataResponse(
                    brokers=[
                        MetadataResponseBroker(node_id=each, host="b", port=9092 + each) for each in known
                    ],
                    topics=[],
                )
            case ListTransactionsRequest():
                told = self.listed[node]
                if told and isinstance(told[0], int):
                    return ListTransactionsResponse(error_code=told.pop(0))
                if told and isinstance(told[0], str):
                    return ListTransactionsResponse(unknown_state_filters=told)
                return ListTransactionsResponse(transaction_states=told)
        raise AssertionError(request)


class Node:
    def __init__(self, brokers: Brokers, node_id: int) -> None:
        self.brokers = brokers
        self.node_id = node_id
        self.versions = ApiVersionTable(brokers.offered)
        self.throttled_until = 0.0

    def __str__(self) -> str:
        return f"b:{9092 + self.node_id} (node {self.node_id})"

    def call(self, request: Any, on_answer: Callable[[Any], None], *, version: int) -> None:
        brokers = self.brokers
        brokers.asked.append((request, version))
        brokers.waiting += 1
        brokers.most_waiting = max(brokers.most_waiting, brokers.waiting)
        if not brokers.silent or isinstance(request, FindCoordinatorRequest):
            asyncio.get_running_loop().call_later(0.01, self._answer, request, on_answer)

    def _answer(self, request: Any, on_answer: Callable[[Any], None]) -> None:
        self.brokers.waiting -= 1
        on_answer(self.brokers.answer(self.node_id, request))

    async def request(self, request: Any, *, version: int | None = None) -> Any:
        chosen = self.versions.pick(type(request)) if version is None else version
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.call(request, answered.set_result, version=chosen)
        return await answered


def administration(brokers: Brokers) -> Administration:
    return Administration(
        cast("Pool", brokers),
        cast("MetadataUpdater", brokers),
        Backoff(0.1, 1.0, jitter=0.0),
        limit_s=LIMIT_S,
        timeout_ms=60_000,
    )


def run(brokers: Brokers, call: Callable[[Administration], Any]) -> Any:
    """Return the result of *call*, or raise its exception."""

    async def main() -> Any:
        return await call(administration(brokers))

    return in_virtual_time(main)()


def end(
    brokers: Brokers, what: PreparedTransaction, *, commit: bool = True, timeout_s: float | None = None
) -> Any:
    return run(brokers, lambda admin: admin.end(what, commit=commit, timeout_s=timeout_s))


def description(state: str, *, epoch: int = 3) -> Described:
    return Described(
        transactional_id="orders-1",
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=-1,
        producer_id=7,
        producer_epoch=epoch,
    )
