"""Transactions on real batches and queues, with coordinators that a test answers for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.net.connection_protocol import caused
from aioproducer._core.protocol.produce import InitProducerIdResponse
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    TxnOffsetCommitResponse,
)
from aioproducer._core.transactions.coordinator import CoordinatorRequest, Coordinators, Key
from aioproducer._core.transactions.producer_transactions import Transactions
from aioproducer._core.transactions.transaction_manager import Api
from aioproducer._core.transactions.transaction_requests import TransactionSettings
from aioproducer.errors import (
    ProducerError,
    ProducerFenced,
    RebootstrapRequired,
    TransactionStateError,
    broker_error,
)
from tests.unit.floor_rig import FloorRig, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer._core.batching.batch import Batch

ID = "tx"


def settings(**changes: Any) -> TransactionSettings:
    defaults: dict[str, Any] = {
        "transactional_id": ID,
        "timeout_ms": 60_000,
        "two_phase_commit": False,
        "max_block_s": 60.0,
    }
    return TransactionSettings(**(defaults | changes))


@dataclass
class Asked:
    """A request that the coordinators were given."""

    api: Api
    key: Key
    request: Any
    refusals: Callable[[Any], Sequence[tuple[int, str]]]
    version: int
    at_least: int
    at_most: int | None
    answered: asyncio.Future[Any]
    on_uncertain: Callable[[], None]
    fails_refused: bool
    check: CoordinatorRequest | None
    """What is asked before; the fake takes it for answered well."""


class FakeCoordinators:
    """Coordinators with one request at a time, which the test answers."""

    def __init__(self, transaction_version: int = 2) -> None:
        self.transaction_version = transaction_version
        self.last_error: ProducerError | None = None
        self.reachable = True
        """Whether requests are written at once."""
        self.answers_at_once = False
        self.refusing: dict[Api, ProducerError] = {}
        """What is refused, where everything is answered at once."""
        self.asked: list[Asked] = []
        """Those without an answer."""
        self.seen: list[Api] = []
        self._turn = asyncio.Lock()
        self._left: ProducerError | None = None

    def leave_cluster(self, error: ProducerError) -> None:
        self._left = error

    def left_cluster(self) -> RebootstrapRequired:
        error = caused(RebootstrapRequired(f"the transaction has failed: {self._left}"), self._left)
        error.abortable = True
        return error

    @property
    def real(self) -> Coordinators:
        return cast("Coordinators", self)

    async def request(
        self,
        api: Api,
        key: Key,
        request: Any,
        refusals: Callable[[Any], Sequence[tuple[int, str]]],
        *,
        version: int,
        at_least: int = 0,
        at_most: int | None = None,
        on_written: Callable[[], None] = lambda: None,
        on_uncertain: Callable[[], None] = lambda: None,
        fails_refused: bool = False,
        check: CoordinatorRequest | None = None,
    ) -> Any:
        async with self._turn:
            answered = asyncio.get_running_loop().create_future()
            asked = Asked(
                api,
                key,
                request,
                refusals,
                version,
                at_least,
                at_most,
                answered,
                on_uncertain,
                fails_refused,
                check,
            )
            self.asked.append(asked)
            self.seen.append(api)
            written = self.reachable
            if written:
                on_written()
            if self.answers_at_once:
                asyncio.get_running_loop().call_soon(self.answer, self.refusing.get(api))
            try:
                # Coverage on Python 3.11 loses a coroutine that an awaited Future throws into.
                await asyncio.wait([answered])
                return answered.result()
            except asyncio.CancelledError:
                if written:
                    on_uncertain()
                raise
            finally:
                self.asked.remove(asked)

    def answer(self, outcome: Any = None) -> Asked:
        """Answer the oldest request with success, or with *outcome*, which may be an error."""
        asked = self.asked[0]
        if isinstance(outcome, ProducerError):
            asked.answered.set_exception(outcome)
        else:
            asked.answered.set_result(outcome or self.done(asked))
        return asked

    def done(self, asked: Asked) -> Any:
        """Return a successful answer."""
        request = asked.request
        match asked.api:
            case Api.INIT_PRODUCER_ID:
                return InitProducerIdResponse(
                    producer_id=max(request.producer_id, 7), producer_epoch=request.producer_epoch + 1
                )
            case Api.DESCRIBE:
                return DescribeTransactionsResponse(transaction_states=[])
            case Api.ADD_PARTITIONS:
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[])
            case Api.ADD_OFFSETS:
                return AddOffsetsToTxnResponse()
            case Api.OFFSET_COMMIT:
                return TxnOffsetCommitResponse(topics=[])
            case _ if asked.version >= 2:
                return EndTxnResponse(
                    producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
                )
        return EndTxnResponse()


def refused(code: int, *, fatal: bool = False) -> ProducerError:
    """Return the error that the coordinators raise for *code*: abortable or fatal."""
    error = broker_error(code)(f"refused with {code}")
    error.abortable, error.fatal = not fatal, fatal
    return error


def failed_of(future: asyncio.Future[Any]) -> ProducerError:
    """Return the error of *future*."""
    error = future.exception()
    assert isinstance(error, ProducerError)
    return error


class TransactionsRig(FloorRig):
    """A sender that looks whenever something has changed, and writes when the test says so."""

    END = ProducerFenced
    """What a record fails of so that it is the end of the producer."""

    def __init__(self, *, version: int = 2, partitions: int = 2, **changes: Any) -> None:
        self.moves: list[bool] = []
        self.is_due = False
        self.transactions = Transactions(settings(**changes), on_moved=self.moves.append)
        self.manager = self.transactions.manager
        super().__init__(identified=False, identities=self.manager, partitions=partitions)
        self.fatal: list[ProducerError] = []
        self.records = self.transactions.watch(
            self.accumulator, self.updater.real, on_fatal=self.fatal.append
        )
        self.completion = BatchCompletion(
            self.accumulator, observer=self.witness, on_failure=self.records.failing
        )
        self.coordinators = FakeCoordinators(version)
        self.transactions.open(
            self.completion,
            self.coordinators.real,
            on_admitted=lambda: self.accumulator.schedule.identity_changed(self.loop.time()),
        )

    def _wake(self) -> None:
        super()._wake()
        if not self.is_due:
            self.is_due = True
            self.loop.call_soon(self.turn)

    def turn(self) -> None:
        """Run the first step of the sender, and end lingering if batches are hurried."""
        self.is_due = False
        self.records.fail_unsendable()
        self.accumulator.schedule.collect(self.loop.time(), hurry=self.accumulator.hurries())

    async def asks(self) -> Asked:
        """Return the pending request to the coordinators."""
        await settle()
        return self.coordinators.asked[0]

    async def answers(self, outcome: Any = None) -> Asked:
        """Answer the pending request to the coordinators, and run all callbacks that follow."""
        await settle()
        asked = self.coordinators.answer(outcome)
        await settle()
        return asked

    async def answered(self, work: Any) -> Any:
        """Return the result of *work* while all its requests succeed."""
        task = self.loop.create_task(work)
        await settle()
        while not task.done():
            await self.answers()
        return task.result()

    async def begun(self) -> None:
        """Initialise if needed, and begin a transaction."""
        if self.manager.current is None:
            await self.answered(self.transactions.initialize())
        await self.transactions.begin()

    def sent_out(self, value: bytes = b"value", partition: int = 0) -> tuple[Batch, asyncio.Future[Any]]:
        """Append and write a record whose partition is already in the transaction."""
        future = self.append(value, partition=partition)
        [batch] = self.drain()
        self.records.write([batch])
        batch.persistence.written()
        return batch, future

    def written(self, partition: int = 0) -> Batch:
        """Return a batch in flight; below version 2 its partition is added first."""
        self.manager.added([self.queue(partition).topic_partition])
        return self.sent_out(partition=partition)[0]

    async def out_of_it(self) -> None:
        """Begin the next transaction, by whatever the errors advise; AssertionError if nothing helps."""
        for _ in range(10):
            try:
                await self.answered(self.transactions.begin())
            except TransactionStateError:
                with suppress(ProducerError):
                    await self.answered(self.transactions.commit(None))
            except ProducerError:
                await self.answered(self.transactions.abort(None))
            else:
                return
        raise AssertionError(f"no way out of {self.manager.state.name}")

    def fail(self, batch: Batch, kind: type[ProducerError]) -> None:
        self.completion.fail(batch, Failure(kind, "failed"))


@asynccontextmanager
async def rig(**changes: Any) -> AsyncIterator[TransactionsRig]:
    """Yield a rig with an open transaction; no task of it may be left."""
    before = asyncio.all_tasks()
    made = TransactionsRig(**changes)
    await made.begun()
    yield made
    await made.transactions.stop()
    assert asyncio.all_tasks() == before
