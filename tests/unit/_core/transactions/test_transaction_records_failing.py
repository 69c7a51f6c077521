"""Failures of a transaction and of its producer."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.batching.waiters import Failure
from aioproducer._core.transactions.transaction_manager import TransactionState as State
from aioproducer._core.transactions.transaction_records import aborted
from aioproducer.errors import (
    BufferFull,
    BufferTimeout,
    DeliveryTimeout,
    MetadataTimeout,
    MetadataUnavailable,
    ProducerClosed,
    ProducerError,
    ProducerFenced,
    RecordTooLarge,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    TransactionStateError,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.transactions_rig import failed_of, rig


class TestFailing:
    @in_virtual_time
    async def test_failed_record_fails_its_transaction(self) -> None:
        async with rig() as made:
            told = made.records.failing(Failure(DeliveryTimeout, "late", possibly_persisted=True))
            assert told == Failure(DeliveryTimeout, "late", possibly_persisted=True, abortable=True)
            cause = made.manager.cause
            assert isinstance(cause, DeliveryTimeout)
            assert cause.possibly_persisted
            assert made.fatal == []

    @in_virtual_time
    async def test_fatal_failure_of_a_record_is_reported_once(self) -> None:
        async with rig() as made:
            told = made.records.failing(Failure(ProducerFenced, "gone"))
            assert told == Failure(ProducerFenced, "gone", fatal=True)
            assert [str(each) for each in made.fatal] == [
                "cannot go on: the transaction of 'tx' has failed (gone); close this producer and start another"
            ]
            made.records.failing(Failure(ProducerFenced, "gone"))
            assert len(made.fatal) == 1

    @in_virtual_time
    async def test_record_outside_a_transaction_fails_alone(self) -> None:
        async with rig() as made:
            await made.transactions.commit(None)
            failure = Failure(DeliveryTimeout, "late")
            assert made.records.failing(failure) is failure

    @in_virtual_time
    async def test_closed_producer_is_not_abortable(self) -> None:
        async with rig() as made:
            future = made.append()
            closed = Failure(ProducerClosed, "closed")
            made.accumulator.close(closed)
            made.completion.fail_everything(closed)
            error = failed_of(future)
            assert (error.abortable, error.fatal) == (False, False)

    @in_virtual_time
    async def test_failed_record_of_a_closed_producer_prevents_a_commit(self) -> None:
        async with rig() as made:
            made.accumulator.close(Failure(ProducerClosed, "closed"))
            failure = Failure(DeliveryTimeout, "late")
            assert made.records.failing(failure) is failure
            assert isinstance(made.manager.cause, DeliveryTimeout)

    @in_virtual_time
    async def test_failure_wakes_the_sender_once(self) -> None:
        async with rig() as made:
            before = made.wakes
            made.records.failed(DeliveryTimeout("late"))
            assert made.wakes == before + 1
            made.records.failed(DeliveryTimeout("late"))
            assert made.wakes == before + 1

    @pytest.mark.parametrize(
        "error",
        [RecordTooLarge("x"), MetadataTimeout("x"), BufferTimeout("x")],
        ids=lambda each: type(each).__name__,
    )
    @in_virtual_time
    async def test_refused_record_fails_the_transaction(self, error: ProducerError) -> None:
        async with rig() as made:
            made.records.refused(error)
            assert made.manager.cause is error
            assert (error.abortable, error.fatal) == (True, False)

    @for_each(
        "error",
        [
            BufferFull("x"),
            MetadataUnavailable("x"),
            TransactionStateError("x"),
            TypeError("x"),
            asyncio.CancelledError(),
        ],
    )
    @in_virtual_time
    async def test_retriable_refusal_does_not_fail_the_transaction(self, error: BaseException) -> None:
        async with rig() as made:
            made.records.refused(error)
            assert made.manager.state is State.IN_TRANSACTION

    @in_virtual_time
    async def test_fatal_refusal_is_not_abortable(self) -> None:
        async with rig() as made:
            error = TransactionalIdAuthorizationFailed("not ours")
            made.records.refused(error)
            assert (error.abortable, error.fatal) == (False, True)

    @in_virtual_time
    async def test_refusal_of_a_closed_producer_is_not_abortable(self) -> None:
        async with rig() as made:
            made.accumulator.close(Failure(ProducerClosed, "closed"))
            error = ProducerClosed("closed")
            made.records.refused(error)
            assert (error.abortable, error.fatal) == (False, False)

    def test_aborted_is_abortable(self) -> None:
        assert aborted() == Failure(
            TransactionAborted, "the transaction was aborted before the record was sent", abortable=True
        )
