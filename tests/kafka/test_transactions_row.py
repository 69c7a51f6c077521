"""Consecutive transactions on a real Kafka of both versions: outcomes match the log, and none stays open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import pytest

from aioproducer import (
    BrokerError,
    CommitFailed,
    Producer,
    ProducerClosed,
    ProducerError,
    TransactionAdmin,
)
from aioproducer._core.protocol.produce import InitProducerIdRequest, ProduceRequest
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    TxnOffsetCommitRequest,
)
from tests.kafka.apache.proxy import What
from tests.kafka.apache.stand import Stand
from tests.kafka.conftest import WHOLE
from tests.kafka.ledger import Ledger, Outcome, state_of

OF_A_TRANSACTION = {
    FindCoordinatorRequest,
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    ProduceRequest,
    EndTxnRequest,
}
IN_A_ROW = 500 if WHOLE else 60
REFUSED = 87


@pytest.mark.timeout(300)
async def test_transactions_run_back_to_back(stand: Stand, stand_topic: str) -> None:
    ledger = Ledger(stand.servers, stand_topic)
    async with Producer(stand.servers, transactional_id=stand_topic) as producer:
        for number in range(IN_A_ROW):
            abort = number % 5 in {1, 3}
            outcome = await ledger.transact(producer, abort=abort)
            assert outcome is (Outcome.ABORTED if abort else Outcome.COMMITTED), ledger.errors[-1]
    await ledger.check(stand_topic)


async def test_empty_transaction_sends_nothing(stand: Stand, stand_topic: str) -> None:
    async with Producer(stand.servers, transactional_id=stand_topic) as producer:
        assert InitProducerIdRequest in stand.proxy.seen
        stand.proxy.clear()
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send_offsets({}, "readers")
            _ = await transaction.prepare()
        await producer.commit_transaction()
        assert not OF_A_TRANSACTION & set(stand.proxy.seen)
        await producer.begin_transaction()
    assert not OF_A_TRANSACTION & set(stand.proxy.seen)


async def of_records_that_nobody_awaits(producer: Producer, ledger: Ledger, number: int) -> None:
    async with producer.transaction():
        for index, value in enumerate(ledger.records(number)):
            _ = producer.send_nowait(ledger.topic, value, partition=index % 3)


@pytest.mark.parametrize("by_hand", [False, True])
async def test_commit_fails_when_an_unawaited_record_failed(
    stand: Stand, stand_topic: str, by_hand: bool
) -> None:
    ledger = Ledger(stand.servers, stand_topic)
    async with Producer(stand.servers, transactional_id=stand_topic) as producer:
        assert await ledger.transact(producer) is Outcome.COMMITTED
        fault = stand.proxy.add(ProduceRequest, What.REFUSED, REFUSED)
        number = ledger.open()
        if by_hand:
            await producer.begin_transaction()
            for index, value in enumerate(ledger.records(number)):
                _ = producer.send_nowait(stand_topic, value, partition=index % 3)
            for _ in range(2):  # it says so to everybody
                with pytest.raises(CommitFailed) as caught:
                    await producer.commit_transaction()
                assert caught.value.abortable
                assert isinstance(caught.value.__cause__, BrokerError)
                assert caught.value.__cause__.code == REFUSED
            with pytest.raises(ProducerError):
                await producer.begin_transaction()
            await producer.abort_transaction()
        else:
            with pytest.raises(CommitFailed):
                await of_records_that_nobody_awaits(producer, ledger, number)
        ledger.told[number] = Outcome.FAILED
        assert fault.hits == 1
        assert await ledger.transact(producer) is Outcome.COMMITTED
    await ledger.check(stand_topic)


class OnPurpose(Exception):
    """Error raised in the body of a transaction."""


async def aborted_by_hand(producer: Producer, ledger: Ledger) -> None:
    await producer.begin_transaction()
    await asyncio.gather(*await ledger.fill(producer, ledger.open()))
    await producer.abort_transaction()


async def body_raises(producer: Producer, ledger: Ledger) -> None:
    with suppress(OnPurpose):
        async with producer.transaction():
            await asyncio.gather(*await ledger.fill(producer, ledger.open()))
            raise OnPurpose


async def body_is_cancelled(producer: Producer, ledger: Ledger) -> None:
    written = asyncio.Event()

    async def run() -> None:
        async with producer.transaction():
            await asyncio.gather(*await ledger.fill(producer, ledger.open()))
            written.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await written.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def closed(producer: Producer, ledger: Ledger) -> None:
    await producer.begin_transaction()
    await asyncio.gather(*await ledger.fill(producer, ledger.open()))
    await producer.close()


async def closed_with_records_in_flight(producer: Producer, ledger: Ledger) -> None:
    await producer.begin_transaction()
    futures = await ledger.fill(producer, ledger.open())
    await producer.close()
    await asyncio.wait(futures)
    for future in futures:
        assert isinstance(future.exception(), ProducerError | None)


async def closed_while_it_commits(producer: Producer, ledger: Ledger) -> None:
    number = ledger.open()
    await producer.begin_transaction()
    await asyncio.gather(*await ledger.fill(producer, number))
    commit = asyncio.ensure_future(producer.commit_transaction())
    await asyncio.sleep(0)
    await producer.close()
    with suppress(ProducerClosed):
        await commit
        ledger.told[number] = Outcome.COMMITTED


Way: TypeAlias = Callable[[Producer, Ledger], Awaitable[None]]


@pytest.mark.long(unless=lambda case: case["stand"] == 2 or case["way"] is body_is_cancelled)
@pytest.mark.parametrize(
    "way",
    [
        aborted_by_hand,
        body_raises,
        body_is_cancelled,
        closed,
        closed_with_records_in_flight,
        closed_while_it_commits,
    ],
    ids=lambda way: way.__name__,
)
async def test_failed_transaction_is_not_left_open(stand: Stand, stand_topic: str, way: Way) -> None:
    """When the call returns, the coordinator has completed the transaction or stored its end."""
    ledger = Ledger(stand.servers, stand_topic)
    async with TransactionAdmin(stand.servers) as admin:
        await admin.describe(stand_topic)  # so that it is connected, and soon asks
        async with Producer(stand.servers, transactional_id=stand_topic) as producer:
            await way(producer, ledger)
            assert await state_of(admin, stand_topic) != "Ongoing"
        visible = await ledger.check(stand_topic)
        if way is not closed_while_it_commits:
            assert not visible
