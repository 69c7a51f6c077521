"""Coordinators on fake connections, whose requests a test answers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from aioproducer._core.backoff import Backoff
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.protocol.transactions import (
    Coordinator as Found,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    TransactionState,
)
from aioproducer._core.transactions.coordinator import CoordinatorRequest, Coordinators, Key, KeyType
from aioproducer._core.transactions.transaction_manager import Api
from aioproducer.errors import ConnectionFailed, ProducerError
from tests.fakes import FakeConnection, FakePool, FakeUpdater
from tests.unit.floor_rig import settle

TRANSACTION = Key(KeyType.TRANSACTION, "tx")
GROUP = Key(KeyType.GROUP, "g")
END = EndTxnRequest(transactional_id="tx", producer_id=7, producer_epoch=0, committed=True)
CHECK = CoordinatorRequest(
    Api.DESCRIBE,
    DescribeTransactionsRequest(transactional_ids=["tx"]),
    lambda answer: [(each.error_code, "another epoch") for each in answer.transaction_states],
)
OFFERED = {0: (0, 13), 10: (0, 6), 22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5), 65: (0, 0)}


class AskedConnection(FakeConnection):
    """Connection that stores the versions of its requests."""

    def __init__(
        self, node_id: int, offered: dict[int, tuple[int, int]] | None = None, **features: Any
    ) -> None:
        super().__init__(node_id)
        self.versions = ApiVersionTable(OFFERED | (offered or {}), **features)

    async def request(self, request: Any, *, version: int | None = None) -> Any:
        answered = asyncio.get_running_loop().create_future()

        def resolve(outcome: Any) -> None:
            if answered.done():
                return
            if isinstance(outcome, ProducerError):
                answered.set_exception(outcome)
            else:
                answered.set_result(outcome)

        self.call(request, resolve, version=version)
        return await answered


class AskedPool(FakePool):
    def __init__(self, *connected: int) -> None:
        super().__init__()
        self.connections = {node_id: AskedConnection(node_id) for node_id in connected}


def found(node_id: int, *, code: int = 0, message: str | None = None) -> FindCoordinatorResponse:
    """Return the answer that *node_id* is the coordinator, in the form from version 4 on."""
    return FindCoordinatorResponse(
        coordinators=[
            Found(
                key="tx",
                node_id=node_id,
                host=f"b{node_id}",
                port=9092,
                error_code=code,
                error_message=message,
            )
        ]
    )


class CoordinatorsRig:
    def __init__(self, *connected: int, nodes: tuple[int, ...] = (1, 2, 3), at_once: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        self.pool = AskedPool(*connected)
        self.updater = FakeUpdater()
        self.updater.knows("orders", nodes=nodes)
        self.backoff = Backoff(0.1, 1.0, jitter=0.0)
        self.coordinators = Coordinators(self.pool.real, self.updater.real, self.backoff)
        self.happened: list[str] = []

    def connection(self, node_id: int) -> AskedConnection:
        return cast("AskedConnection", self.pool.connections[node_id])

    def connect(self, node_id: int, connection: AskedConnection | None = None) -> AskedConnection:
        """Add a connection, and notify the coordinators as the engine does."""
        made = self.pool.connections[node_id] = connection or AskedConnection(node_id)
        self.coordinators.connected(node_id)
        return made

    def lose(self, node_id: int, *, written: bool = True) -> None:
        self.connection(node_id).close(ConnectionFailed(f"b{node_id}:9092: lost", written=written))
        self.coordinators.connections_changed()

    def end(self, api: Api = Api.COMMIT, *, version: int = 2, **limits: Any) -> asyncio.Task[EndTxnResponse]:
        """Have a transaction ended."""
        return asyncio.create_task(
            self.coordinators.request(
                api,
                TRANSACTION,
                END,
                lambda answer: [(answer.error_code, "")],
                version=version,
                on_written=lambda: self.happened.append("written"),
                on_uncertain=lambda: self.happened.append("uncertain"),
                **limits,
            )
        )

    async def is_found_at(self, node_id: int, *, by: int = 1) -> None:
        """Answer FindCoordinator at node *by*."""
        await settle()
        call = self.connection(by).calls[0]
        assert isinstance(call.request, FindCoordinatorRequest), call.request
        self.connection(by).answer(found(node_id))
        await settle()

    async def answer(self, outcome: Any = None, *, at: int = 1) -> None:
        """Answer EndTxn with an error code, or with any outcome."""
        await settle()
        call = self.connection(at).calls[0]
        assert isinstance(call.request, EndTxnRequest), call.request
        answer = EndTxnResponse(error_code=outcome) if isinstance(outcome, int) else outcome
        self.connection(at).answer(answer or EndTxnResponse())
        await settle()

    async def describes(self, code: int = 0, *, at: int = 1) -> None:
        """Answer DescribeTransactions with an error code, or 0."""
        await settle()
        call = self.connection(at).calls[0]
        assert isinstance(call.request, DescribeTransactionsRequest), call.request
        state = TransactionState(error_code=code, transactional_id="tx")
        self.connection(at).answer(DescribeTransactionsResponse(transaction_states=[state]))
        await settle()

    def requests(self, node_id: int) -> list[str]:
        return [type(call.request).__name__ for call in self.connection(node_id).calls]
