"""A producer whose bootstrap addresses move to another cluster, and a producer id that arrives in the background."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.idempotence import ProducerIdentity
from aioproducer._core.transactions.transaction_manager import Api, TransactionState as State
from aioproducer.errors import (
    CommitFailed,
    ProducerClosed,
    ProducerError,
    RebootstrapRequired,
    TransactionOutcomeUnknown,
    TransactionTimeout,
)
from aioproducer.testing import in_virtual_time
from tests.unit._core.transactions.transactions_rig import TransactionsRig, refused, rig
from tests.unit.floor_rig import settle

MOVED = "the transaction has failed: the cluster changed from a to b"


def leave(made: TransactionsRig) -> None:
    made.transactions.leave_cluster(RebootstrapRequired("the cluster changed from a to b"))


class TestLeaveCluster:
    @in_virtual_time
    async def test_idle_producer_initializes_again(self) -> None:
        async with rig() as made:
            await made.transactions.commit(None)
            leave(made)
            assert made.manager.state is State.INITIALIZING
            beginning = asyncio.create_task(made.transactions.begin())
            asked = await made.answers()
            assert (asked.api, asked.request.producer_id) == (Api.INIT_PRODUCER_ID, -1)
            await beginning
            assert made.manager.current == ProducerIdentity(7, 0)

    @in_virtual_time
    async def test_open_transaction_is_aborted_without_end_txn(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            leave(made)
            assert made.transactions.has_failed
            with pytest.raises(CommitFailed, match=f"RebootstrapRequired: {MOVED}") as raised:
                await made.transactions.commit(None)
            assert isinstance(raised.value.__cause__, RebootstrapRequired)
            await made.answered(made.transactions.abort(None))
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID] * 2
            await made.transactions.begin()

    @in_virtual_time
    async def test_prepared_transaction_is_lost(self) -> None:
        async with rig() as made:
            await made.transactions.prepare(None)
            leave(made)
            assert made.manager.state is State.FATAL
            [error] = made.fatal
            assert isinstance(error, RebootstrapRequired)
            assert (error.abortable, error.fatal) == (False, True)
            cause = made.manager.cause
            assert cause is not None
            assert (cause.abortable, cause.fatal) == (False, True)

    @in_virtual_time
    async def test_commit_without_end_txn_fails(self) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            leave(made)
            with pytest.raises(CommitFailed, match=MOVED):
                await committing
            made.completion.complete(batch, 0)
            await made.answered(made.transactions.abort(None))
            assert made.manager.state is State.READY

    @in_virtual_time
    async def test_commit_after_end_txn_has_an_unknown_outcome(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            committing = asyncio.create_task(made.transactions.commit(None))
            asked = await made.asks()
            leave(made)
            assert made.manager.state is State.COMMITTING
            asked.on_uncertain()
            await made.answers(made.coordinators.left_cluster())
            with pytest.raises(TransactionOutcomeUnknown) as raised:
                await committing
            assert raised.value.fatal

    @in_virtual_time
    async def test_abort_in_flight_succeeds(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            aborting = asyncio.create_task(made.transactions.abort(None))
            await settle()
            leave(made)
            await made.answers(made.coordinators.left_cluster())
            await made.answers()
            await aborting
            assert made.coordinators.seen[1:] == [Api.ABORT, Api.INIT_PRODUCER_ID]
            assert made.manager.state is State.READY

    @in_virtual_time
    async def test_initialize_continues_in_the_new_cluster(self) -> None:
        made = TransactionsRig()
        initializing = asyncio.create_task(made.transactions.initialize())
        await settle()
        leave(made)
        await made.answers(made.coordinators.left_cluster())
        await made.answers()
        await initializing
        assert made.manager.state is State.READY


class TestInitializeLater:
    @in_virtual_time
    async def test_begin_waits_for_the_producer_id(self) -> None:
        made = TransactionsRig()
        made.transactions.initialize_later()
        beginning = asyncio.create_task(made.transactions.begin())
        asked = await made.answers()
        assert (asked.api, asked.fails_refused) == (Api.INIT_PRODUCER_ID, False)
        await beginning
        await made.transactions.commit(None)
        await made.transactions.begin()

    @in_virtual_time
    async def test_begin_raises_the_refusal(self) -> None:
        made = TransactionsRig()
        made.transactions.initialize_later()
        await made.answers(refused(53))
        with pytest.raises(ProducerError, match=r"^refused with 53$") as raised:
            await made.transactions.begin()
        assert raised.value.fatal
        assert made.manager.state is State.FATAL
        with pytest.raises(ProducerError, match=r"refused with 53.*close this producer"):
            await made.transactions.begin()

    @in_virtual_time
    async def test_begin_without_a_producer_id_in_time_may_be_repeated(self) -> None:
        made = TransactionsRig(max_block_s=5.0)
        made.transactions.initialize_later()
        made.coordinators.last_error = refused(14)
        with pytest.raises(TransactionTimeout) as raised:
            await made.transactions.begin()
        assert str(raised.value) == (
            "cannot begin a transaction within 5 s (timeout_s, or max_block_ms without);"
            " last error: CoordinatorLoadInProgress: refused with 14"
        )
        assert made.loop.time() == 5
        await made.answers()
        await made.transactions.begin()

    @in_virtual_time
    async def test_begin_raises_a_bug_of_the_initialization(self) -> None:
        made = TransactionsRig()
        made.transactions.initialize_later()
        (await made.asks()).answered.set_exception(ZeroDivisionError("oops"))
        with pytest.raises(ProducerError, match=r"^aioproducer: initialize: ended because of a bug"):
            await made.transactions.begin()

    @in_virtual_time
    async def test_begin_raises_producer_closed_after_a_stop(self) -> None:
        made = TransactionsRig()
        made.transactions.initialize_later()
        beginning = asyncio.create_task(made.transactions.begin())
        await settle()
        await made.transactions.stop()
        with pytest.raises(ProducerClosed) as raised:
            await beginning
        assert not raised.value.fatal
